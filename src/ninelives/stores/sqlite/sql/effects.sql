-- part: interrupt_record
-- What an `Interrupt` is made of.
select i.interrupt_id, i.ask_no, t.thread_id, i.ns, i.task_id, r.run_id, i.checkpoint_id, i.payload, i.state, i.asked_at
  from interrupt i join thread t using (thread_no) left join run r on r.run_no = i.run_no

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

-- name: pending_interrupts
{interrupt_record}
 where i.thread_no = :thread_no and i.state = 'pending' order by i.seq;

-- name: list_interrupts
{interrupt_record}
 where i.thread_no = :thread_no order by i.seq;

-- name: add_interrupt
-- One row per question: the copy that a nested graph writes at its root finds this one pending.
insert into interrupt (thread_no, seq, interrupt_id, ask_no, ns, task_id, checkpoint_id, run_no, payload, state, asked_at)
select :thread_no, coalesce((select max(seq) from interrupt where thread_no = :thread_no), 0) + 1, :interrupt_id,
       coalesce((select max(ask_no) from interrupt i
                  where i.thread_no = :thread_no and i.interrupt_id = :interrupt_id), 0) + 1,
       :ns, :task_id, :checkpoint_id, :run_no, :payload, 'pending', now_s()
 where not exists (select 1 from interrupt i where i.thread_no = :thread_no and i.interrupt_id = :interrupt_id
                                               and i.state = 'pending')
returning interrupt_id;

-- name: set_interrupt_answered
update interrupt set state = 'answered'
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no;

-- name: withdraw_interrupts
update interrupt set state = 'withdrawn' where thread_no = :thread_no and state = 'pending';

-- name: withdraw_interrupts_after
-- A finished run leaves no question open; an edit of the state may have been made while one is.
update interrupt set state = 'withdrawn'
 where thread_no = :thread_no and state = 'pending'
   and (select driver from run where run_no = :run_no) != 'edit';

-- name: add_decision
insert into decision (thread_no, seq, interrupt_id, ask_no, actor, channel, value, status, run_id, decided_at)
values (:thread_no, coalesce((select max(seq) from decision where thread_no = :thread_no), 0) + 1, :interrupt_id,
        :ask_no, :actor, :channel, :value, 'accepted', :run_id, now_s());

-- name: list_decisions
select d.interrupt_id, d.ask_no, d.value, d.actor, d.channel, d.decided_at, d.run_id
  from decision d left join run r on r.run_id = d.run_id
 where d.thread_no = :thread_no and d.status = 'accepted' and (:chain is null or coalesce(r.chain, r.run_id) = :chain)
 order by d.seq;

-- name: add_event
-- Numbered within the thread, by the store; the attempt tells a watcher which events a takeover has superseded.
insert into event (thread_no, seq, run_no, attempt, kind, ref, at)
values (:thread_no, (select event_next from thread where thread_no = :thread_no), :run_no,
        (select attempt from run where run_no = :run_no), :kind, :ref, now_s());

-- name: list_events
-- A checkpoint is an event of its own.
select e.seq, e.kind, r.run_id, e.attempt, e.ref, e.at
  from event e left join run r on r.run_no = e.run_no where e.thread_no = :thread_no and e.seq > :after
 union all
select c.seq, 0, r.run_id, c.attempt, c.checkpoint_id, c.created_at
  from checkpoint c left join run r on r.run_no = c.run_no where c.thread_no = :thread_no and c.seq > :after
 order by 1 limit :limit;

-- name: note_graph
insert into graph_version (fp, graph, description, seen_at) values (:fp, :graph, :description, now_s())
on conflict (fp) do update set seen_at = excluded.seen_at;

-- name: find_graph
select description from graph_version where fp = :fp;
