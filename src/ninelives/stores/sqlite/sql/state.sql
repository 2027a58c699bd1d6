-- part: checkpoint_record
-- What a `StoredCheckpoint` is made of, but for its writes and content.
select c.seq, c.thread_no, t.thread_id, c.ns, c.checkpoint_id, c.parent_id, c.body, c.metadata, c.graph_fp,
       c.created_at, coalesce(r.run_id, c.run_ref) as run_id
  from checkpoint c join thread t using (thread_no) left join run r on r.run_no = c.run_no

-- name: add_items
-- Content is stored once per thread; the same bytes again cost nothing.
insert or ignore into item (thread_no, digest, frame) values (:thread_no, :digest, :frame);

-- name: get_items
-- Digests come as one run of bytes, 16 each: SQLite takes no arrays.
with recursive wanted (i) as (select 0 where :n > 0 union all select i + 1 from wanted where i + 1 < :n)
select item.digest, item.frame
  from wanted cross join item on item.thread_no = :thread_no and item.digest = substr(:digests, wanted.i * 16 + 1, 16);

-- name: move_tip
-- The compare-and-set: only the tip of a branch can be continued.
update head set checkpoint_id = :checkpoint_id
 where thread_no = :thread_no and ns = :ns and checkpoint_id = :parent_id
returning branch;

-- name: open_branch
insert into head (thread_no, ns, branch, checkpoint_id)
values (:thread_no, :ns,
        coalesce((select max(branch) from head where thread_no = :thread_no and ns = :ns), 0) + 1, :checkpoint_id);

-- name: add_checkpoint
insert into checkpoint (thread_no, ns, checkpoint_id, parent_id, run_no, epoch, run_ref, graph_fp, source, body,
                        metadata, created_at)
values (:thread_no, :ns, :checkpoint_id, :parent_id, :run_no, :epoch, :run_ref, :graph_fp, :source, :body, :metadata,
        now_s());

-- name: rewrite_checkpoint
-- Only for a saver used alone: LangGraph's "exit" mode and copies of other savers may put an id a second time.
update checkpoint set parent_id = :parent_id, source = :source, body = :body, metadata = :metadata
 where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id
returning seq;

-- name: add_writes
-- Only those that are not there: `written` has been asked in the same transaction.
insert into write (thread_no, ns, checkpoint_id, task_id, idx, channel, task_path, run_no, epoch, node)
values (:thread_no, :ns, :checkpoint_id, :task_id, :idx, :channel, :task_path, :run_no, :epoch, :node);

-- name: set_writes
-- Special writes (errors, questions, answers) have one slot each per task; the newest counts.
insert or replace into write (thread_no, ns, checkpoint_id, task_id, idx, channel, task_path, run_no, epoch, node)
values (:thread_no, :ns, :checkpoint_id, :task_id, :idx, :channel, :task_path, :run_no, :epoch, :node);

-- name: drop_writes
delete from write
 where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id and task_id = :task_id
   and idx in (select value from json_each(:idxs));

-- name: drop_foreign_writes
-- Input that another run left at a checkpoint which it then never moved on from.
delete from write
 where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id and task_id = :task_id
   and run_no is not :run_no;

-- name: drop_input
delete from write
 where thread_no = :thread_no and ns = '' and checkpoint_id = :checkpoint_id and run_no = :run_no
   and task_id in (select value from json_each(:tasks));

-- name: written
select idx, channel, node from write
 where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id and task_id = :task_id and idx >= 0;

-- name: find_head
-- The newest by the store's own order.
select checkpoint_id from checkpoint where thread_no = :thread_no and ns = :ns order by seq desc limit 1;

-- name: find_seq
select max(seq) as seq from checkpoint where thread_no = :thread_no and checkpoint_id = :checkpoint_id;

-- name: newest_checkpoint
{checkpoint_record}
 where c.thread_no = :thread_no and c.ns = :ns order by c.seq desc limit 1;

