"""The statement of a report: one scan of the facts, three levels of sums, moments at the end.

    facts ⋈ owners → a row per target (edit, completion, turn) → a row per unit → a row per arm

Single braces are filled by `experiments._plan` with pieces out of closed lists; every value is
bound. Names are hashed to 128 bits, which join and group faster than text. A fact counts after the
first exposure where its target was served by this experiment at random (`mine`), and before it
where both the completion and the fact itself came in before.
"""

# One row per unit: what it met first, and whether a draw decided that.
EXPOSURES = """
exposures AS (
    SELECT
        data.unit AS unit,
        reinterpretAsUInt128(sipHash128(unit)) AS who,
        countIf(data.reason = 'randomised') > 0 AS drawn,
        if(drawn, 'randomised', toString(min(data.reason))) AS why,
        argMinIf(variant, (received_at, id), data.reason = 'randomised') AS arm,
        argMinIf(data.received, (received_at, id), data.reason = 'randomised') AS met,
        uniqExactIf(variant, data.reason = 'randomised') > 1 AS mixed,
        minIf(received_at, data.reason = 'randomised') AS exposed_at,
        toUnixTimestamp64Micro(exposed_at) AS first
    FROM events FINAL
    PREWHERE type = 'thumbwheel.experiment.exposed.v1' AND experiment = {{key:String}}
    WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND data.version = {{version:UInt32}}
    GROUP BY unit
)"""

# Completions, turns and edits with their unit. What two units claim is nobody's; an edit that two
# answers claim belongs to the same one in any order.
OWNERS = """
owners AS (
    SELECT
        arrayJoin(arrayPushFront(edits, answer)) AS target, who, mine, served, first, simulated
    FROM (
        SELECT
            answer,
            max(own) AS mine,
            if(mine, minIf(user_hash, own), minIf(user_hash, user_hash != 0)) AS who,
            if(mine, minIf(at, own), minIf(at, user_hash != 0)) AS served,
            max(acted) AS simulated,
            groupArrayIf(edit, edit != 0) AS edits
        FROM (
            SELECT
                arrayJoin(
                    if(turn = '', [concat('c', completion)],
                        [concat('c', completion), concat('t', turn)])
                ) AS name,
                reinterpretAsUInt128(sipHash128(name)) AS answer,
                reinterpretAsUInt128(sipHash128({unit})) AS user_hash,
                toUnixTimestamp64Micro(received_at) AS at,
                experiment = {{key:String}} AND ifNull(data.version = {{version:UInt32}}, 0)
                    AND data.reason = 'randomised' AS own,
                own AND data.simulated AS acted,
                toUInt128(0) AS edit
            FROM events FINAL
            PREWHERE type = 'thumbwheel.completion.finished.v1'
            WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}}
            UNION ALL
            SELECT
                min(if(completion != '', concat('c', completion), concat('t', turn))) AS name,
                reinterpretAsUInt128(sipHash128(name)), 0, 0, 0, 0, target
            FROM events FINAL
            PREWHERE type = 'thumbwheel.diff.proposed.v1'
            WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}}
            GROUP BY target
        )
        GROUP BY answer
        HAVING if(mine, maxIf(user_hash, own), max(user_hash)) = who
    ) AS answers
    INNER JOIN exposures USING (who)
    WHERE drawn AND NOT mixed AND (mine OR served < first)
)"""

# `role` 0 is a fact, 1 a rater's last word, which counts after exposure, and 2 their first, which
# counts before: nothing that was said or taken back later may reach the covariates.
FACTS = """
    SELECT
        {target} AS target, 0 AS role, toUnixTimestamp64Micro(received_at) AS at{columns}
    FROM events FINAL
    PREWHERE type IN {{types:Array(String)}}
    WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}}"""

WORDS = """
    UNION ALL
    SELECT
        reinterpretAsUInt128(sipHash128(concat(substring(target_kind, 1, 1), target_id))) AS target,
        word.1 AS role,
        toUnixTimestamp64Micro(word.2) AS at{columns}
    FROM (
        SELECT
            target_kind, target_id, name,
            argMax(last, (last.3, last.1, last.2)) AS latest,
            latest.5 OR has(groupArrayArray(taken_back), latest.2) AS silent,
            argMinIf(early, (early.1, early.2), early.2 != '') AS earliest,
            arrayJoin(
                [(1, latest.1, latest.4), (2, earliest.1, earliest.3)]
            ) AS word
        FROM (
            SELECT
                rater, target_kind, target_id, name, source,
                argMax(
                    (received_at, id, said_at, value, withdrawal),
                    (revision, sequence, said_at, received_at, id)
                ) AS last,
                groupUniqArrayIf(supersedes, withdrawal) AS taken_back,
                argMinIf((received_at, id, value), (received_at, id), NOT withdrawal) AS early
            FROM feedback_words(as_of = {{as_of:DateTime64(6, 'UTC')}})
            GROUP BY rater, target_kind, target_id, name, source
        )
        GROUP BY rater, target_kind, target_id, name
        HAVING word.1 = 2 OR NOT silent
    )"""

SUMS = """
per_target AS (
    SELECT any(who) AS whose, any(mine) AS post, any(simulated) AS acted{measures}
    FROM ({facts}
    ) AS fact
    INNER JOIN owners USING (target)
    WHERE (mine OR at < first) AND role != if(mine, 2, 1)
    GROUP BY target
),
per_unit AS (
    SELECT whose AS who, max(acted) AS scripted, countIf(NOT post) > 0 AS past{terms}
    FROM per_target
    GROUP BY whose
)"""

SEGMENTS = """
segments AS (
    SELECT who, argMax(said, (received_at, id)) AS segment
    FROM (
        SELECT reinterpretAsUInt128(sipHash128({unit})) AS who, {segment} AS said, received_at, id
        FROM events FINAL
        PREWHERE type = {{segment_type:String}}
        WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND said != ''
    ) AS told
    INNER JOIN exposures USING (who)
    WHERE received_at < exposed_at
    GROUP BY who
)"""

ARMS = """
SELECT
    arm, why, mixed{group}{whole}, count() AS n, max(scripted) AS simulated,
    sumMap(map(if(met = '', arm, met), toUInt64(1))) AS received{moments}
FROM (
    SELECT arm, why, drawn, mixed, met, first, scripted, past{group}{numbers}
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
