-- What examples/recipes/to_postgres.py writes to.
CREATE TABLE events (
    node        text        NOT NULL,
    incarnation text        NOT NULL DEFAULT '',  -- '' where it is not known
    lsn         bigint      NOT NULL,
    event_time  timestamptz NOT NULL,
    protocol    text        NOT NULL,
    host        text,
    message     text,
    body        text,
    flaw        text,
    PRIMARY KEY (node, incarnation, lsn)
);
CREATE INDEX events_by_time ON events (event_time);
