-- Who may be written to. A name that left the hive keeps its row, so that no label can ever pass for it (WAKE-2).
CREATE TABLE agents (
    name    TEXT PRIMARY KEY,
    current INTEGER NOT NULL CHECK (current IN (0, 1))
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a turn's id, like a message's, is never given out twice (REL-5).
CREATE TABLE turns (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    agent     TEXT NOT NULL,
    cause     TEXT NOT NULL,
    opened_at REAL NOT NULL,
    closed_at REAL,
    outcome   TEXT CHECK (outcome IN ('acked', 'returned', 'lost')),
    record    TEXT,
    CHECK ((closed_at IS NULL) = (outcome IS NULL))
) STRICT;

-- At most one open turn of an agent (TURN-4); also how the open ones are found when the hive starts.
CREATE UNIQUE INDEX turns_open ON turns (agent) WHERE closed_at IS NULL;

-- A row is unread while acked_at, dead_at, turn_id and lease_until are all NULL; it is in flight while exactly one of
-- turn_id and lease_until is set and it is neither acked nor dead (MSG-5).
CREATE TABLE messages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    sender       TEXT NOT NULL,
    from_mailbox INTEGER NOT NULL CHECK (from_mailbox IN (0, 1)), -- 1: sender is who it says; 0: system or a label
    recipient    TEXT NOT NULL,
    body         TEXT NOT NULL,
    in_reply_to  INTEGER REFERENCES messages (id),
    thread_id    INTEGER NOT NULL,
    sent_at      REAL NOT NULL,
    sent_in_turn INTEGER REFERENCES turns (id),
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    failures     INTEGER NOT NULL DEFAULT 0 CHECK (failures <= attempts), -- attempts held against the message (MSG-6)
    turn_id      INTEGER REFERENCES turns (id),
    lease_until  REAL,
    acked_at     REAL,
    dead_at      REAL,
    CHECK (turn_id IS NULL OR lease_until IS NULL),
    CHECK (acked_at IS NULL OR dead_at IS NULL)
) STRICT;

-- The queues. They are partial: a million handled rows cost them nothing. The columns that are always NULL in an entry
-- are there because SQLite tests them again, and would fetch each row to do it; then counting reads the index alone.
CREATE INDEX messages_unread ON messages (recipient, id, acked_at, dead_at, turn_id, lease_until)
    WHERE acked_at IS NULL AND dead_at IS NULL AND turn_id IS NULL AND lease_until IS NULL;
CREATE INDEX messages_unacked ON messages (recipient, id, acked_at, dead_at)
    WHERE acked_at IS NULL AND dead_at IS NULL;
CREATE INDEX messages_in_turn ON messages (turn_id)
    WHERE acked_at IS NULL AND dead_at IS NULL AND turn_id IS NOT NULL;
CREATE INDEX messages_timed ON messages (lease_until)
    WHERE acked_at IS NULL AND dead_at IS NULL AND lease_until IS NOT NULL;
CREATE INDEX messages_dead ON messages (id, recipient, dead_at)
    WHERE dead_at IS NOT NULL;

-- What people look at: an inbox with its history, and a thread (MSG-11).
CREATE INDEX messages_inbox ON messages (recipient, id);
CREATE INDEX messages_thread ON messages (thread_id, id);

-- The same send twice within one turn (MSG-9).
CREATE INDEX messages_sent_in_turn ON messages (sent_in_turn, recipient)
    WHERE sent_in_turn IS NOT NULL;
