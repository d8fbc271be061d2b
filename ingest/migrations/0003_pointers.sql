-- Where the facts of a user, a conversation or an experiment are: keys of the facts table, sorted for
-- the question. Not a statistic: a fact that is stored twice is pointed to twice and found once.
CREATE TABLE pointers
(
    kind        LowCardinality(String) COMMENT 'user, conversation or experiment',
    name        String,
    received_at DateTime64(6, 'UTC'),
    source      String,
    id          String,
    consent     LowCardinality(String)
)
ENGINE = ReplacingMergeTree
ORDER BY (kind, name, received_at, source, id)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW pointers_of_events TO pointers AS
SELECT entry.1 AS kind, entry.2 AS name, received_at, source, id, consent
FROM events
ARRAY JOIN arrayFilter(
    pair -> pair.2 != '',
    [('user', user), ('conversation', conversation), ('experiment', toString(experiment))]
) AS entry;

INSERT INTO pointers
SELECT entry.1 AS kind, entry.2 AS name, received_at, source, id, consent
FROM events
ARRAY JOIN arrayFilter(
    pair -> pair.2 != '',
    [('user', user), ('conversation', conversation), ('experiment', toString(experiment))]
) AS entry;

CREATE VIEW facts_of AS
SELECT * FROM events FINAL
WHERE (source, id) IN
(
    SELECT source, id FROM pointers
    WHERE kind = {kind:String} AND name = {name:String}
      AND received_at >= {since:DateTime64(6, 'UTC')} AND received_at < {until:DateTime64(6, 'UTC')}
);

ALTER TABLE events MODIFY SETTING fsync_after_insert = 1, fsync_part_directory = 1;

ALTER TABLE dead_letters MODIFY SETTING fsync_after_insert = 1, fsync_part_directory = 1;