-- name: list_heads
{checkpoint_record}
 where c.thread_no = :thread_no
   and c.seq in (select max(seq) from checkpoint n where n.thread_no = :thread_no group by n.ns)
 order by c.seq desc;

-- name: one_checkpoint
{checkpoint_record}
 where c.thread_no = :thread_no and c.ns = :ns and c.checkpoint_id = :checkpoint_id;

-- name: list_checkpoints
-- Of all threads.
{checkpoint_record}
 where (:owner is null or t.owner = :owner) and (:ns is null or c.ns = :ns)
   and (:checkpoint_id is null or c.checkpoint_id = :checkpoint_id) and (:below is null or c.seq < :below)
 order by c.seq desc limit :limit;

-- name: list_thread_checkpoints
-- Apart from the above, so that one thread's history is found by its index.
{checkpoint_record}
 where c.thread_no = :thread_no and (:ns is null or c.ns = :ns)
   and (:checkpoint_id is null or c.checkpoint_id = :checkpoint_id) and (:below is null or c.seq < :below)
 order by c.seq desc limit :limit;

-- name: writes_of
-- In the order in which a superstep applies them; several checkpoints of one thread at once.
select ns, checkpoint_id, task_id, idx, channel, node from write
 where thread_no = :thread_no
   and (ns, checkpoint_id) in (select json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]') from json_each(:keys) j)
 order by task_path, task_id, idx;

-- name: ancestors
-- The checkpoint itself, then parent after parent; not by id or seq, which a fork would mislead.
with recursive chain (depth, checkpoint_id, parent_id, body) as (
    select 0, checkpoint_id, parent_id, body from checkpoint
     where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id
    union all
    select chain.depth + 1, c.checkpoint_id, c.parent_id, c.body
      from chain cross join checkpoint c
        on c.thread_no = :thread_no and c.ns = :ns and c.checkpoint_id = chain.parent_id
     where chain.depth < :limit)
select checkpoint_id, parent_id, body from chain order by depth;

-- name: channel_writes
select checkpoint_id, task_id, idx, channel, node from write
 where thread_no = :thread_no and ns = :ns and channel in (select value from json_each(:channels))
   and checkpoint_id in (select value from json_each(:ids))
 order by task_path, task_id, idx;

-- name: skeletons
-- All that pruning needs to know of a thread's checkpoints, oldest first.
select seq, ns, checkpoint_id, parent_id, run_no, run_ref, body, metadata from checkpoint
 where thread_no = :thread_no order by seq;

-- name: drop_checkpoints
delete from checkpoint where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id;

-- name: drop_checkpoint_writes
delete from write where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id;

-- name: add_heads
insert into head (thread_no, ns, branch, checkpoint_id) values (:thread_no, :ns, :branch, :checkpoint_id);

-- name: nodes_of_writes
select node from write where thread_no = :thread_no;

-- name: digests
select digest from item where thread_no = :thread_no;

-- name: drop_items
delete from item where thread_no = :thread_no and digest = :digest;

-- name: threads_of_runs
-- Runs of ours by their row, those of a saver used alone by what its metadata says.
select t.thread_no, t.owner, t.thread_id, t.graph, t.state, t.created_at, t.updated_at from thread t
 where (:owner is null or t.owner = :owner)
   and t.thread_no in (select c.thread_no from run r join checkpoint c on c.run_no = r.run_no
                        where r.run_id in (select value from json_each(:run_ids))
                        union
                       select thread_no from checkpoint where run_ref in (select value from json_each(:run_ids)));

-- name: run_nos
select run_no, run_id from run where run_id in (select value from json_each(:run_ids));

-- name: open_bases
-- Where a start-over of the thread's newest run would begin; kept while that run is unfinished.
select base from run
 where run_no = (select max(run_no) from run where thread_no = :thread_no and driver != 'edit')
   and status in ('queued', 'running', 'retrying', 'interrupted', 'failed', 'quarantined');
