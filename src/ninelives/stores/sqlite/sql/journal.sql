-- name: keep_call
-- The first that is recorded counts: whoever runs the step again is given that.
insert into journal (thread_no, key, run_no, kind, body) values (:thread_no, :key, :run_no, :kind, :body)
on conflict (thread_no, key) do nothing;

-- name: find_call
select body from journal where thread_no = :thread_no and key = :key;

-- name: list_calls
select key, body from journal where thread_no = :thread_no and kind = 'call' order by key;

-- name: drop_journal
delete from journal where thread_no = :thread_no;
