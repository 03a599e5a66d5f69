-- Senders that the hive itself writes as: reserved from here on, so no agent and no label can pass for them.
DELETE FROM agents WHERE name IN ('reminder', 'schedule');

-- Reminders that have not fired: one that fires is deleted in the transaction that stores its message (INB-3).
CREATE TABLE reminders (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    agent      TEXT NOT NULL,
    message    TEXT NOT NULL,
    fires_at   REAL NOT NULL,
    created_at REAL NOT NULL,
    spill_path TEXT
) STRICT;
CREATE INDEX reminders_due ON reminders (fires_at, id);
CREATE INDEX reminders_of_agent ON reminders (agent, fires_at);

-- A prompt for several agents (SCHED-1): once at first_fire_at, or from then on every interval_seconds or by cron.
CREATE TABLE schedules (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    body             TEXT NOT NULL,
    first_fire_at    REAL NOT NULL,
    interval_seconds REAL,
    cron             TEXT,
    description      TEXT,
    requested_by     TEXT NOT NULL,
    created_at       REAL NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('pending', 'active', 'done', 'cancelled')),
    CHECK (interval_seconds IS NULL OR cron IS NULL)
) STRICT;
CREATE INDEX schedules_open ON schedules (requested_by, id) WHERE status IN ('pending', 'active');

-- Every target fires by itself, so that a schedule of many does not wake them in one instant. next_fire_at is set while
-- the schedule is active and this target has an instant to come.
CREATE TABLE schedule_targets (
    schedule_id   INTEGER NOT NULL REFERENCES schedules (id),
    target        TEXT NOT NULL,
    next_fire_at  REAL,
    last_fired_at REAL,
    skipped       INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    PRIMARY KEY (schedule_id, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_targets_due ON schedule_targets (next_fire_at, schedule_id, target)
    WHERE next_fire_at IS NOT NULL;
CREATE INDEX schedule_targets_fired ON schedule_targets (last_fired_at)
    WHERE next_fire_at IS NOT NULL AND last_fired_at IS NOT NULL;
CREATE INDEX schedule_targets_of_agent ON schedule_targets (target, schedule_id);

-- What waits, or waited, for the operator's word (APPR-1).
CREATE TABLE approvals (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    agent        TEXT NOT NULL,
    kind         TEXT NOT NULL
        CHECK (kind IN ('spawn', 'init_config', 'update_meta_inputs', 'schedule_prompt', 'merge_config_pr')),
    commit_ref   TEXT NOT NULL,
    fetched_sha  TEXT,
    requested_at REAL NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'failed', 'cancelled')),
    resolved_at  REAL,
    note         TEXT,
    description  TEXT,
    submitter    TEXT,
    CHECK ((status = 'pending') = (resolved_at IS NULL))
) STRICT;
CREATE INDEX approvals_pending ON approvals (kind, commit_ref, id) WHERE status = 'pending';

-- At most one open todo of a key; a done one is kept until retention takes it (WAKE-1).
CREATE TABLE todos (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    agent      TEXT NOT NULL,
    subsystem  TEXT NOT NULL,
    key        TEXT NOT NULL,
    summary    TEXT NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    done_at    REAL
) STRICT;
CREATE UNIQUE INDEX todos_open ON todos (agent, subsystem, key) WHERE done_at IS NULL;
CREATE INDEX todos_done ON todos (done_at) WHERE done_at IS NOT NULL;

-- What the operator allowed an agent, as two JSON arrays; an agent without a row has what its configuration says (PERM-2).
CREATE TABLE permissions (
    agent        TEXT PRIMARY KEY,
    groups       TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    changed_at   REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Notices for the swarm on their way out (SWARM-1).
CREATE TABLE notices (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    subject    TEXT NOT NULL,
    body       TEXT NOT NULL,
    dedupe_id  TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    sent_at    REAL
) STRICT;
CREATE INDEX notices_unsent ON notices (id) WHERE sent_at IS NULL;
CREATE INDEX notices_sent ON notices (sent_at) WHERE sent_at IS NOT NULL;

-- How retention finds what is old, and what still refers to it, without walking what is kept.
CREATE INDEX messages_acked ON messages (acked_at) WHERE acked_at IS NOT NULL;
CREATE INDEX messages_replies ON messages (in_reply_to) WHERE in_reply_to IS NOT NULL;
CREATE INDEX messages_popped_in ON messages (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX turns_closed ON turns (closed_at) WHERE closed_at IS NOT NULL;
