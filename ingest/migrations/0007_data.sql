-- The fields of a fact's data that questions are asked about, in columns: a report over ten million
-- facts would spend its time reading JSON. Read from the body once, when the row is written.
ALTER TABLE events ADD COLUMN data Tuple(
    outcome LowCardinality(String),
    reason LowCardinality(String),
    state LowCardinality(String),
    trigger LowCardinality(String),
    actor LowCardinality(String),
    `end` LowCardinality(String),
    received LowCardinality(String),
    `thumbwheel.language_id` LowCardinality(String),
    `gen_ai.evaluation.name` LowCardinality(String),
    `gen_ai.evaluation.score.label` LowCardinality(String),
    `gen_ai.evaluation.score.value` String,
    unit String,
    rater String,
    supersedes String,
    target Tuple(kind LowCardinality(String), id String),
    `diff.ids` Array(String),
    hunks Array(Tuple(lines_added UInt32, lines_removed UInt32)),
    simulated Bool,
    version Nullable(Float64),
    revision UInt64,
    checkpoint_s Nullable(Float64),
    kept_ratio Nullable(Float64),
    duration_s Nullable(Float64),
    decision_s Nullable(Float64),
    visible_s Nullable(Float64),
    after_s Nullable(Float64),
    time_to_edit_s Nullable(Float64),
    time_to_first_token_s Nullable(Float64),
    `gen_ai.usage.input_tokens` Nullable(Float64),
    `gen_ai.usage.output_tokens` Nullable(Float64),
    cost_usd Nullable(Float64),
    similarity Nullable(Float64)
) MATERIALIZED JSONExtract(body, 'data', 'Tuple(outcome LowCardinality(String), reason LowCardinality(String), state LowCardinality(String), trigger LowCardinality(String), actor LowCardinality(String), `end` LowCardinality(String), received LowCardinality(String), `thumbwheel.language_id` LowCardinality(String), `gen_ai.evaluation.name` LowCardinality(String), `gen_ai.evaluation.score.label` LowCardinality(String), `gen_ai.evaluation.score.value` String, unit String, rater String, supersedes String, target Tuple(kind LowCardinality(String), id String), `diff.ids` Array(String), hunks Array(Tuple(lines_added UInt32, lines_removed UInt32)), simulated Bool, version Nullable(Float64), revision UInt64, checkpoint_s Nullable(Float64), kept_ratio Nullable(Float64), duration_s Nullable(Float64), decision_s Nullable(Float64), visible_s Nullable(Float64), after_s Nullable(Float64), time_to_edit_s Nullable(Float64), time_to_first_token_s Nullable(Float64), `gen_ai.usage.input_tokens` Nullable(Float64), `gen_ai.usage.output_tokens` Nullable(Float64), cost_usd Nullable(Float64), similarity Nullable(Float64))');

-- What a fact is about and which fact it is, as numbers, which join and group faster than names do.
ALTER TABLE events ADD COLUMN target UInt64 MATERIALIZED sipHash64(
    multiIf(diff != '', concat('d', diff), completion != '', concat('c', completion), concat('t', turn))
) CODEC(NONE);

ALTER TABLE events ADD COLUMN answer UInt64 MATERIALIZED if(
    type = 'thumbwheel.diff.proposed.v1',
    sipHash64(if(completion != '', concat('c', completion), concat('t', turn))), 0
) COMMENT 'of an edit: the completion or turn that proposed it';

ALTER TABLE events ADD COLUMN fact UInt64 MATERIALIZED cityHash64(source, id) CODEC(NONE);

ALTER TABLE events ADD COLUMN lines_added UInt32 MATERIALIZED arraySum(data.hunks.lines_added);

ALTER TABLE events ADD COLUMN lines_removed UInt32 MATERIALIZED arraySum(data.hunks.lines_removed);

-- Older parts are written anew in the background; until then each question reads their bodies.
ALTER TABLE events MATERIALIZE COLUMN data, MATERIALIZE COLUMN target, MATERIALIZE COLUMN answer,
    MATERIALIZE COLUMN fact, MATERIALIZE COLUMN lines_added, MATERIALIZE COLUMN lines_removed;
