-- part: run_record
-- What a `Run` is made of.
select r.run_id, t.owner, t.thread_id, r.graph, r.status, r.driver, r.spec,
       coalesce(r.chain, r.run_id) as chain, r.continues, r.replaces, r.base,
       r.key, r.request, r.attempt, r.epoch, r.worker as worker_id,
       exists (select 1 from worker w where w.worker_id = r.worker and w.expires_at > now_s()) as worker_alive,
       r.cause, r.last_checkpoint, r.steps, r.model_calls, r.tokens_in, r.tokens_out, r.tool_calls, r.active_s,
       r.created_at, r.updated_at, r.run_no as seq, r.run_no, r.thread_no
  from run r join thread t using (thread_no)

-- name: next_epoch
update meta set value = value + 1 where name = 'epoch' returning value;

-- name: fence
select 1 as ok from run where run_no = :run_no and epoch = :epoch and status = 'running';

-- name: holds
-- Stricter than the fence: a worker whose lease has ended starts nothing new, though nobody has taken over yet.
select 1 as ok from run r join worker w on w.worker_id = r.worker
 where r.run_no = :run_no and r.epoch = :epoch and r.status = 'running' and w.expires_at > now_s();

-- name: find_held_run
select r.run_id, r.worker from run r join worker w on w.worker_id = r.worker
 where r.thread_no = :thread_no and r.status = 'running' and w.expires_at > now_s();

-- name: release_dead_run
-- A run whose worker is gone gives back the thread's one running slot. From here on the fence refuses its old holder.
-- An edit of the state is not gone on with: nobody waits for it.
update run set status = case driver when 'edit' then 'cancelled' else 'queued' end, cause = 'its process died',
               updated_at = now_s()
 where thread_no = :thread_no and status = 'running'
   and not exists (select 1 from worker w where w.worker_id = run.worker and w.expires_at > now_s())
returning run_no;

-- name: branch_point
-- The checkpoint that a run begins at, or, where that was made by editing the state, the one that was edited; and whether
-- the thread has gone on from there before.
with recursive up (seq, parent, edited) as (
    select c.seq, c.parent, coalesce(r.driver = 'edit', 0)
      from checkpoint c left join run r on r.run_no = c.run_no
     where c.thread_no = :thread_no and c.checkpoint_id = :base and c.ns = ''
    union all
    select c.seq, c.parent, coalesce(r.driver = 'edit', 0)
      from up join checkpoint c on c.thread_no = :thread_no and c.seq = up.parent left join run r on r.run_no = c.run_no
     where up.edited)
select seq, exists (select 1 from checkpoint c left join run r on r.run_no = c.run_no
                     where c.thread_no = :thread_no and c.seq > up.seq and c.ns = ''
                       and coalesce(r.driver, '') != 'edit') as passed
  from up order by seq limit 1;

-- name: add_run
insert into run (run_id, thread_no, graph, key_scope, key, request, spec, status, driver, chain, continues, replaces,
                 forks, base, attempt, worker, epoch, since, created_at, updated_at)
values (:run_id, :thread_no, :graph, :key_scope, :key, :request, :spec, iif(:worker is null, 'queued', 'running'),
        :driver, :chain, :continues, :replaces, :forks, :base, iif(:worker is null, 0, 1), :worker, :epoch, (select event_next from thread where thread_no = :thread_no), now_s(), now_s())
returning run_no;

-- name: claim_run
update run set status = 'running', worker = :worker, epoch = :epoch, attempt = attempt + 1, cause = null,
               updated_at = now_s()
 where run_id = :run_id
returning run_no;

-- name: set_run_waiting
-- A question was answered on it; the run that continues it has the thread now.
update run set status = 'interrupted', updated_at = now_s() where run_no = :run_no;

-- name: end_run
update run set status = :status, cause = :cause, updated_at = now_s(),
               last_checkpoint = :last_checkpoint
 where run_no = :run_no;

-- name: add_usage
update run set steps = steps + :steps, model_calls = model_calls + :model_calls, tokens_in = tokens_in + :tokens_in,
               tokens_out = tokens_out + :tokens_out, tool_calls = tool_calls + :tool_calls,
               active_s = active_s + :active_s, updated_at = now_s()
 where run_no = :run_no;

-- name: add_model_usage
insert into usage (run_no, model, model_calls, tokens_in, tokens_out)
values (:run_no, :model, :model_calls, :tokens_in, :tokens_out)
on conflict (run_no, model) do update set model_calls = model_calls + excluded.model_calls,
    tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out;

-- name: chain_models
select u.model, sum(u.model_calls) as model_calls, sum(u.tokens_in) as tokens_in, sum(u.tokens_out) as tokens_out
  from run r join thread t using (thread_no) join usage u using (run_no)
 where (r.chain = :chain or (r.run_id = :chain and r.chain is null)) and (:owner is null or t.owner = :owner) group by u.model order by u.model;

-- name: chain_usage
select sum(r.steps) as steps, sum(r.model_calls) as model_calls, sum(r.tokens_in) as tokens_in,
       sum(r.tokens_out) as tokens_out, sum(r.tool_calls) as tool_calls, sum(r.active_s) as active_s
  from run r join thread t using (thread_no)
 where (r.chain = :chain or (r.run_id = :chain and r.chain is null)) and (:owner is null or t.owner = :owner);

-- name: get_run
{run_record}
 where r.run_id = :run_id and (:owner is null or t.owner = :owner);

-- name: find_run_by_key
{run_record}
 where r.key_scope = :key_scope and r.key = :key;

-- name: find_newest_run
{run_record}
 where r.thread_no = :thread_no and r.driver != 'edit' order by r.run_no desc limit 1;

-- name: status_before
select status from run where thread_no = :thread_no and run_no < :run_no and driver != 'edit' order by run_no desc limit 1;

-- name: list_runs
{run_record}
 where (:owner is null or t.owner = :owner) and (:thread_id is null or t.thread_id = :thread_id)
   and (:status is null or r.status = :status)
 order by r.run_no desc limit :limit;

-- name: list_thread_runs
-- Apart from the above, so that one thread's are found by its index.
{run_record}
 where r.thread_no = :thread_no and (:status is null or r.status = :status)
 order by r.run_no desc limit :limit;

-- name: has_leave
select 1 as ok from event
 where thread_no = :thread_no and run_no = :run_no and kind = :kind and ref = :checkpoint_id;

-- name: has_begun
-- Read from what the run itself has written: the head may since have been edited by hand.
select exists (select 1 from checkpoint c
                where c.thread_no = :thread_no and c.seq > r.since and c.run_no = :run_no and c.ns = '') as checkpoint,
       exists (select 1 from write w
                where w.thread_no = :thread_no and w.ns = '' and w.run_no = :run_no and w.task_id = :null_task
                  and w.place = (select max(h.seq) from head h where h.thread_no = :thread_no and h.ns = '')) as command
  from run r where r.run_no = :run_no;
