-- part: effect_record
-- What an `Effect` is made of.
select e.key, e.name, e.owner, t.thread_id, r.run_id, e.epoch, e.state, e.result, e.attempt, e.args_digest, e.call_id,
       e.by, e.why, e.created_at, e.settled_at, e.effect_no,
       exists (select 1 from worker w where w.worker_id = e.worker) as holder_alive,
       exists (select 1 from run q join worker w on w.worker_id = q.worker
                where q.run_no = e.run_no and q.epoch = e.epoch and q.status = 'running' and w.expires_at > now_s())
       as claim_stands
  from effect e join thread t using (thread_no) left join run r on r.run_no = e.run_no

-- name: find_effect
{effect_record}
 where e.owner = :owner and e.key = :key;

-- name: list_effects
{effect_record}
 where (:owner is null or e.owner = :owner) and (:thread_id is null or t.thread_id = :thread_id)
   and (:state is null or e.state = :state)
 order by e.effect_no;

-- name: list_thread_effects
-- Apart from the above, so that one thread's are found by its index.
{effect_record}
 where e.thread_no = :thread_no and (:state is null or e.state = :state)
 order by e.effect_no;

-- name: add_effect
insert into effect (owner, key, thread_no, run_no, checkpoint_id, ns, node, task_id, call_id, name, ordinal,
                    args_digest, lineage, attempt, epoch, worker, state, created_at)
values (:owner, :key, :thread_no, :run_no, :checkpoint_id, :ns, :node, :task_id, :call_id, :name, :ordinal,
        :args_digest, :lineage, 1, :epoch, :worker, 'intent', now_s());

-- name: reopen_effect
-- It is known not to have happened: the next attempt goes under the same key.
update effect set state = 'intent', attempt = attempt + 1, thread_no = :thread_no, run_no = :run_no, epoch = :epoch,
                  worker = :worker, result = null, by = null, why = null, settled_at = null
 where effect_no = :effect_no;

-- name: set_effect_unknown
update effect set state = 'unknown', why = 'its process ended between asking and answer' where effect_no = :effect_no;

-- name: leave_effects_unknown
-- A closed run performs nothing more: what it was cut off in stays unknown until somebody settles it.
update effect set state = 'unknown', why = 'its run was closed between asking and answer'
 where thread_no = :thread_no and state = 'intent'
   and not exists (select 1 from run q join worker w on w.worker_id = q.worker
                    where q.run_no = effect.run_no and q.epoch = effect.epoch and q.status = 'running'
                      and w.expires_at > now_s());

-- name: settle_effect
update effect set state = :state, result = :result, by = :by, why = :why, settled_at = now_s()
 where effect_no = :effect_no;
