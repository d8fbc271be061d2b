-- The last word of each (rater, target, name) as of a time. Computed when asked, so a replay
-- changes nothing.
CREATE VIEW current_feedback AS
SELECT
    rater, target_kind, target_id, name,
    last.1 AS id, last.2 AS value, last.3 AS label, last.4 AS revision, last.5 AS received_at,
    last.6 AS explanation, last.7 AS consent
FROM
(
    SELECT
        coalesce(
            nullIf(JSONExtractString(body, 'data', 'rater'), ''), nullIf(user, ''), source
        ) AS rater,
        JSONExtractString(body, 'data', 'target', 'kind') AS target_kind,
        JSONExtractString(body, 'data', 'target', 'id') AS target_id,
        coalesce(
            nullIf(JSONExtractString(body, 'data', 'gen_ai.evaluation.name'), ''), 'thumb'
        ) AS name,
        argMax(
            (
                id,
                JSONExtract(body, 'data', 'gen_ai.evaluation.score.value', 'Nullable(Float64)'),
                JSONExtractString(body, 'data', 'gen_ai.evaluation.score.label'),
                JSONExtractUInt(body, 'data', 'revision'),
                events.received_at,
                JSONExtractString(body, 'data', 'gen_ai.evaluation.explanation'),
                consent
            ),
            (JSONExtractUInt(body, 'data', 'revision'), events.received_at, id)
        ) AS last
    FROM events FINAL
    WHERE type = 'thumbwheel.feedback.submitted.v1'
      AND events.received_at <= {as_of:DateTime64(6, 'UTC')}
    GROUP BY rater, target_kind, target_id, name
)
WHERE last.1 NOT IN
(
    SELECT JSONExtractString(body, 'data', 'supersedes')
    FROM events FINAL
    WHERE type = 'thumbwheel.feedback.withdrawn.v1'
      AND events.received_at <= {as_of:DateTime64(6, 'UTC')}
);
