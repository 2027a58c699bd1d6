-- part: interrupt_record
-- What an `Interrupt` is made of.
select i.interrupt_id, i.ask_no, t.thread_id, i.ns, i.task_id, r.run_id, i.checkpoint_id, i.payload, i.state, i.asked_at
  from interrupt i join thread t using (thread_no) left join run r on r.run_no = i.run_no

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
