-- name: add_worker
-- A worker id is used once: a second insert adds nothing.
insert into worker (worker_id, host, pid, started_at, expires_at)
values (:worker_id, :host, :pid, now_s(), now_s() + :ttl_s)
on conflict (worker_id) do nothing
returning expires_at;

-- name: renew_worker
-- A lease that has ended is not revived, even if nobody has noticed yet.
update worker set expires_at = now_s() + :ttl_s
 where worker_id = :worker_id and expires_at > now_s()
returning expires_at;

-- name: drop_worker
delete from worker where worker_id = :worker_id returning worker_id;

-- name: list_workers
select worker_id, host, pid, started_at, expires_at from worker order by started_at, worker_id;

-- name: find_live_worker
select 1 as ok from worker where worker_id = :worker_id and expires_at > now_s();
