-- part: due_record
-- What is needed of a question whose time may be over: nothing of what it shows.
select i.interrupt_id, i.ask_no, t.owner, t.thread_id, i.ns, i.task_id, r.run_id, i.checkpoint_id, i.kind, i.about,
       i.digest, i.deadline, i.outcome, i.state, i.asked_at

-- name: due_questions
-- Whose time is over, the longest overdue first; those of a thread that is being advanced wait for it.
{due_record}
  from interrupt i indexed by interrupt_due join thread t using (thread_no) left join run r on r.run_no = i.run_no
 where i.state = 'pending' and i.deadline <= now_s() and (:owner is null or t.owner = :owner)
   and not exists (select 1 from run h join worker w on w.worker_id = h.worker
                    where h.thread_no = i.thread_no and h.status = 'running' and w.expires_at > now_s())
 order by i.deadline limit :limit offset :skip;

-- name: due_questions_of
-- Apart from the above, so that one thread's are found by its key.
{due_record}
  from interrupt i join thread t using (thread_no) left join run r on r.run_no = i.run_no
 where i.thread_no = :thread_no and i.state = 'pending' and i.deadline <= now_s()
 order by i.deadline limit :limit offset :skip;

-- name: any_due
-- Whether there is anything to do, asked often.
select exists (select 1 from interrupt indexed by interrupt_due where state = 'pending' and deadline <= now_s())
    or exists (select 1 from interrupt indexed by interrupt_remind where state = 'pending' and remind_at <= now_s())
    as due;

-- name: due_question
-- One question, if its time is over and nobody has decided.
select interrupt_id, ask_no, ns, task_id, digest, outcome from interrupt
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no
   and state = 'pending' and deadline <= now_s();

-- name: due_reminders
select i.thread_no, i.interrupt_id, i.ask_no, i.run_no, t.owner, t.thread_id, r.run_id
  from interrupt i indexed by interrupt_remind
  join thread t using (thread_no) left join run r on r.run_no = i.run_no
 where i.state = 'pending' and i.remind_at <= now_s() and (:owner is null or t.owner = :owner)
 order by i.remind_at limit :limit;

-- name: set_reminded
update interrupt set remind_at = null
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no;

-- name: escalate_question
update interrupt set outcome = :outcome, deadline = now_s() + :after_s
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no;

-- name: withdraw_question
update interrupt set state = 'withdrawn'
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no;

-- name: add_shadow
-- What would have been asked, once for each place.
insert into interrupt (thread_no, seq, interrupt_id, ask_no, ns, task_id, checkpoint_id, run_no, payload, kind, about,
                       digest, state, asked_at)
select :thread_no, coalesce((select max(seq) from interrupt where thread_no = :thread_no), 0) + 1, :interrupt_id, 1, :ns,
       :task_id, :checkpoint_id, :run_no, :payload, :kind, :about, :digest, 'shadow', now_s()
 where not exists (select 1 from interrupt i where i.thread_no = :thread_no and i.interrupt_id = :interrupt_id)
returning interrupt_id;
