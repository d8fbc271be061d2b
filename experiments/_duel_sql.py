"""The statement of duels: each rater's last word on each pair, and who made what was compared."""

# The view has the last word of each rater on each target and name; the two orders in which a pair
# can be shown are two such names, and the later word holds. A withdrawal of either ends both.
JUDGED = """
WITH
words AS (
    SELECT
        rater, target_id AS one, substring(name, length({prefix:String}) + 1) AS other, label,
        source, id, said_at, received_at
    FROM current_feedback(as_of = {as_of:DateTime64(6, 'UTC')})
    WHERE target_kind = 'completion' AND startsWith(name, {prefix:String})
),
ends AS (
    SELECT
        rater, arraySort([target_id, substring(name, length({prefix:String}) + 1)]) AS pair,
        max(said_at) AS ended
    FROM feedback_words(as_of = {as_of:DateTime64(6, 'UTC')})
    WHERE withdrawal AND target_kind = 'completion' AND startsWith(name, {prefix:String})
    GROUP BY rater, pair
),
judged AS (
    SELECT
        rater, arraySort([one, other]) AS pair, max(said_at) AS said,
        argMax((one, other, label, source, id), (said_at, received_at, id)) AS word
    FROM words
    GROUP BY rater, pair
),
judges AS (
    SELECT source, id, JSONExtractString(body, 'data', 'rater_source') AS kind
    FROM events FINAL
    PREWHERE type = 'thumbwheel.feedback.submitted.v1'
    WHERE received_at <= {as_of:DateTime64(6, 'UTC')}
        AND startsWith(data.`gen_ai.evaluation.name`, {prefix:String})
),
served AS (
    SELECT
        completion, argMin(JSONExtractString(body, 'data', 'checkpoint'), (received_at, id)) AS made,
        max(data.simulated) AS scripted
    FROM events FINAL
    PREWHERE type = 'thumbwheel.completion.finished.v1'
    WHERE received_at <= {as_of:DateTime64(6, 'UTC')}
        AND completion IN (SELECT arrayJoin(pair) FROM judged)
    GROUP BY completion
)
SELECT
    judged.rater AS rater, judged.word.3 AS outcome, a.made AS first, b.made AS second,
    greatest(a.scripted, b.scripted) AS simulated
FROM judged
LEFT JOIN ends ON judged.rater = ends.rater AND judged.pair = ends.pair
INNER JOIN judges ON judged.word.4 = judges.source AND judged.word.5 = judges.id
LEFT JOIN served AS a ON judged.word.1 = a.completion
LEFT JOIN served AS b ON judged.word.2 = b.completion
WHERE judged.said > ends.ended
    AND if(judges.kind = '', 'human', judges.kind) = {judged_by:String}
ORDER BY rater, first, second, outcome
"""
