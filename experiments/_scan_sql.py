"""The statement of a report: one scan of the facts, four levels of sums, moments at the end.

    facts ⋈ owners → a row per target (edit, completion, turn) → per owner (a unit before or since its
    exposure) → per unit → per arm

Single braces are filled by `experiments._plan` with pieces out of closed lists; every value is
bound. A fact counts after the first exposure where its target was served by this experiment at
random, and before it where both the completion and the fact itself came in before.

Targets and units are hashed to 64 bits (SipHash), which join and group several times faster than
names: of ten million targets two look alike in one report of 400,000.
"""

# Facts that are stored more than once, until the engine merges them, and when each first came in. A
# part holds a fact once, so one of each two is outside the largest part. FINAL would merge every row
# of every part to find them, by one thread: five times the rest of the report.
DOUBLED = """
(
    SELECT groupArray((fact, earliest)) FROM (
        SELECT fact, min(received_at) AS earliest
        FROM events
        PREWHERE fact IN (
            SELECT fact FROM events WHERE _part != (
                SELECT argMax(part, size)
                FROM (SELECT _part AS part, count() AS size FROM events GROUP BY part)
            )
        )
        WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}}
        GROUP BY fact
        HAVING count() > 1
    )
) AS doubled"""

# For questions that another copy with the same time does not change.
EARLIEST = """(
    empty(doubled) OR fact NOT IN (SELECT arrayJoin(doubled.1))
    OR (fact, received_at) IN (SELECT arrayJoin(doubled))
)"""

# One row per unit: what it met first, and whether a draw decided that.
EXPOSURES = """
exposures AS (
    SELECT
        data.unit AS unit,
        bitShiftRight(sipHash64(unit), 1) AS who,
        countIf(data.reason = 'randomised') > 0 AS drawn,
        if(drawn, 'randomised', toString(min(data.reason))) AS why,
        argMinIf(variant, (received_at, id), data.reason = 'randomised') AS arm,
        argMinIf(data.received, (received_at, id), data.reason = 'randomised') AS met,
        uniqExactIf(variant, data.reason = 'randomised') > 1 AS mixed,
        minIf(received_at, data.reason = 'randomised') AS exposed_at,
        toUnixTimestamp64Micro(exposed_at) AS first
    FROM events
    PREWHERE type = 'thumbwheel.experiment.exposed.v1' AND experiment = {{key:String}}
    WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND data.version = {{version:UInt32}}
        AND {earliest}
    GROUP BY unit
)"""

# Completions, turns and edits: `owner` is twice their unit, and one more where this experiment served
# them; facts of others count `until` the unit's first exposure. What two units claim is nobody's; an
# edit that two answers claim belongs to the same one in any order.
OWNERS = """
owners AS (
    SELECT
        arrayJoin(arrayPushFront(edits, answer)) AS target, who * 2 + mine AS owner, served, first,
        if(mine, toInt64(9223372036854775807), first) AS until
    FROM (
        SELECT
            answer,
            max(own) AS mine,
            if(mine, minIf(user_hash, own), minIf(user_hash, edit = 0)) AS who,
            if(mine, minIf(at, own), minIf(at, edit = 0)) AS served,
            groupArrayIf(edit, edit != 0) AS edits
        FROM (
            SELECT
                arrayJoin(
                    if(turn = '', [target], [target, sipHash64(concat('t', turn))])
                ) AS answer,
                bitShiftRight(sipHash64({unit}), 1) AS user_hash,
                toUnixTimestamp64Micro(received_at) AS at,
                experiment = {{key:String}} AND ifNull(data.version = {{version:UInt32}}, 0)
                    AND data.reason = 'randomised' AS own,
                toUInt64(0) AS edit
            FROM events
            PREWHERE type = 'thumbwheel.completion.finished.v1'
            WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND {earliest}{edits}
        )
        GROUP BY answer
        HAVING if(mine, maxIf(user_hash, own), max(user_hash)) = who
    ) AS answers
    INNER JOIN exposures USING (who)
    WHERE drawn AND NOT mixed AND (mine OR served < first)
)"""

