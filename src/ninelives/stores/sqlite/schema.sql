-- The schema that all migrations together make. Printed by `database.schema`, held to it by a test; do not edit.

CREATE TRIGGER event_number after insert on event begin
    update thread set event_next = new.seq + 1 where thread_no = new.thread_no;
end;
CREATE TABLE checkpoint (
    thread_no integer not null references thread,
    seq integer not null,                   -- the order of checkpoints, and the event that each is; no clock has a say
    ns text not null,
    checkpoint_id any not null,
    parent any,                             -- its seq; the id, where it is not in the store
    run_no integer,
    attempt integer,
    run_ref any,                            -- metadata.run_id where there is no run: a saver used alone, a copy
    key_seq integer,                        -- the checkpoint that its body is the difference from
    body blob not null,                     -- versions, metadata and, per channel, which items it is made of
    created_at real not null,
    primary key (thread_no, seq)
) strict, without rowid;
CREATE TABLE decision (
    thread_no integer not null,
    seq integer not null,                   -- the order in which the thread's answers were accepted
    interrupt_id text not null,
    ask_no integer not null,
    actor text not null,
    channel text not null,
    value blob not null,
    digest blob not null,                   -- of what was shown to who answered
    note any,                               -- why, in words; sealed like cause
    status text not null check (status in ('accepted', 'withdrawn')),
    run_id any not null,                    -- the run that it lets go on
    decided_at real not null,
    primary key (thread_no, interrupt_id, ask_no, actor)
) strict, without rowid;
CREATE TABLE effect (
    effect_no integer primary key,
    owner text not null,
    key text not null,
    thread_no integer not null,
    run_no integer,
    checkpoint_id text not null,
    ns text not null,
    node text not null,
    task_id text not null,
    call_id text,                           -- tool_call_id
    name text not null,
    ordinal integer not null,
    args_digest blob not null,
    lineage text not null,
    attempt integer not null,
    epoch integer not null,
    worker text not null,
    state text not null check (state in ('intent', 'done', 'not_done', 'unknown')),
    result blob,
    by text,
    why any,                                -- as cause
    created_at real not null,
    settled_at real,
    deadline real,                          -- by then the call itself has ended, whatever became of it
    seq integer not null,                   -- the event of its first intent
    inherits integer,                       -- effect_no of the act on another branch whose outcome it took over
    unique (owner, key)
) strict;
CREATE TABLE event (
    thread_no integer not null,
    seq integer not null,
    run_no integer,
    attempt integer,
    kind integer not null,                  -- its place in `EVENT_KINDS`
    ref any,
    at real not null,
    primary key (thread_no, seq)
) strict, without rowid;
CREATE TABLE graph_version (
    fp text primary key,
    graph text not null,
    description blob not null,
    seen_at real not null
) strict, without rowid;
CREATE TABLE head (
    thread_no integer not null,
    ns text not null,
    seq integer not null,
    primary key (thread_no, ns, seq)
) strict, without rowid;
CREATE TABLE interrupt (
    thread_no integer not null,
    seq integer not null,                   -- the order in which the thread's questions were asked
    interrupt_id text not null,
    ask_no integer not null,
    ns text not null,
    task_id text not null,
    checkpoint_id text not null,
    run_no integer,
    payload blob not null,
    kind text not null check (kind in ('free', 'batch', 'call')),
    about blob not null,                    -- the tool calls that it asks about, and what an answer must look like
    digest blob not null,                   -- of what was shown
    deadline real,
    outcome any,                            -- what becomes of it then, as JSON; sealed like cause
    remind_at real,
    state text not null check (state in ('pending', 'answered', 'withdrawn', 'expired', 'superseded', 'shadow')),
    asked_at real not null,
    primary key (thread_no, interrupt_id, ask_no)
) strict, without rowid;
CREATE TABLE journal (
    thread_no integer not null,
    key text not null,
    run_no integer not null,
    place integer not null,                 -- seq of the root graph's head, whose step it is part of
    kind text not null check (kind in ('call', 'model')),
    body blob not null,                     -- what a finished tool call or model call gave, until its step is recorded
    primary key (thread_no, key)
) strict, without rowid;
CREATE TABLE meta (
    name text primary key,
    value any not null
) strict, without rowid;
CREATE TABLE pack (
    pack_no integer primary key,            -- thread_no * 2^32 + the number of its first item
    items integer not null,                 -- how many; their numbers follow one another
    bytes integer not null,                 -- of them all, neither compressed nor encrypted
    frame blob not null
) strict;
CREATE TABLE queued_input (
    queued_no integer primary key autoincrement,   -- the order in which they were accepted
    thread_no integer not null references thread,
    run_id text not null unique,            -- of the run that it becomes
    graph text not null,
    key_scope text,                         -- as that of a run
    key text,
    request blob not null,                  -- as that of a run
    spec blob not null,
    queued_at real not null
) strict;
CREATE TABLE run (
    run_no integer primary key autoincrement,   -- also the order of arrival
    run_id any not null unique,
    thread_no integer not null references thread,
    graph text not null,
    key_scope text,                         -- owner and graph; a key is unique within it
    key text,
    request blob not null,                  -- digest of what was asked
    spec blob not null,
    status text not null check (status in ('queued', 'running', 'retrying', 'interrupted', 'done', 'failed',
                                           'cancelled', 'abandoned', 'expired', 'quarantined')),
    driver text not null check (driver in ('caller', 'worker', 'edit')),
    chain any,                              -- run_id of the first of the runs that belong together, if not its own
    continues any,                          -- run_id whose question this one answers
    replaces any,                           -- run_id that this one starts over
    forks integer,                          -- it began anew from a checkpoint before this event; null: it did not
    base any,                               -- checkpoint that was head when the chain began
    not_before real not null default 0,
    priority integer not null default 0,
    attempt integer not null default 0,
    cause any,                              -- text; sealed in an encrypted store, like all that people and programs say
    worker text,
    epoch integer not null default 0,
    graph_fp text,
    last_checkpoint any,
    steps integer not null default 0,
    model_calls integer not null default 0,
    tokens_in integer not null default 0,
    tokens_out integer not null default 0,
    tool_calls integer not null default 0,
    active_s real not null default 0,
    since integer not null,                 -- the event that it began with: what it made comes after
    created_at real not null,
    updated_at real not null,
    check (status != 'running' or worker is not null)
) strict;
CREATE TABLE schedule (
    schedule_id text primary key,
    owner text not null,
    spec blob not null,
    next_at real not null
) strict, without rowid;
CREATE TABLE thread (
    thread_no integer primary key,
    owner text not null,
    thread_id text not null,
    graph text not null,                    -- '' until a named graph takes it (a saver used alone)
    parent_thread integer references thread,
    state text not null default 'open' check (state in ('open', 'moved', 'erased')),
    created_at real not null,
    updated_at real not null,
    event_next integer not null default 1,  -- numbers of events, checkpoints included; none is given twice
    item_next integer not null default 1,   -- numbers of items; none is given twice
    items_by text,                          -- who gave the last ones: what others remember of the thread is stale
    items_loose integer not null default 0, -- bytes of them that lie in small packs
    unique (owner, thread_id)
) strict;
CREATE TABLE usage (
    run_no integer not null,
    model text not null,
    model_calls integer not null,
    tokens_in integer not null,
    tokens_out integer not null,
    primary key (run_no, model)
) strict, without rowid;
CREATE TABLE worker (
    worker_id text primary key,
    host text not null,
    pid integer not null,
    started_at real not null,
    expires_at real not null
) strict, without rowid;
CREATE TABLE write (
    thread_no integer not null,
    ns text not null,
    place any not null,                     -- seq of its checkpoint; the id, of one that is not there yet
    task_id any not null,
    run_no integer not null default 0,      -- 0: a saver used alone
    body blob not null,
    primary key (thread_no, ns, place, task_id, run_no)
) strict, without rowid;
CREATE UNIQUE INDEX checkpoint_by_id on checkpoint (thread_no, checkpoint_id, ns);
CREATE INDEX checkpoint_of_ref on checkpoint (run_ref) where run_ref is not null;
CREATE INDEX effect_of_lineage on effect (thread_no, lineage);
CREATE INDEX effect_of_thread on effect (thread_no, state);
CREATE INDEX interrupt_due on interrupt (deadline) where state = 'pending' and deadline is not null;
CREATE INDEX interrupt_pending on interrupt (asked_at) where state = 'pending';
CREATE INDEX interrupt_remind on interrupt (remind_at) where state = 'pending' and remind_at is not null;
CREATE UNIQUE INDEX queued_input_key on queued_input (key_scope, key) where key is not null;
CREATE INDEX queued_input_of_thread on queued_input (thread_no, queued_no);
CREATE UNIQUE INDEX run_key on run (key_scope, key) where key is not null;
CREATE INDEX run_of_chain on run (chain) where chain is not null;
CREATE INDEX run_of_thread on run (thread_no, run_no);
CREATE UNIQUE INDEX run_one_running on run (thread_no) where status = 'running';
CREATE INDEX run_open on run (status, run_no) where status in ('queued', 'running', 'retrying', 'interrupted');
CREATE INDEX thread_recent on thread (owner, updated_at);
