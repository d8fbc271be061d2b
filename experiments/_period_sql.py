"""What a switchback adds to the statement of a report: periods in the place of units."""

# As the owners of a report over units, with the number of the period in the unit's place. Answers
# name their period in the assignment; a turn that was answered in two periods is in none.
PERIODS = """
owners AS (
    SELECT
        arrayJoin(arrayPushFront(edits, answer)) AS target, toUInt64(period) * 2 + 1 AS owner,
        served, toInt64(0) AS first, toInt64(9223372036854775807) AS until
    FROM (
        SELECT
            answer, minIf(number, own) AS period, minIf(at, own) AS served,
            groupArrayIf(edit, edit != 0) AS edits
        FROM (
            SELECT
                arrayJoin(
                    if(turn = '', [target], [target, sipHash64(concat('t', turn))])
                ) AS answer,
                ifNull(toInt64OrNull(
                    splitByChar('.', JSONExtractString(body, 'data', 'assignment'))[2]
                ), -1) AS number,
                toUnixTimestamp64Micro(received_at) AS at,
                number BETWEEN 0 AND {{last:Int64}}
                    AND ifNull(data.version = {{version:UInt32}}, 0)
                    AND data.reason = 'randomised'
                    AND at - toInt64(least(ifNull(data.duration_s, 0), 1e9) * 1e6) - {{starts:Int64}}
                        - number * {{length:Int64}} >= {{wash_in:Int64}} AS own,
                toUInt64(0) AS edit
            FROM events
            PREWHERE type = 'thumbwheel.completion.finished.v1' AND experiment = {{key:String}}
            WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND {earliest}{edits}
        )
        GROUP BY answer
        HAVING max(own) AND minIf(number, own) = maxIf(number, own)
    )
)"""

OUTCOMES = """
SELECT who AS period, scripted{columns}
FROM per_unit
ORDER BY who"""
