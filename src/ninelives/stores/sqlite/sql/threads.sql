-- part: weighed_thread
-- A thread with what it holds: checkpoints, and bytes of content as they are stored.
select owner, thread_id, graph, state, created_at, updated_at, thread_no,
       (select count(*) from checkpoint c where c.thread_no = t.thread_no) as checkpoints,
       (select coalesce(sum(length(frame)), 0) from pack p
         where p.pack_no between t.thread_no << 32 and t.thread_no << 32 | 0xffffffff)
     + (select coalesce(sum(length(body)), 0) from checkpoint c where c.thread_no = t.thread_no)
     + (select coalesce(sum(length(body)), 0) from write w where w.thread_no = t.thread_no)
     + (select coalesce(sum(length(spec) + coalesce(length(cause), 0)), 0) from run r where r.thread_no = t.thread_no)
     + (select coalesce(sum(coalesce(length(result), 0) + coalesce(length(why), 0)), 0) from effect e
         where e.thread_no = t.thread_no)
     + (select coalesce(sum(length(payload) + length(about) + coalesce(length(outcome), 0)), 0) from interrupt i
         where i.thread_no = t.thread_no)
     + (select coalesce(sum(length(value) + coalesce(length(note), 0)), 0) from decision d where d.thread_no = t.thread_no)
     + (select coalesce(sum(length(body)), 0) from journal j where j.thread_no = t.thread_no)
       as bytes
  from thread t

-- name: find_thread
select owner, thread_id, graph, state, created_at, updated_at, thread_no
  from thread where owner = :owner and thread_id = :thread_id;

-- name: recent_thread_ids
-- Candidates for "did you mean": the last thousand are enough, and bounded.
select thread_id from thread where owner = :owner and state = 'open' order by updated_at desc limit 1000;

-- name: list_threads
{weighed_thread}
 where (:owner is null or owner = :owner) and state != 'erased'
 order by updated_at desc, thread_no desc limit :limit offset :offset;

-- name: weigh_thread
{weighed_thread}
 where owner = :owner and thread_id = :thread_id;

-- name: add_thread
insert into thread (owner, thread_id, graph, parent_thread, created_at, updated_at)
values (:owner, :thread_id, :graph, :parent, now_s(), now_s())
returning owner, thread_id, graph, state, created_at, updated_at, thread_no;

-- name: adopt_thread
-- A thread that a saver made on its own has no graph yet; the first named one takes it.
update thread set graph = :graph where thread_no = :thread_no and graph = '';

-- name: set_thread_state
update thread set state = :state, updated_at = now_s() where thread_no = :thread_no;

-- name: any_content
select 1 as ok from checkpoint where thread_no = :thread_no
 union all
select 1 from pack where pack_no between :thread_no << 32 and :thread_no << 32 | 0xffffffff
 limit 1;

-- name: erase_checkpoint
delete from checkpoint where thread_no = :thread_no;

-- name: erase_head
delete from head where thread_no = :thread_no;

-- name: erase_write
delete from write where thread_no = :thread_no;

-- name: erase_pack
delete from pack where pack_no between :thread_no << 32 and :thread_no << 32 | 0xffffffff;

-- name: erase_interrupt
delete from interrupt where thread_no = :thread_no;

-- name: erase_journal
delete from journal where thread_no = :thread_no;

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

-- name: copy_pack
insert into pack (pack_no, items, bytes, frame)
select (:target << 32) | (pack_no & 0xffffffff), items, bytes, frame from pack
 where pack_no between :source << 32 and :source << 32 | 0xffffffff;

-- name: copy_checkpoint
-- Behind the numbers that the target has given already.
insert into checkpoint (thread_no, seq, ns, checkpoint_id, parent, run_ref, key_seq, body, created_at)
select :target, seq + :shift, ns, checkpoint_id,
       case typeof(parent) when 'integer' then parent + :shift else parent end,
       coalesce((select run_id from run r where r.run_no = c.run_no), run_ref), key_seq + :shift, body, created_at
  from checkpoint c where thread_no = :source order by seq;

-- name: copy_write
insert into write (thread_no, ns, place, task_id, run_no, body)
select :target, ns, case typeof(place) when 'integer' then place + :shift else place end, task_id, run_no, body
  from write where thread_no = :source;

-- name: copy_head
insert into head (thread_no, ns, seq) select :target, ns, seq + :shift from head where thread_no = :source;

-- name: copy_counters
update thread set item_next = max(thread.item_next, o.item_next) + 1, event_next = o.event_next + :shift,
                  items_by = null
  from (select item_next, event_next from thread where thread_no = :source) o
 where thread.thread_no = :target;

-- name: forget_items
-- Numbers go on; what processes remember of the thread is no longer true.
update thread set items_by = null, item_next = item_next + 1 where thread_no = :thread_no;
