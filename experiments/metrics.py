"""Metric definitions, and the one statement that turns facts into per-unit moments of all of them.

Every metric is a ratio of two sums over a unit's facts. Facts count when they hang on a completion
that the experiment served to the unit at random: outcomes are joined to the exact completion, turn
or diff, never matched by time, so no clock can move them into another arm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from experiments.assign import ExperimentSpec
from experiments.stats import Moments
from ingest.errors import BadInput
from ingest.store import Store


@dataclass(frozen=True)
class Metric:
    """`numerator` and `denominator` are sums over the per-unit columns of `_PER_UNIT`."""

    key: str
    title: str
    definition: str
    numerator: str
    denominator: str
    good: Literal["up", "down"] = "up"

    def public(self) -> dict[str, str]:
        return asdict(self)


_LIBRARY = (
    Metric(
        "thumbs_net",
        "net thumbs per completion",
        "(thumbs up − thumbs down) ÷ completions served; each rater's last word on each target.",
        "up - down",
        "completions",
    ),
    Metric(
        "thumbs_response",
        "thumbs per completion",
        "(thumbs up + thumbs down) ÷ completions served. If it moves between arms, the share of "
        "ups among thumbs cannot be compared.",
        "up + down",
        "completions",
    ),
    Metric(
        "undo_rate",
        "undone edits per proposed edit",
        "edits with a diff.reverted fact ÷ edits proposed.",
        "reverted",
        "edits",
        "down",
    ),
    Metric(
        "error_rate",
        "failed completions per completion",
        "completions that ended in an error ÷ completions served; cancelled ones are no errors.",
        "errors",
        "completions",
        "down",
    ),
)
METRICS: Mapping[str, Metric] = {metric.key: metric for metric in _LIBRARY}


def metric(key: str, field: str) -> Metric:
    """The metric of that key. Raises: BadInput naming `field` and the keys there are."""
    if key not in METRICS:
        raise BadInput.of(field, f"no metric {key!r}; there are {', '.join(METRICS)}")
    return METRICS[key]


@dataclass(frozen=True)
class ArmMoments:
    """One arm: how many units met it, and the moments of each metric over them."""

    variant: str
    units: int
    moments: Mapping[str, Moments]


@dataclass(frozen=True)
class Reading:
    """What the facts say as of a time."""

    arms: Mapping[str, ArmMoments]
    excluded_units: int
    """Units that met two arms; they count in none."""
    newest_fact: datetime | None
    """Of the whole store: how fresh it is, also where an experiment has no unit yet."""
    simulated: bool


# {unit} is a column name out of a closed set; every value is bound.
_PER_UNIT = """
WITH
known AS (SELECT * FROM events FINAL WHERE received_at <= {{as_of:DateTime64(6, 'UTC')}}),
exposures AS (
    SELECT JSONExtractString(body, 'data', 'unit') AS unit,
           argMin(variant, (received_at, id)) AS arm, uniqExact(variant) AS arms
    FROM known
    WHERE type = 'thumbwheel.experiment.exposed.v1' AND experiment = {{key:String}}
      AND JSONExtractUInt(body, 'data', 'version') = {{version:UInt32}}
      AND JSONExtractString(body, 'data', 'reason') = 'randomised'
    GROUP BY unit
),
served AS (
    SELECT completion, turn, {unit} AS unit, JSONExtractString(body, 'data', 'outcome') AS outcome,
           JSONExtractBool(body, 'data', 'simulated') AS simulated
    FROM known
    WHERE type = 'thumbwheel.completion.finished.v1' AND experiment = {{key:String}}
      AND JSONExtractUInt(body, 'data', 'version') = {{version:UInt32}}
      AND JSONExtractString(body, 'data', 'reason') = 'randomised'
),
answers AS (
    SELECT ('completion', completion) AS target, any(served.unit) AS unit FROM served
    GROUP BY completion
    UNION ALL
    SELECT ('turn', turn) AS target, any(served.unit) AS unit FROM served
    WHERE turn != '' GROUP BY turn HAVING uniqExact(served.unit) = 1
),
edits AS (
    SELECT proposed.diff AS diff, answers.unit AS unit
    FROM (
        SELECT diff, min(if(completion != '', ('completion', completion), ('turn', turn))) AS target
        FROM known WHERE type = 'thumbwheel.diff.proposed.v1' GROUP BY diff
    ) AS proposed
    INNER JOIN answers ON proposed.target = answers.target
),
undone AS (
    SELECT DISTINCT diff FROM known WHERE type = 'thumbwheel.diff.reverted.v1' AND diff != ''
),
targets AS (
    SELECT target, unit FROM answers UNION ALL SELECT ('diff', diff) AS target, unit FROM edits
),
counted AS (
    SELECT unit, 1 AS completions, outcome = 'error' AS errors, 0 AS up, 0 AS down, 0 AS edits,
           0 AS reverted, simulated
    FROM served
    UNION ALL
    SELECT targets.unit AS unit, 0, 0, ifNull(value > 0, 0), ifNull(value <= 0, 0), 0, 0, 0
    FROM current_feedback(as_of = {{as_of:DateTime64(6, 'UTC')}}) AS rated
    INNER JOIN targets ON (rated.target_kind, rated.target_id) = targets.target
    WHERE rated.name = 'thumb'
    UNION ALL
    SELECT unit, 0, 0, 0, 0, 1, diff IN (SELECT diff FROM undone), 0 FROM edits
),
sums AS (
    SELECT unit, sum(completions) AS completions, sum(errors) AS errors,
           sum(up) AS up, sum(down) AS down, sum(edits) AS edits, sum(reverted) AS reverted,
           max(simulated) AS simulated
    FROM counted GROUP BY unit
)
"""

_MOMENTS = """
SELECT arm, arms > 1 AS mixed, count() AS n, max(simulated) AS simulated,
{columns}
FROM exposures LEFT JOIN sums USING (unit)
GROUP BY arm, mixed
"""

_NEWEST = """
SELECT maxOrNull(received_at) AS newest FROM events
WHERE received_at <= {as_of:DateTime64(6, 'UTC')}
"""


def read(
    store: Store, spec: ExperimentSpec, metrics: Sequence[Metric], *, as_of: datetime
) -> Reading:
    """Moments of every metric for every arm, from facts received until `as_of`.

    Raises: Unavailable.
    """
    columns = ",\n".join(_columns(index, each) for index, each in enumerate(metrics))
    sql = _PER_UNIT.format(unit=spec.unit) + _MOMENTS.format(columns=columns)
    rows = store.rows(sql, key=spec.key, version=spec.version, as_of=as_of)
    arms = {
        row["arm"]: ArmMoments(
            row["arm"],
            row["n"],
            {each.key: _moments(row, index) for index, each in enumerate(metrics)},
        )
        for row in rows
        if not row["mixed"]
    }
    excluded = sum(row["n"] for row in rows if row["mixed"])
    return Reading(
        arms,
        excluded,
        newest_fact=store.rows(_NEWEST, as_of=as_of)[0]["newest"],
        simulated=any(row["simulated"] for row in rows),
    )


def _columns(index: int, each: Metric) -> str:
    """Whole-number sums: exact, so no order of rows or threads changes a digit of the report."""
    top, bottom = (f"toInt128({part})" for part in (each.numerator, each.denominator))
    return (
        f"sum({top}) AS top_{index}, sum({top} * {top}) AS top_top_{index}, "
        f"sum({bottom}) AS bottom_{index}, sum({bottom} * {bottom}) AS bottom_bottom_{index}, "
        f"sum({top} * {bottom}) AS top_bottom_{index}"
    )


def _moments(row: Mapping[str, Any], index: int) -> Moments:
    n = int(row["n"])
    top, bottom = int(row[f"top_{index}"]), int(row[f"bottom_{index}"])

    def spread(name: str, a: int, b: int) -> float:
        # Integers do not cancel; only this last division rounds.
        return (n * int(row[f"{name}_{index}"]) - a * b) / (n * (n - 1)) if n > 1 else 0.0

    return Moments(
        n=n,
        mean=top / n,
        var=spread("top_top", top, top),
        den_mean=bottom / n,
        den_var=spread("bottom_bottom", bottom, bottom),
        cov=spread("top_bottom", top, bottom),
    )
