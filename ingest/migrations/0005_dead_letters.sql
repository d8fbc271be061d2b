-- What became of a dead letter that was sent through the door again. Apart from the letters: the
-- drain may write a letter twice, and that must not undo what is known about it.
CREATE TABLE dead_letter_replays
(
    position String,
    fact     UInt32,
    at       DateTime64(6, 'UTC'),
    verdict  LowCardinality(String) COMMENT 'accepted or duplicate: resolved; rejected: still waiting',
    reason   String COMMENT 'why it was rejected'
)
ENGINE = ReplacingMergeTree(at)
ORDER BY (position, fact)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE VIEW dead_letter_states AS
SELECT
    letters.position AS position,
    letters.fact AS fact,
    letters.received_at AS received_at,
    if(replays.verdict = 'rejected', replays.reason, letters.reason) AS reason,
    length(letters.raw) AS size,
    base64Encode(letters.raw) AS raw,
    replays.verdict AS verdict,
    if(replays.verdict = '', NULL, replays.at) AS replayed_at,
    if(replays.verdict IN ('accepted', 'duplicate'), 'resolved', 'waiting') AS status
FROM
(
    SELECT position, fact, received_at, reason, raw FROM dead_letters FINAL
) AS letters
LEFT JOIN
(
    SELECT position, fact, at, verdict, reason FROM dead_letter_replays FINAL
) AS replays ON letters.position = replays.position AND letters.fact = replays.fact;
