-- name: find_thread
select owner, thread_id, graph, state, created_at, updated_at, thread_no
  from thread where owner = :owner and thread_id = :thread_id;

-- name: recent_thread_ids
-- Candidates for "did you mean": the last thousand are enough, and bounded.
select thread_id from thread where owner = :owner and state = 'open' order by updated_at desc limit 1000;

-- name: list_threads
select owner, thread_id, graph, state, created_at, updated_at, thread_no,
       (select count(*) from checkpoint c where c.thread_no = t.thread_no) as checkpoints,
       (select coalesce(sum(length(frame)), 0) from item i where i.thread_no = t.thread_no)
     + (select coalesce(sum(length(body) + length(metadata)), 0) from checkpoint c where c.thread_no = t.thread_no)
       as bytes
  from thread t
 where (:owner is null or owner = :owner) and state != 'erased'
 order by updated_at desc, thread_no desc limit :limit offset :offset;

-- name: add_thread
insert into thread (owner, thread_id, graph, parent_thread, created_at, updated_at)
values (:owner, :thread_id, :graph, :parent, now_s(), now_s())
returning owner, thread_id, graph, state, created_at, updated_at, thread_no;

-- name: adopt_thread
-- A thread that a saver made on its own has no graph yet; the first named one takes it.
update thread set graph = :graph where thread_no = :thread_no and graph = '';

-- name: set_thread_state
update thread set state = :state, updated_at = now_s() where thread_no = :thread_no;

-- name: touch_thread
update thread set updated_at = now_s() where thread_no = :thread_no;

-- name: any_checkpoint
select 1 as ok from checkpoint where thread_no = :thread_no limit 1;

-- name: erase_checkpoint
delete from checkpoint where thread_no = :thread_no;

-- name: erase_head
delete from head where thread_no = :thread_no;

-- name: erase_write
delete from write where thread_no = :thread_no;

-- name: erase_item
delete from item where thread_no = :thread_no;

-- name: erase_interrupt
delete from interrupt where thread_no = :thread_no;

-- name: erase_decision
delete from decision where thread_no = :thread_no;

-- name: erase_event
-- All but the last, which says that the thread was erased: numbering goes on, so that a watcher misses nothing.
delete from event
 where thread_no = :thread_no and seq < (select max(seq) from event where thread_no = :thread_no);

-- name: erase_effect
-- Keys that are places in this thread end with it.
delete from effect where thread_no = :thread_no and key not like 'own:%';

-- name: forget_effect
-- A key of the user's own (an order id) outlives the thread, so that the act is not done again; its result does not.
update effect set result = null, state = 'unknown', why = 'its record was erased with its thread'
 where thread_no = :thread_no and key like 'own:%' and state != 'not_done';

-- name: erase_run
delete from run where thread_no = :thread_no and key is null;

-- name: forget_run
-- An idempotency key outlives its run: the same request, sent again, is still recognised.
update run set spec = :spec, cause = 'its thread was erased', status = 'cancelled', last_checkpoint = null
 where thread_no = :thread_no;

-- name: copy_item
insert into item (thread_no, digest, frame) select :target, digest, frame from item where thread_no = :source;

-- name: copy_checkpoint
insert into checkpoint (thread_no, ns, checkpoint_id, parent_id, run_ref, graph_fp, source, body, metadata, created_at)
select :target, ns, checkpoint_id, parent_id, run_ref, graph_fp, source, body, metadata, created_at
  from checkpoint where thread_no = :source order by seq;

-- name: copy_write
insert into write (thread_no, ns, checkpoint_id, task_id, idx, channel, task_path, node)
select :target, ns, checkpoint_id, task_id, idx, channel, task_path, node from write where thread_no = :source;

-- name: copy_head
insert into head (thread_no, ns, branch, checkpoint_id)
select :target, ns, branch, checkpoint_id from head where thread_no = :source;
