-- One row per (source, id), whatever is replayed: FINAL keeps the earliest receipt (`first`).
-- No partitions: a duplicate with another clock must still meet its twin.
CREATE TABLE events
(
    source       String,
    id           String,
    type         LowCardinality(String),
    time         Nullable(DateTime64(6, 'UTC')) COMMENT 'client clock, never shifted',
    sent_at      Nullable(DateTime64(6, 'UTC')),
    received_at  DateTime64(6, 'UTC') COMMENT 'server clock',
    clock        LowCardinality(String) COMMENT 'empty, or why the client clock cannot be right',
    sequence     UInt64 COMMENT '0 where the client gave none',
    subject      String,
    user         String,
    organization String,
    conversation String,
    turn         String,
    completion   String,
    diff         String,
    experiment   LowCardinality(String),
    variant      LowCardinality(String) COMMENT 'the assigned arm',
    consent      LowCardinality(String),
    position     String COMMENT 'where the log has it',
    body         String CODEC(ZSTD(3)) COMMENT 'the event as JSON every engine reads',
    raw          String CODEC(ZSTD(3)) COMMENT 'the event as sent, where body had to differ',
    first        UInt64 MATERIALIZED toUInt64(9223372036854775807 - toUnixTimestamp64Micro(received_at)),
    INDEX by_id id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_type type TYPE set(32) GRANULARITY 1,
    INDEX by_conversation conversation TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_time received_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(first)
ORDER BY (source, id)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE dead_letters
(
    position    String,
    fact        UInt32 COMMENT 'which fact of the record; 4294967295 is the record as a whole',
    reason      String,
    raw         String CODEC(ZSTD(3)),
    received_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (position, fact)
SETTINGS non_replicated_deduplication_window = 10000;