EDITS = """
            UNION ALL
            SELECT min(events.answer) AS answer, 0, 0, 0, target
            FROM events
            PREWHERE type = 'thumbwheel.diff.proposed.v1'
            WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND {earliest}
            GROUP BY target"""

# `role` 0 is a fact, 1 a rater's last word, which counts after exposure, and 2 their first, which
# counts before: nothing that was said or taken back later may reach the covariates.
FACTS = """
    SELECT
        {target} AS target, 0 AS role, toUnixTimestamp64Micro(received_at) AS at{columns}
    FROM events
    PREWHERE type IN {{types:Array(String)}}
    WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}}
        AND (empty(doubled) OR fact NOT IN (SELECT arrayJoin(doubled.1)))
    UNION ALL
    SELECT
        {target} AS target, 0 AS role, toUnixTimestamp64Micro(received_at) AS at{columns}
    FROM (
        SELECT *, data, target, numbers FROM events
        PREWHERE type IN {{types:Array(String)}} AND fact IN (SELECT arrayJoin(doubled.1))
        WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND notEmpty(doubled)
        ORDER BY received_at
        LIMIT 1 BY source, id
    ) AS events"""

# The last words are those of the view `current_feedback`; a test makes sure. The view reads the text
# of all facts three times, this the few columns that only words fill, once.
_STEPS = """
    SELECT
        said.1 AS rater, said.2 AS kind, said.3 AS about, said.4 AS name,
        CAST(
            arrayJoin(
                arrayPushFront(
                    arrayMap(
                        each -> (
                            each.5, each.6, each.7, each.8, said.9, each.10, NULL, true, said.6
                        ),
                        arrayFilter(each -> each.5 = said.5 OR each.1 = said.1, withdrawals)
                    ),
                    (said.5, said.6, said.7, said.8, said.9, said.10, said.11, false, said.6)
                )
            ),
            'Tuple(source String, id String, at Int64, said_at Int64, revision UInt64,
            sequence UInt64, score Nullable(Float64), withdrawal Bool, word String)'
        ) AS step
    FROM (
        SELECT
            arrayJoin(groupArrayIf(fact, NOT withdrawal)) AS said,
            groupArrayIf(fact, withdrawal) AS withdrawals
        FROM (
            SELECT
                type = 'thumbwheel.feedback.withdrawn.v1' AS withdrawal,
                if(withdrawal, data.supersedes, word.id) AS which,
                if(data.`gen_ai.evaluation.name` IN ('', 'user_vote'), 'thumb',
                    toString(data.`gen_ai.evaluation.name`)) AS name,
                coalesce(
                    nullIf(toString(data.`gen_ai.evaluation.score.label`), ''),
                    data.`gen_ai.evaluation.score.value`
                ) AS label,
                coalesce(
                    toFloat64OrNull(data.`gen_ai.evaluation.score.value`),
                    multiIf(label = 'up', 1., label = 'down', 0., NULL)
                ) AS score,
                (
                    word.rater, toString(data.target.kind), data.target.id, name, word.source,
                    word.id, word.at, word.said_at, data.revision, word.sequence, score
                ) AS fact
            FROM events
            PREWHERE type IN ('thumbwheel.feedback.submitted.v1', 'thumbwheel.feedback.withdrawn.v1')
            WHERE word.at <= toUnixTimestamp64Micro({{as_of:DateTime64(6, 'UTC')}})
            ORDER BY word.at
            LIMIT 1 BY word.source, word.id
        )
        GROUP BY which
    )"""

