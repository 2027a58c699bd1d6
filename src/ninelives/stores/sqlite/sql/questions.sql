-- part: interrupt_record
-- What an `Interrupt` is made of.
select i.interrupt_id, i.ask_no, t.owner, t.thread_id, i.ns, i.task_id, r.run_id, i.checkpoint_id, i.payload, i.kind,
       i.about, i.digest, i.deadline, i.outcome, i.state, i.asked_at
  from interrupt i join thread t using (thread_no) left join run r on r.run_no = i.run_no

-- name: pending_interrupts
{interrupt_record}
 where i.thread_no = :thread_no and i.state = 'pending' order by i.seq;

-- name: list_interrupts
{interrupt_record}
 where i.thread_no = :thread_no order by i.seq;

-- name: list_questions
-- Of all threads, those that wait, the oldest first.
{interrupt_record}
 where i.state = 'pending' and (:owner is null or t.owner = :owner) order by i.asked_at, i.thread_no, i.seq limit :limit;

-- name: questions_of
-- Every time that this was asked, the newest first.
{interrupt_record}
 where i.thread_no = :thread_no and i.interrupt_id = :interrupt_id order by i.ask_no desc;

-- name: add_interrupt
-- One row per question: the copy that a nested graph writes at its root finds this one pending.
insert into interrupt (thread_no, seq, interrupt_id, ask_no, ns, task_id, checkpoint_id, run_no, payload, kind, about,
                       digest, deadline, outcome, remind_at, state, asked_at)
select :thread_no, coalesce((select max(seq) from interrupt where thread_no = :thread_no), 0) + 1, :interrupt_id,
       coalesce((select max(ask_no) from interrupt i
                  where i.thread_no = :thread_no and i.interrupt_id = :interrupt_id), 0) + 1,
       :ns, :task_id, :checkpoint_id, :run_no, :payload, :kind, :about, :digest, now_s() + :deadline_s, :outcome,
       now_s() + :remind_s, 'pending', now_s()
 where not exists (select 1 from interrupt i where i.thread_no = :thread_no and i.interrupt_id = :interrupt_id
                                               and i.state = 'pending')
returning interrupt_id;

-- name: ask_anew
-- The same question once more, after what was answered did not do.
insert into interrupt (thread_no, seq, interrupt_id, ask_no, ns, task_id, checkpoint_id, run_no, payload, kind, about,
                       digest, deadline, outcome, remind_at, state, asked_at)
select thread_no, (select max(seq) from interrupt where thread_no = :thread_no) + 1, interrupt_id, ask_no + 1, ns,
       task_id, checkpoint_id, run_no, payload, kind, about, digest, now_s() + (deadline - asked_at), outcome,
       now_s() + (remind_at - asked_at), 'pending', now_s()
  from interrupt where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no;

-- name: set_interrupt_answered
update interrupt set state = 'answered'
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no;

-- name: withdraw_interrupts
update interrupt set state = :state where thread_no = :thread_no and state = 'pending';

-- name: withdraw_interrupts_after
-- A finished run leaves no question open; an edit of the state may have been made while one is.
update interrupt set state = 'withdrawn'
 where thread_no = :thread_no and state = 'pending'
   and (select driver from run where run_no = :run_no) != 'edit';

-- name: add_decision
insert into decision (thread_no, seq, interrupt_id, ask_no, actor, channel, value, digest, note, status, run_id, decided_at)
values (:thread_no, coalesce((select max(seq) from decision where thread_no = :thread_no), 0) + 1, :interrupt_id,
        :ask_no, :actor, :channel, :value, :digest, :note, 'accepted', :run_id, now_s());

-- name: list_decisions
select d.interrupt_id, d.ask_no, d.value, d.actor, d.channel, d.decided_at, d.run_id, d.note, d.digest, d.status
  from decision d left join run r on r.run_id = d.run_id
 where d.thread_no = :thread_no and (:all or d.status = 'accepted')
   and (:chain is null or coalesce(r.chain, r.run_id) = :chain)
 order by d.seq;

-- name: decided
-- How a question was answered, by whom and when.
select d.actor, d.channel, d.decided_at, d.status, d.value from decision d
 where d.thread_no = :thread_no and d.interrupt_id = :interrupt_id and d.ask_no = :ask_no order by d.seq;

-- name: has_written_at
-- Whether a task, or any, has written anything at a checkpoint.
select 1 as ok from write
 where thread_no = :thread_no and ns = :ns and place = :place and (:task_id is null or task_id = :task_id) limit 1;

-- name: answers_of_chain
-- The accepted ones, and which task has asked for each; but for questions that were asked anew since.
select d.interrupt_id, d.ask_no, d.run_id, i.ns, i.checkpoint_id, i.task_id
  from decision d join interrupt i using (thread_no, interrupt_id, ask_no) join run r on r.run_id = d.run_id
 where d.thread_no = :thread_no and d.status = 'accepted' and coalesce(r.chain, r.run_id) = :chain
   and not exists (select 1 from interrupt n where n.thread_no = d.thread_no and n.interrupt_id = d.interrupt_id
                                               and n.ask_no > d.ask_no)
 order by d.seq;

-- name: withdraw_decision
update decision set status = 'withdrawn'
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no and status = 'accepted';
