"""The facts of an experiment, read in one scan: exposure, and the moments of all its metrics."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

from experiments import _scan_sql as sql
from experiments._arms import MetricColumns, metric_columns
from experiments._fields import type_of
from experiments._measures import Metric, Segment
from experiments._plan import Plan
from experiments._reading import ArmMoments, Arms, Reading
from experiments.assign import ExperimentSpec
from ingest.store import Store

_UNITS = {"user": "user", "organization": "organization"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def scan(
    store: Store,
    spec: ExperimentSpec,
    metrics: Sequence[Metric],
    *,
    as_of: datetime,
    segment: Segment | None = None,
    matured: bool = False,
) -> Reading:
    """Moments of every metric for every arm, from facts received until `as_of`.

    Facts count since a unit's first exposure, within the metric's window, which no later exposure
    moves; facts from before are the covariates. `segment` splits units by what was known of them
    when they were first exposed. `matured` leaves units out whose window is not over at `as_of`.

    The answer depends on the set of facts only, to the last digit: not on their order, on
    duplicates, or on how many threads read them.

    Raises: Unavailable.
    """
    plan = Plan()
    at = (as_of - _EPOCH) // timedelta(microseconds=1) if matured else None
    columns = [
        metric_columns(plan, each, number, matured_at=at) for number, each in enumerate(metrics)
    ]
    statement = _statement(plan, _UNITS[spec.unit], columns, segment)
    if segment:
        plan.bound.values["segment_type"] = type_of(segment.fact)
    rows = store.rows(
        statement, **plan.bound.values, key=spec.key, version=spec.version, as_of=as_of
    )
    newest = store.rows(sql.NEWEST, as_of=as_of)[0]["newest"]
    return _reading(rows, columns, newest)


def _statement(
    plan: Plan, unit: str, columns: Sequence[MetricColumns], segment: Segment | None
) -> str:
    group, join, sets = "", "", "arm, why, mixed"
    levels = [sql.EXPOSURES.format(), sql.OWNERS.format(unit=unit), plan.sums()]
    if segment:
        said = plan.stored(segment.fact, segment.field)
        levels.append(sql.SEGMENTS.format(unit=unit, segment=said))
        group, join = ", segment", " LEFT JOIN segments USING (who)"
        sets = f"GROUPING SETS (({sets}), ({sets}, segment))"
    arms = sql.ARMS.format(
        group=group,
        whole=", grouping(segment) AS whole" if segment else "",
        moments="".join(f",\n    {each}" for column in columns for each in column.of_arms),
        numbers="".join(f",\n        {each}" for column in columns for each in column.of_units),
        segment_join=join,
        sets=sets,
    )
    return "WITH" + ",".join(levels) + _further(arms, columns)


def _further(arms: str, columns: Sequence[MetricColumns]) -> str:
    """With the columns that need others of the same arm first."""
    steps = [each.further for each in columns]
    for step in zip_longest(*steps, fillvalue=()):
        more = "".join(f", {each}" for part in step for each in part)
        arms = sql.FURTHER.format(columns=more, inner=arms)
    hidden = ", ".join(name for each in columns for name in each.hidden)
    return sql.SHOWN.format(hidden=hidden, inner=arms) if hidden else arms


def _reading(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[MetricColumns], newest: datetime | None
) -> Reading:
    parts: dict[str, list[Mapping[str, Any]]] = {}
    whole = []
    for row in rows:
        if row.get("whole", 1):
            whole.append(row)
        else:
            parts.setdefault(row["segment"], []).append(row)
    excluded: dict[str, int] = {}
    outside: dict[str, int] = {}
    for row in whole:
        kind, name = (outside, row["why"]) if row["why"] != "randomised" else (excluded, row["arm"])
        if row["mixed"] or kind is outside:
            kind[name] = kind.get(name, 0) + int(row["n"])
    return Reading(
        arms=_arms(whole, columns),
        excluded_units=sum(excluded.values()),
        newest_fact=newest,
        simulated=any(row["simulated"] for row in whole),
        excluded=excluded,
        outside=outside,
        segments={name: _arms(parts[name], columns) for name in sorted(parts)},
    )


def _arms(rows: Sequence[Mapping[str, Any]], columns: Sequence[MetricColumns]) -> Arms:
    measured = (row for row in rows if row["why"] == "randomised" and not row["mixed"])
    return {row["arm"]: _arm(row, columns) for row in sorted(measured, key=lambda row: row["arm"])}


def _arm(row: Mapping[str, Any], columns: Sequence[MetricColumns]) -> ArmMoments:
    samples = {each.metric.key: each.sample(row) for each in columns}
    return ArmMoments(
        variant=row["arm"],
        units=int(row["n"]),
        moments={key: each.moments for key, each in samples.items() if not each.quantile},
        samples=samples,
        received={arm: int(n) for arm, n in sorted(row["received"].items())},
    )
