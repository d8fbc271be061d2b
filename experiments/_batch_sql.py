"""The statement of a bandit: units by the batch they came in with, all batches in one scan."""

from experiments import _scan_sql as sql

# A unit that two processes dealt to within the same second, in two batches, is of the first.
EXPOSURES = """
exposures AS (
    SELECT
        data.unit AS unit,
        bitShiftRight(sipHash64(unit), 1) AS who,
        true AS drawn,
        false AS mixed,
        argMin(toUInt32(assumeNotNull(data.version)), (received_at, id)) AS batch,
        argMin(variant, (received_at, id)) AS arm,
        toUnixTimestamp64Micro(min(received_at)) AS first
    FROM events
    PREWHERE type = 'thumbwheel.experiment.exposed.v1' AND experiment = {{key:String}}
    WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}} AND data.reason = 'randomised'
        AND ifNull(data.version BETWEEN {{version:UInt32}} AND {{until:UInt32}}, 0)
        AND {earliest}
    GROUP BY unit
)"""

OWNERS = sql.OWNERS.replace(
    "data.version = {{version:UInt32}}",
    "data.version BETWEEN {{version:UInt32}} AND {{until:UInt32}}",
)

BATCHES = """
SELECT
    batch, arm, count() AS n, max(scripted) AS simulated, countIf(ripe) AS counted,
    [sumIf(top, ripe), sumIf(below, ripe)] AS sums,
    [sumIf(top * top, ripe), sumIf(top * below, ripe), sumIf(below * below, ripe)] AS products
FROM (
    SELECT
        batch, arm, first, scripted, true AS measured{before}, ({counts}) AS ripe,
        toInt128({top}) AS top, toInt128({below}) AS below
    FROM exposures LEFT JOIN per_unit USING (who)
)
GROUP BY batch, arm"""
