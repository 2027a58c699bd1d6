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
