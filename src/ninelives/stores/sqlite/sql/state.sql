-- part: checkpoint_record
-- What a `StoredCheckpoint` is made of. A body comes with the one that it is the difference from.
select c.thread_no, c.seq, t.thread_id, c.ns, c.checkpoint_id, c.parent,
       case typeof(c.parent) when 'integer' then p.checkpoint_id else c.parent end as parent_id,
       coalesce(r.run_id, c.run_ref) as run_id, c.body, k.body as key_body, c.key_seq, c.created_at
  from checkpoint c join thread t on t.thread_no = c.thread_no
       left join run r on r.run_no = c.run_no
       left join checkpoint p on p.thread_no = c.thread_no and p.seq = c.parent
       left join checkpoint k on k.thread_no = c.thread_no and k.seq = c.key_seq

-- name: enter
-- What a put begins with: the claim stands, and what of the thread's numbers has been given.
select t.owner, t.thread_id, t.state, t.thread_no, t.event_next, t.item_next, t.items_by, t.items_loose
  from run r join thread t on t.thread_no = r.thread_no
 where r.run_no = :run_no and r.epoch = :epoch and r.status = 'running';

-- name: counters
select owner, thread_id, state, thread_no, event_next, item_next, items_by, items_loose from thread where thread_no = :thread_no;

-- name: set_counters
update thread set item_next = :item_next, items_by = :items_by, items_loose = :items_loose, updated_at = now_s(),
                  event_next = max(event_next, :event_next)
 where thread_no = :thread_no;

-- name: add_pack
insert into pack (pack_no, items, bytes, frame) values (:thread_no << 32 | :first, :items, :bytes, :frame);

-- name: get_packs
-- Those that hold any of the numbers; each comes once. Numbers come as ranges.
select pack_no & 0xffffffff as first, items, frame from pack
 where pack_no in (
    select p.pack_no
      from json_each(:ranges) j
           cross join pack p
           on p.pack_no between coalesce((select max(q.pack_no) from pack q
                                           where q.pack_no between :thread_no << 32
                                             and :thread_no << 32 | json_extract(j.value, '$[0]')),
                                         :thread_no << 32)
                            and :thread_no << 32 | json_extract(j.value, '$[1]'))
 order by pack_no;

-- name: list_packs
select pack_no & 0xffffffff as first, items, bytes from pack
 where pack_no between :thread_no << 32 and :thread_no << 32 | 0xffffffff order by pack_no;

-- name: drop_packs
delete from pack where pack_no = :thread_no << 32 | :first;

-- name: find_place
select seq from checkpoint where thread_no = :thread_no and ns = :ns and checkpoint_id = :checkpoint_id;

-- name: move_tip
-- The compare-and-set: only the tip of a branch can be continued.
update head set seq = :seq where thread_no = :thread_no and ns = :ns and seq = :parent returning seq;

-- name: open_branch
insert into head (thread_no, ns, seq) values (:thread_no, :ns, :seq);

-- name: add_checkpoint
insert into checkpoint (thread_no, seq, ns, checkpoint_id, parent, run_no, attempt, run_ref, key_seq, body, created_at)
values (:thread_no, :seq, :ns, :checkpoint_id, :parent, :run_no, (select attempt from run where run_no = :run_no),
        :run_ref, :key_seq, :body, now_s());

-- name: rewrite_checkpoint
-- A saver used alone may put an id a second time; so does a run that found a value changed in place.
update checkpoint set parent = coalesce(:parent, parent), key_seq = :key_seq, body = :body
 where thread_no = :thread_no and seq = :seq;

-- name: keyed_on
select c.seq, c.body, k.body as key_body from checkpoint c
  join checkpoint k on k.thread_no = c.thread_no and k.seq = c.key_seq
 where c.thread_no = :thread_no and c.seq > :seq and c.key_seq = :seq;

-- name: set_body
update checkpoint set key_seq = null, body = :body where thread_no = :thread_no and seq = :seq;

-- name: adopt_writes
-- Writes that landed before their checkpoint.
update write set place = :seq where thread_no = :thread_no and ns = :ns and place = :checkpoint_id;

-- name: get_writes
-- Of one task, by every run that wrote for it.
select ns, place, task_id, run_no, body from write
 where thread_no = :thread_no and ns = :ns and place = :place and task_id = :task_id;

-- name: set_write
insert or replace into write (thread_no, ns, place, task_id, run_no, body)
values (:thread_no, :ns, :place, :task_id, :run_no, :body);

-- name: drop_write
delete from write
 where thread_no = :thread_no and ns = :ns and place = :place and task_id = :task_id and run_no = :run_no;

-- name: drop_foreign_writes
-- Input that another run left at a checkpoint which it then never moved on from.
delete from write
 where thread_no = :thread_no and ns = :ns and place = :place and task_id = :task_id and run_no != :run_no;

