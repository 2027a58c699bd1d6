-- name: keep_call
-- The first that is recorded counts: whoever runs the step again is given that.
insert into journal (thread_no, key, run_no, place, kind, body)
values (:thread_no, :key, :run_no,
        coalesce((select max(h.seq) from head h where h.thread_no = :thread_no and h.ns = ''), 0), :kind, :body)
on conflict (thread_no, key) do nothing;

-- name: drop_passed_calls
-- Of steps that are recorded by now. Of this run only: what an earlier one has left open may be asked for yet.
delete from journal where thread_no = :thread_no and run_no = :run_no
   and place < (select max(h.seq) from head h where h.thread_no = :thread_no and h.ns = '');

-- name: find_call
select body from journal where thread_no = :thread_no and key = :key;

-- name: list_calls
select key, body from journal where thread_no = :thread_no and kind = 'call' order by key;

-- name: drop_journal
delete from journal where thread_no = :thread_no;
