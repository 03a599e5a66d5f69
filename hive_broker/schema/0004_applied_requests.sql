-- What requests over a mailbox's socket changed, kept with the change: a client that lost the answer asks again under the
-- same number and gets it, and nothing is done twice. A row goes once its client has the answer.
CREATE TABLE applied (
    agent      TEXT NOT NULL,    -- whose socket
    client     TEXT NOT NULL,    -- what the client called itself there
    request_id INTEGER NOT NULL, -- its number for the request
    digest     TEXT NOT NULL,    -- of what was asked
    answer     TEXT NOT NULL,    -- JSON
    applied_at REAL NOT NULL,
    PRIMARY KEY (agent, client, request_id)
) STRICT;
CREATE INDEX applied_expiring ON applied (applied_at);

-- The client that opened a turn over a socket. It may live longer than the broker, and so does its turn; NULL is a turn
-- that was opened in the broker's own process.
ALTER TABLE turns ADD COLUMN client TEXT;
