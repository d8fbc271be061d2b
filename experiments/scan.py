"""The facts of an experiment, read in one scan: exposure, and the moments of all its metrics."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations_with_replacement, zip_longest
from typing import Any

from experiments import _scan_sql as sql
from experiments._arms import UnitColumns, quantile_steps, unit_columns
from experiments._fields import type_of
from experiments._measures import Metric, Segment
from experiments._plan import Plan, listed, micros
from experiments._reading import ArmMoments, Arms, Reading, Sample
from experiments.assign import ExperimentSpec
from experiments.stats.ratio import FEW_UNITS
from ingest.store import Store

_LARGE = ("units", "all", "of")

_Row = Mapping[str, Any]


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
    at = micros(as_of) if matured else None
    columns = [
        unit_columns(plan, each, number, matured_at=at) for number, each in enumerate(metrics)
    ]
    statement = _statement(plan, spec.unit, columns, segment)
    if segment:
        plan.bound.values["segment_type"] = type_of(segment.fact)
    rows = store.rows(
        statement, **plan.bound.values, key=spec.key, version=spec.version, as_of=as_of
    )
    return _reading(rows, columns, newest_fact(store, as_of))


def newest_fact(store: Store, as_of: datetime) -> datetime | None:
    """When the newest fact of the whole store came in, until then. Raises: Unavailable."""
    newest: datetime | None = store.rows(sql.NEWEST, as_of=as_of)[0]["newest"]
    return newest.replace(tzinfo=UTC) if newest else None


def _statement(
    plan: Plan, unit: str, columns: Sequence[UnitColumns], segment: Segment | None
) -> str:
    group, join, sets = "", "", "arm, why, mixed"
    levels = plan.levels(sql.EXPOSURES, sql.OWNERS, unit=unit)
    if segment:
        said = plan.row.stored(segment.fact, segment.field)
        levels += "," + sql.SEGMENTS.format(unit=unit, segment=said, earliest=sql.EARLIEST)
        group, join = ", segment", " LEFT JOIN segments USING (who)"
        sets = f"GROUPING SETS (({sets}), ({sets}, segment))"
    named = {f"q{n}": each for n, each in enumerate(columns) if each.events}
    arms = sql.ARMS.format(
        group=group,
        whole=", grouping(segment) AS whole" if segment else "",
        few=FEW_UNITS,
        events=listed(
            f"groupArrayIf({name}, measured AND {each.counts} AND notEmpty({name})) AS {name}units"
            for name, each in named.items()
        ),
        columns=listed([*_of_units(columns), *(f"{c.events} AS {n}" for n, c in named.items())]),
        counts=", ".join(each.counts for each in columns),
        is_new=", ".join(each.is_new for each in columns),
        is_above=", ".join(each.is_above for each in columns),
        caps=", ".join(each.cap for each in columns),
        numbers=", ".join(name for each in _names(columns) for name in each),
        products=", ".join(
            f"toInt128({a}) * {b}"
            for each in _names(columns)
            for a, b in combinations_with_replacement(each, 2)
        ),
        segment_join=join,
        sets=sets,
    )
    return levels + _with_quantiles(arms, plan, named)


def _names(columns: Sequence[UnitColumns]) -> list[list[str]]:
    """Of each metric's numbers of a unit."""
    return [
        [f"v{number}_{place}" for place in range(len(each.numbers))]
        for number, each in enumerate(columns)
    ]


def _of_units(columns: Sequence[UnitColumns]) -> Iterator[str]:
    for each, names in zip(columns, _names(columns), strict=True):
        yield from each.before
        for number, name in zip(each.numbers, names, strict=True):
            # Where a window must be over, the others add nothing.
            yield (
                f"{number} AS {name}"
                if each.counts == "true"
                else f"({number}) * ({each.counts}) AS {name}"
            )


def _with_quantiles(arms: str, plan: Plan, named: Mapping[str, UnitColumns]) -> str:
    """Each step in a SELECT of its own: an alias within an alias is analysed anew each time."""
    for step in zip_longest(*(quantile_steps(plan, each, name) for name, each in named.items())):
        arms = sql.FURTHER.format(columns=listed(c for part in step for c in part), inner=arms)
    large = ", ".join(f"{name}{kind}" for name in named for kind in _LARGE)
    return sql.SHOWN.format(hidden=large, inner=arms) if large else arms


def _reading(
    rows: Sequence[_Row], columns: Sequence[UnitColumns], newest: datetime | None
) -> Reading:
    whole = [row for row in rows if row.get("whole", 1)]
    parts = sorted({row["segment"] for row in rows if not row.get("whole", 1)})
    drawn = [row for row in whole if row["why"] == "randomised"]
    excluded = _units((row["arm"], row) for row in drawn if row["mixed"])
    return Reading(
        arms=_arms(whole, columns),
        excluded_units=sum(excluded.values()),
        newest_fact=newest,
        simulated=any(row["simulated"] for row in whole),
        excluded=excluded,
        outside=_units((row["why"], row) for row in whole if row not in drawn),
        segments={
            part: _arms([row for row in rows if row.get("segment") == part and not row["whole"]], columns)
            for part in parts
        },
    )  # fmt: skip


def _units(rows: Iterator[tuple[str, _Row]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, row in rows:
        found[name] = found.get(name, 0) + int(row["n"])
    return dict(sorted(found.items()))


def _arms(rows: Sequence[_Row], columns: Sequence[UnitColumns]) -> Arms:
    measured = (row for row in rows if row["why"] == "randomised" and not row["mixed"])
    return {row["arm"]: _arm(row, columns) for row in sorted(measured, key=lambda row: row["arm"])}


def _arm(row: _Row, columns: Sequence[UnitColumns]) -> ArmMoments:
    samples: dict[str, Sample] = {}
    start = products = 0
    for number, each in enumerate(columns):
        samples[each.metric.key] = each.sample(row, number, start, products)
        start += len(each.numbers)
        products += len(each.numbers) * (len(each.numbers) + 1) // 2
    return ArmMoments(
        variant=row["arm"],
        units=int(row["n"]),
        moments={key: each.moments for key, each in samples.items() if not each.quantile},
        samples=samples,
        received={arm: int(n) for arm, n in sorted(row["received"].items())},
    )
