-- Loop guard (MSG-10): what agents sent, by minute. The last hour is kept and no more, so it costs the same whatever was
-- sent before. A scope is a pair of names, one sender, or the hive.
CREATE TABLE loop_guard_use (
    scope  TEXT NOT NULL,
    minute INTEGER NOT NULL, -- unix seconds / 60
    sends  INTEGER NOT NULL CHECK (sends > 0),
    PRIMARY KEY (scope, minute)
) STRICT, WITHOUT ROWID;
CREATE INDEX loop_guard_minutes ON loop_guard_use (minute);

-- Who has been told of a budget that runs out; forgotten once its use is below half again.
CREATE TABLE loop_guard_told (
    scope TEXT NOT NULL,
    stage TEXT NOT NULL CHECK (stage IN ('warning', 'stopped')),
    name  TEXT NOT NULL,
    PRIMARY KEY (scope, stage, name)
) STRICT, WITHOUT ROWID;

-- A dead letter the operator dropped (MSG-6): acked at that instant, by nobody who handled it.
ALTER TABLE messages ADD COLUMN dropped_at REAL CHECK (dropped_at IS NULL OR acked_at IS NOT NULL);

-- In a backup, one row: when it was made. In a database at work, none (REL-5).
CREATE TABLE backup_origin (
    made_at REAL NOT NULL
) STRICT;
