-- The last word of each (rater, target, name) as of a time. Computed when asked, so a replay
-- changes nothing. An editor's `user_vote` and a `thumb` are one name, and a vote given as a word is
-- a number like any other, so that whoever reads this never has to know how it was said.
CREATE VIEW current_feedback AS
SELECT
    rater, target_kind, target_id, name,
    last.1 AS id, last.2 AS value, last.3 AS label, last.4 AS revision, last.5 AS received_at,
    last.6 AS explanation, last.7 AS consent
FROM
(
    SELECT
        rater, target_kind, target_id, name,
        argMax(
            (id, value, word, revision, received_at, explanation, consent),
            (revision, received_at, id)
        ) AS last
    FROM
    (
        SELECT
            id, received_at, consent,
            coalesce(
                nullIf(JSONExtractString(body, 'data', 'rater'), ''), nullIf(user, ''), source
            ) AS rater,
            JSONExtractString(body, 'data', 'target', 'kind') AS target_kind,
            JSONExtractString(body, 'data', 'target', 'id') AS target_id,
            JSONExtractString(body, 'data', 'gen_ai.evaluation.name') AS said,
            if(said IN ('', 'user_vote'), 'thumb', said) AS name,
            coalesce(
                nullIf(JSONExtractString(body, 'data', 'gen_ai.evaluation.score.label'), ''),
                if(
                    JSONType(body, 'data', 'gen_ai.evaluation.score.value') = 'String',
                    JSONExtractString(body, 'data', 'gen_ai.evaluation.score.value'), ''
                )
            ) AS word,
            coalesce(
                JSONExtract(body, 'data', 'gen_ai.evaluation.score.value', 'Nullable(Float64)'),
                multiIf(word = 'up', 1., word = 'down', 0., NULL)
            ) AS value,
            JSONExtractUInt(body, 'data', 'revision') AS revision,
            JSONExtractString(body, 'data', 'gen_ai.evaluation.explanation') AS explanation
        FROM events FINAL
        WHERE type = 'thumbwheel.feedback.submitted.v1'
          AND received_at <= {as_of:DateTime64(6, 'UTC')}
    )
    GROUP BY rater, target_kind, target_id, name
)
WHERE last.1 NOT IN
(
    SELECT JSONExtractString(body, 'data', 'supersedes')
    FROM events FINAL
    WHERE type = 'thumbwheel.feedback.withdrawn.v1'
      AND received_at <= {as_of:DateTime64(6, 'UTC')}
);
