-- What a rater's word needs besides its fields. Empty for all other facts, so that the few words among
-- millions are read without the names of all of them. `said_at` is as in `feedback_words`.
ALTER TABLE events ADD COLUMN word Tuple(
    source String,
    id String,
    rater String,
    sequence UInt64,
    at Int64,
    said_at Int64
) MATERIALIZED if(
    type IN ('thumbwheel.feedback.submitted.v1', 'thumbwheel.feedback.withdrawn.v1'),
    (
        source, id,
        coalesce(
            nullIf(data.rater, ''), nullIf(user, ''),
            nullIf(extract(source, '^/ext/[^/]+'), ''), source
        ),
        sequence,
        toUnixTimestamp64Micro(received_at),
        multiIf(
            time IS NULL, toUnixTimestamp64Micro(received_at),
            sent_at >= time, toUnixTimestamp64Micro(received_at)
                - (toUnixTimestamp64Micro(assumeNotNull(sent_at)) - toUnixTimestamp64Micro(assumeNotNull(time))),
            least(toUnixTimestamp64Micro(assumeNotNull(time)), toUnixTimestamp64Micro(received_at))
        )
    ),
    ('', '', '', 0, 0, 0)
) COMMENT 'of feedback: who said it, when it came in and was said, in microseconds since 1970';

ALTER TABLE events MATERIALIZE COLUMN word;
