-- part: queued_input
-- What a `QueuedInput` is made of.
select q.queued_no, q.run_id, t.owner, t.thread_id, q.graph, q.key, q.request, q.spec, q.queued_at
  from queued_input q join thread t using (thread_no)

-- name: add_queued_input
insert into queued_input (thread_no, run_id, graph, key_scope, key, request, spec, queued_at)
values (:thread_no, :run_id, :graph, :key_scope, :key, :request, :spec, now_s());

-- name: find_queued_input
-- The next of a thread.
{queued_input}
 where q.thread_no = :thread_no order by q.queued_no limit 1;

-- name: find_queued_by_key
{queued_input}
 where q.key_scope = :key_scope and q.key = :key;

-- name: list_queued_inputs
{queued_input}
 where q.thread_no = :thread_no order by q.queued_no;

-- name: list_all_queued_inputs
{queued_input}
 where :owner is null or t.owner = :owner order by q.queued_no limit :limit;

-- name: drop_queued_input
delete from queued_input where queued_no = :queued_no;

-- name: erase_queued_input
delete from queued_input where thread_no = :thread_no;
