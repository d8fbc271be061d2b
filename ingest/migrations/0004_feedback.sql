-- Everything said about a target, withdrawals included: which rater, which target and name, when.
-- `said_at` is when the rater said it, on this server's clock: receipt less the age that the fact
-- had when it was sent, on the client's own clock, which may be wrong by years. Where no sent-at
-- tells the age, it is the client's time, but never later than receipt.
-- Who names no rater and no user is their editor installation, across its sessions.
CREATE VIEW feedback_words AS
WITH facts AS
(
    SELECT
        source, id, type, received_at, consent, sequence, user, body,
        coalesce(
            nullIf(JSONExtractString(body, 'data', 'rater'), ''), nullIf(user, ''),
            nullIf(extract(source, '^/ext/[^/]+'), ''), source
        ) AS rater,
        fromUnixTimestamp64Micro(
            multiIf(
                time IS NULL, toUnixTimestamp64Micro(received_at),
                sent_at >= time, toUnixTimestamp64Micro(received_at)
                    - (toUnixTimestamp64Micro(assumeNotNull(sent_at)) - toUnixTimestamp64Micro(assumeNotNull(time))),
                least(toUnixTimestamp64Micro(assumeNotNull(time)), toUnixTimestamp64Micro(received_at))
            ), 'UTC'
        ) AS said_at
    FROM events FINAL
    WHERE type IN ('thumbwheel.feedback.submitted.v1', 'thumbwheel.feedback.withdrawn.v1')
      AND received_at <= {as_of:DateTime64(6, 'UTC')}
),
submitted AS
(
    SELECT
        source, id, received_at, consent, sequence, rater, said_at,
        JSONExtractString(body, 'data', 'target', 'kind') AS target_kind,
        JSONExtractString(body, 'data', 'target', 'id') AS target_id,
        JSONExtractString(body, 'data', 'gen_ai.evaluation.name') AS called,
        if(called IN ('', 'user_vote'), 'thumb', called) AS name,
        coalesce(
            nullIf(JSONExtractString(body, 'data', 'gen_ai.evaluation.score.label'), ''),
            if(
                JSONType(body, 'data', 'gen_ai.evaluation.score.value') = 'String',
                JSONExtractString(body, 'data', 'gen_ai.evaluation.score.value'), ''
            )
        ) AS label,
        coalesce(
            JSONExtract(body, 'data', 'gen_ai.evaluation.score.value', 'Nullable(Float64)'),
            multiIf(label = 'up', 1., label = 'down', 0., NULL)
        ) AS value,
        JSONExtractUInt(body, 'data', 'revision') AS revision,
        JSONExtractString(body, 'data', 'gen_ai.evaluation.explanation') AS explanation
    FROM facts WHERE type = 'thumbwheel.feedback.submitted.v1'
),
withdrawn AS
(
    SELECT source, id, received_at, consent, sequence, rater, said_at,
        JSONExtractString(body, 'data', 'supersedes') AS supersedes
    FROM facts WHERE type = 'thumbwheel.feedback.withdrawn.v1'
)
SELECT
    source, id, rater, target_kind, target_id, name, false AS withdrawal, '' AS supersedes,
    value, label, revision, explanation, consent, sequence, said_at, received_at
FROM submitted
UNION ALL
SELECT
    withdrawn.source, withdrawn.id, submitted.rater, submitted.target_kind, submitted.target_id,
    submitted.name, true, withdrawn.supersedes, NULL, '', submitted.revision, '',
    withdrawn.consent, withdrawn.sequence, withdrawn.said_at, withdrawn.received_at
FROM submitted INNER JOIN withdrawn ON submitted.id = withdrawn.supersedes
WHERE submitted.source = withdrawn.source OR submitted.rater = withdrawn.rater;

-- The last word of each (rater, target, name) as of a time.
-- Within one source: the highest revision, then the highest sequence, then what was said last.
-- Between sources, whose revisions and sequences know nothing of each other: what was said last.
-- A word that its rater withdrew holds no more, and does not bring back the one before it.
CREATE OR REPLACE VIEW current_feedback AS
SELECT
    rater, target_kind, target_id, name,
    last.1 AS id, last.2 AS value, last.3 AS label, last.4 AS revision, last.5 AS received_at,
    last.6 AS explanation, last.7 AS consent, last.8 AS said_at, last.9 AS source
FROM
(
    SELECT
        rater, target_kind, target_id, name,
        argMax(word, (word.8, word.5, word.1)) AS last,
        arrayFlatten(groupArray(taken_back)) AS gone
    FROM
    (
        SELECT
            rater, target_kind, target_id, name, source,
            argMax(
                (id, value, label, revision, received_at, explanation, consent, said_at, source, withdrawal),
                (revision, sequence, said_at, received_at, id)
            ) AS word,
            groupUniqArrayIf(supersedes, withdrawal) AS taken_back
        FROM feedback_words(as_of = {as_of:DateTime64(6, 'UTC')})
        GROUP BY rater, target_kind, target_id, name, source
    )
    GROUP BY rater, target_kind, target_id, name
)
WHERE NOT last.10 AND NOT has(gone, last.1);

-- Current feedback whose target is not stored: it came early, or names what will never come.
CREATE VIEW pending_feedback AS
SELECT given.*
FROM
(
    SELECT arrayJoin([('completion', completion), ('turn', turn), ('diff', diff)]) AS target
    FROM events
    WHERE received_at <= {as_of:DateTime64(6, 'UTC')} AND type NOT LIKE 'thumbwheel.feedback.%'
) AS stored
RIGHT ANTI JOIN current_feedback(as_of = {as_of:DateTime64(6, 'UTC')}) AS given
    ON stored.target = (given.target_kind, given.target_id);
