-- part: effect_record
-- What an `Effect` is made of.
select e.key, e.name, e.owner, t.thread_id, r.run_id, e.epoch, e.state, e.result, e.attempt, e.args_digest, e.call_id,
       e.by, e.why, e.created_at, e.settled_at, e.deadline as deadline_at, e.effect_no, e.node, e.task_id,
       (select o.key from effect o where o.effect_no = e.inherits) as inherits,
       coalesce((select o.key from effect o where o.effect_no = e.inherits and o.state != 'done'), e.key) as sent_as,
       coalesce(e.deadline + 5.0 < now_s(), 0) as overdue,
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

-- name: find_inheritable
-- The chain of this run began anew, from an older checkpoint: the first act that another one has begun since then at the
-- same place and with the same arguments. None that was taken over here before, or that is begun again elsewhere.
with mine as (select coalesce(r.chain, r.run_id) as chain from run r where r.run_no = :run_no),
     began as (select r.forks from run r, mine where r.run_id = mine.chain)
select e.effect_no, e.state
  from effect e, began join run r on r.run_no = e.run_no
 where e.thread_no = :thread_no and e.lineage = :lineage and e.attempt > 0 and e.state != 'not_done'
   and e.seq > began.forks and coalesce(r.chain, r.run_id) != (select chain from mine)
   and not exists (select 1 from effect i join run q on q.run_no = i.run_no
                    where i.thread_no = :thread_no and i.lineage = :lineage and i.inherits = e.effect_no
                      and (i.attempt > 0 or coalesce(q.chain, q.run_id) = (select chain from mine)))
 order by e.effect_no limit 1;

-- name: add_effect
insert into effect (owner, key, thread_no, run_no, checkpoint_id, ns, node, task_id, call_id, name, ordinal,
                    args_digest, lineage, attempt, epoch, worker, state, created_at, deadline, seq)
values (:owner, :key, :thread_no, :run_no, :checkpoint_id, :ns, :node, :task_id, :call_id, :name, :ordinal,
        :args_digest, :lineage, 1, :epoch, :worker, 'intent', now_s(), now_s() + :timeout_s,
        (select event_next from thread where thread_no = :thread_no));

-- name: inherit_effect
-- The act was begun on another branch; it counts here as it does there. Here nobody has attempted it.
insert into effect (owner, key, thread_no, run_no, checkpoint_id, ns, node, task_id, call_id, name, ordinal,
                    args_digest, lineage, attempt, epoch, worker, state, result, by, why, created_at, settled_at, deadline,
                    seq, inherits)
select :owner, :key, :thread_no, :run_no, :checkpoint_id, :ns, :node, :task_id, :call_id, :name, :ordinal,
       :args_digest, :lineage, 0, o.epoch, o.worker, :state, o.result, o.by, :why, now_s(), o.settled_at, o.deadline,
       (select event_next from thread where thread_no = :thread_no), o.effect_no
  from effect o where o.effect_no = :original;

-- name: reopen_effect
-- It is known not to have happened: the next attempt goes under the same key.
update effect set state = 'intent', attempt = attempt + 1, thread_no = :thread_no, run_no = :run_no, epoch = :epoch,
                  worker = :worker, result = null, by = null, why = null, settled_at = null,
                  deadline = now_s() + :timeout_s
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

-- name: finish_effect
-- By the one who performed it; unless somebody has settled it, or is at it anew, since its time was over.
update effect set state = :state, result = :result, by = :by, why = :why, settled_at = now_s()
 where effect_no = :effect_no and attempt = :attempt and epoch = :epoch and state in ('intent', 'unknown');

-- name: settle_branches
-- What became of an act is known on every branch that has taken it over, unless it was known to be done before.
with this as (select thread_no, lineage, coalesce(inherits, effect_no) as root from effect where effect_no = :effect_no)
update effect set state = :state, result = :result, by = :by, why = :why, settled_at = now_s()
 where (thread_no, lineage) in (select thread_no, lineage from this) and state = 'unknown' and effect_no != :effect_no
   and coalesce(inherits, effect_no) = (select root from this)
   and exists (select 1 from effect o, this where o.effect_no = this.root and o.state != 'done');