-- name: drop_input
delete from write
 where thread_no = :thread_no and ns = '' and place = :place and run_no = :run_no and task_id in (:null_task, :input_task);

-- name: find_head
-- The newest by the store's own order; it is always a tip.
select c.seq, c.checkpoint_id from checkpoint c
 where c.thread_no = :thread_no
   and c.seq = (select max(h.seq) from head h where h.thread_no = :thread_no and h.ns = :ns);

-- name: find_seq
select max(seq) as seq from checkpoint where thread_no = :thread_no and checkpoint_id = :checkpoint_id;

-- name: newest_checkpoint
{checkpoint_record}
 where c.thread_no = :thread_no
   and c.seq = (select max(h.seq) from head h where h.thread_no = :thread_no and h.ns = :ns);

-- name: list_heads
{checkpoint_record}
 where c.thread_no = :thread_no
   and c.seq in (select max(h.seq) from head h where h.thread_no = :thread_no group by h.ns)
 order by c.seq desc;

-- name: one_checkpoint
{checkpoint_record}
 where c.thread_no = :thread_no and c.ns = :ns and c.checkpoint_id = :checkpoint_id;

-- name: list_checkpoints
-- Of all threads, the newest thread first.
{checkpoint_record}
 where (:owner is null or t.owner = :owner) and (:ns is null or c.ns = :ns)
   and (:checkpoint_id is null or c.checkpoint_id = :checkpoint_id)
   and (:below is null or (c.thread_no, c.seq) < (:below >> 32, :below & 0xffffffff))
 order by c.thread_no desc, c.seq desc limit :limit;

-- name: list_thread_checkpoints
{checkpoint_record}
 where c.thread_no = :thread_no and (:ns is null or c.ns = :ns)
   and (:checkpoint_id is null or c.checkpoint_id = :checkpoint_id)
   and c.seq < coalesce(:below & 0xffffffff, 0x100000000)
 order by c.seq desc limit :limit;

-- name: writes_of
-- Of several checkpoints of one thread at once. Cross join: one search per checkpoint, in that order.
select w.ns, w.place, w.task_id, w.run_no, w.body
  from json_each(:keys) j
       cross join write w on w.thread_no = :thread_no and w.ns = json_extract(j.value, '$[0]')
                         and w.place = json_extract(j.value, '$[1]');

-- name: ancestors
-- The checkpoint itself, then parent after parent; not by id or seq, which a fork would mislead.
with recursive chain (depth, seq, parent, key_seq, body) as (
    select 0, seq, parent, key_seq, body from checkpoint where thread_no = :thread_no and seq = :seq
    union all
    select chain.depth + 1, c.seq, c.parent, c.key_seq, c.body
      from chain cross join checkpoint c on c.thread_no = :thread_no and c.seq = chain.parent
     where chain.depth < :limit)
select chain.seq, chain.parent, chain.body, k.body as key_body
  from chain left join checkpoint k on k.thread_no = :thread_no and k.seq = chain.key_seq
 order by chain.depth;

-- name: skeletons
-- All that pruning needs to know of a thread's checkpoints, oldest first.
select c.seq, c.ns, c.checkpoint_id, c.parent, coalesce(r.run_id, c.run_ref) as run_id, c.key_seq, c.body,
       k.body as key_body
  from checkpoint c left join run r on r.run_no = c.run_no left join checkpoint k on k.thread_no = c.thread_no and k.seq = c.key_seq
 where c.thread_no = :thread_no order by c.seq;

-- name: drop_checkpoint
delete from checkpoint where thread_no = :thread_no and seq = :seq;

-- name: drop_checkpoint_writes
delete from write where thread_no = :thread_no and ns = :ns and place = :seq;

-- name: lose_parents
-- These go: from now on their children know them by id only.
update checkpoint set parent = (select p.checkpoint_id from checkpoint p
                                 where p.thread_no = :thread_no and p.seq = checkpoint.parent)
 where thread_no = :thread_no and parent in (select value from json_each(:seqs));

-- name: all_writes
select ns, place, task_id, run_no, body from write where thread_no = :thread_no;

-- name: specs_of
select spec from run where thread_no = :thread_no;

-- name: threads_of_run
-- A run of ours by its row, that of a saver used alone by what its metadata says.
select t.thread_no, t.owner, t.thread_id, t.graph, t.state, t.created_at, t.updated_at from thread t
 where (:owner is null or t.owner = :owner)
   and t.thread_no in (select thread_no from run where run_id = :run_id
                        union
                       select thread_no from checkpoint where run_ref = :run_id);

-- name: open_bases
-- Where a start-over of the thread's newest run would begin; kept while that run is unfinished.
select base from run
 where run_no = (select max(run_no) from run where thread_no = :thread_no and driver != 'edit')
   and status in ('queued', 'running', 'retrying', 'interrupted', 'failed', 'quarantined');
