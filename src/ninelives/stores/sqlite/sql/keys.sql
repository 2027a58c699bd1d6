-- name: sealed_pack
-- Here and below: values that may be under an older key, a page at a time, in the order of the primary key. Which key a
-- value is under is not asked here: what lies in a column is the codec's to know.
select pack_no, pack_no >> 32 as thread_no, frame from pack where pack_no > :pack_no order by pack_no limit :limit;

-- name: reseal_pack
update pack set frame = :frame where pack_no = :pack_no;

-- name: sealed_checkpoint
select thread_no, seq, body from checkpoint
 where (thread_no, seq) > (:thread_no, :seq) order by thread_no, seq limit :limit;

-- name: reseal_checkpoint
update checkpoint set body = :body where thread_no = :thread_no and seq = :seq;

-- name: sealed_write
select thread_no, ns, place, task_id, run_no, body from write
 where (thread_no, ns, place, task_id, run_no) > (:thread_no, :ns, :place, :task_id, :run_no)
 order by thread_no, ns, place, task_id, run_no limit :limit;

-- name: reseal_write
update write set body = :body
 where thread_no = :thread_no and ns = :ns and place = :place and task_id = :task_id and run_no = :run_no;

-- name: sealed_run
select run_no, thread_no, spec, cause from run where run_no > :run_no order by run_no limit :limit;

-- name: reseal_run
update run set spec = :spec, cause = :cause where run_no = :run_no;

-- name: sealed_effect
select effect_no, thread_no, result, why from effect where effect_no > :effect_no order by effect_no limit :limit;

-- name: reseal_effect
update effect set result = :result, why = :why where effect_no = :effect_no;

-- name: sealed_interrupt
select thread_no, interrupt_id, ask_no, payload, about, outcome from interrupt
 where (thread_no, interrupt_id, ask_no) > (:thread_no, :interrupt_id, :ask_no)
 order by thread_no, interrupt_id, ask_no limit :limit;

-- name: reseal_interrupt
update interrupt set payload = :payload, about = :about, outcome = :outcome
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no;

-- name: sealed_queued_input
select queued_no, thread_no, spec from queued_input where queued_no > :queued_no order by queued_no limit :limit;

-- name: reseal_queued_input
update queued_input set spec = :spec where queued_no = :queued_no;

-- name: sealed_decision
select thread_no, interrupt_id, ask_no, actor, value, note from decision
 where (thread_no, interrupt_id, ask_no, actor) > (:thread_no, :interrupt_id, :ask_no, :actor)
 order by thread_no, interrupt_id, ask_no, actor limit :limit;

-- name: reseal_decision
update decision set value = :value, note = :note
 where thread_no = :thread_no and interrupt_id = :interrupt_id and ask_no = :ask_no and actor = :actor;

-- name: sealed_journal
select thread_no, key, body from journal where (thread_no, key) > (:thread_no, :key) order by thread_no, key limit :limit;

-- name: reseal_journal
update journal set body = :body where thread_no = :thread_no and key = :key;

-- name: sealed_graph_version
select fp, description from graph_version where fp > :fp order by fp limit :limit;

-- name: reseal_graph_version
update graph_version set description = :description where fp = :fp;

-- name: sealed_schedule
select schedule_id, spec from schedule where schedule_id > :schedule_id order by schedule_id limit :limit;

-- name: reseal_schedule
update schedule set spec = :spec where schedule_id = :schedule_id;

-- name: get_secret
select value from meta where name = 'secret';

-- name: set_secret
update meta set value = :value where name = 'secret';

-- name: thread_by_no
select owner, thread_id from thread where thread_no = :thread_no;