WORDS = (
    """
    UNION ALL
    SELECT
        sipHash64(concat(substring(kind, 1, 1), about)) AS target,
        word.1 AS role, word.2 AS at{columns}
    FROM (
        SELECT
            kind, about, name,
            argMax(latest, (latest.said_at, latest.at, latest.id)) AS final,
            NOT final.withdrawal AND NOT has(groupArrayArray(gone), final.id) AS holds,
            argMinIf(opening, (opening.at, opening.id), opening.id != '') AS first_word,
            arrayJoin(
                [(1, final.at, final.score), (2, first_word.at, first_word.score)]
            ) AS word
        FROM (
            SELECT
                rater, kind, about, name, step.source AS source,
                argMax(
                    step, (step.revision, step.sequence, step.said_at, step.at, step.id)
                ) AS latest,
                argMinIf(step, (step.at, step.id), NOT step.withdrawal) AS opening,
                groupUniqArrayIf(step.word, step.withdrawal) AS gone
            FROM ("""
    + _STEPS
    + """
            )
            GROUP BY rater, kind, about, name, source
        )
        GROUP BY rater, kind, about, name
        HAVING word.1 = 2 OR holds
    )"""
)

# Facts that are only counted add up by owner at once, the others by target first.
SUMS = """
per_target AS (
    SELECT any(owner) AS whose{bits}{measures}
    FROM ({facts}
    ) AS fact
    INNER JOIN owners USING (target)
    WHERE at < until AND role != if(bitTest(owner, 0), 2, 1)
    GROUP BY if({by_target}, target, owner)
),
per_owner AS (
    SELECT whose, max({acted}) AS acted{totals}
    FROM per_target
    GROUP BY whose
),
per_unit AS (
    SELECT
        bitShiftRight(whose, 1) AS who, max(acted AND post) AS scripted,
        countIf(NOT post) > 0 AS past{terms}
    FROM (SELECT *, bitTest(whose, 0) AS post FROM per_owner)
    GROUP BY who
)"""

SEGMENTS = """
segments AS (
    SELECT who, argMax(said, (received_at, id)) AS segment
    FROM (
        SELECT bitShiftRight(sipHash64({unit}), 1) AS who, {segment} AS said, received_at, id
        FROM events
        PREWHERE type = {{segment_type:String}}
        WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND {earliest} AND said != ''
    ) AS told
    INNER JOIN exposures USING (who)
    WHERE received_at < exposed_at
    GROUP BY who
)"""

# Whole-number sums: exact, so no order of rows or threads changes a digit of the report.
ARMS = """
SELECT
    arm, why, mixed{group}{whole}, count() AS n, max(scripted) AS simulated,
    sumMap(map(if(met = '', arm, met), toUInt64(1))) AS received,
    sumForEachIf(ripe, measured) AS counted,
    sumForEachIf(numbers, measured) AS sums, sumForEachIf(squares, measured) AS products,
    sumForEachIf(new, measured) AS fresh, sumForEachIf(high, measured) AS above,
    any(most) AS caps, arraySort(groupArrayIf({few})((ripe, numbers), measured)) AS few{events}
FROM (
    SELECT
        arm, why, mixed, drawn AND NOT mixed AS measured, met, first, scripted, past{group}{columns},
        CAST([{counts}], 'Array(UInt8)') AS ripe, CAST([{is_new}], 'Array(UInt8)') AS new,
        CAST([{is_above}], 'Array(UInt8)') AS high, CAST([{caps}], 'Array(Int64)') AS most,
        CAST([{numbers}], 'Array(Int128)') AS numbers,
        CAST([{products}], 'Array(Int128)') AS squares
    FROM exposures LEFT JOIN per_unit USING (who){segment_join}
)
GROUP BY {sets}"""

FURTHER = """
SELECT *{columns}
FROM ({inner}
)"""

SHOWN = """
SELECT * EXCEPT ({hidden})
FROM ({inner}
)"""

NEWEST = """
SELECT maxOrNull(received_at) AS newest FROM events
WHERE received_at <= {as_of:DateTime64(6, 'UTC')}
"""
