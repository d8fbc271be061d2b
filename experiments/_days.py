"""Whether effects fade or grow: by day since each unit's own first exposure, of one cohort."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import _scan_sql as sql
from experiments._arms import unit_columns
from experiments._exact import Exact
from experiments._plan import Plan, listed, micros
from experiments.assign import ExperimentSpec
from experiments.findings import DayEffect, NoveltyReport
from experiments.metrics import Metric
from experiments.stats import novelty_test, ratio_test
from ingest.store import Store

DAYS = 7
"""Each weekday once, whatever day a unit came on."""

_DAY_S = 86_400

# Sums of whole numbers, as in the report's scan: moments of all days, and of every two together.
_ARMS = """
SELECT arm, count() AS n, sumForEach(numbers) AS sums, sumForEach(products) AS products
FROM (
    SELECT
        arm,
        CAST([{numbers}], 'Array(Int128)') AS numbers,
        CAST([{products}], 'Array(Int128)') AS products
    FROM (
        SELECT arm{columns}
        FROM exposures LEFT JOIN per_unit USING (who)
        WHERE drawn AND NOT mixed AND first <= {last}
    )
)
GROUP BY arm"""


def effects_by_day(
    store: Store,
    spec: ExperimentSpec,
    metrics: Iterable[Metric],
    *,
    as_of: datetime,
    alpha: float,
) -> tuple[NoveltyReport, ...]:
    """Of every metric but quantiles, arm by arm, over the units first exposed 7 days ago or more.

    A fact belongs to the day on which it and its completion had both come in. Caps do not hold.
    Raises: Unavailable.
    """
    control, *arms = [each.key for each in spec.variants]
    found: list[NoveltyReport] = []
    for metric in metrics:
        if metric.quantile:
            continue
        sums = _sums(store, spec, replace(metric, cap=None), as_of)
        found += [_novelty(metric, arm, (sums[control], sums[arm]), alpha) for arm in arms]
    return tuple(found)


def _sums(
    store: Store, spec: ExperimentSpec, metric: Metric, as_of: datetime
) -> Mapping[str, Exact]:
    """Numerator and denominator of each day in turn, by arm."""
    plan = Plan()
    until = [
        unit_columns(plan, replace(metric, window_s=window), day, matured_at=None)
        for day, window in enumerate(_windows(metric))
    ]
    names = [f"v{place}" for place in range(2 * len(until))]
    totals = [each.numbers[:2] for each in until]
    columns = [
        f"{_less(total, before)} AS {name}"
        for name, total, before in zip(names, _flat(totals), _before(totals), strict=True)
    ]
    last = micros(as_of - timedelta(days=DAYS))
    arms = _ARMS.format(
        numbers=", ".join(names),
        products=", ".join(
            f"toInt128({a}) * {b}" for a, b in combinations_with_replacement(names, 2)
        ),
        columns=listed(columns),
        last=plan.bound(last, "Int64"),
    )
    levels = plan.levels(sql.EXPOSURES, sql.OWNERS, unit=spec.unit)
    rows = store.rows(
        levels + arms,
        **plan.bound.values, key=spec.key, version=spec.version, as_of=as_of,
    )  # fmt: skip
    scales = [scale for each in until for scale in each.scales[:2]]
    read = {row["arm"]: _exact(row, scales) for row in rows}
    nobody = Exact(0, [0] * len(scales), [0] * len(scales) ** 2, scales)
    return {each.key: read.get(each.key, nobody) for each in spec.variants}


def _windows(metric: Metric) -> list[int]:
    """The ends of the days, as far as the metric's own window goes."""
    ends = [(day + 1) * _DAY_S for day in range(DAYS)]
    most = metric.window_s
    return ends if most is None else [end for end in ends if end <= most] or [most]


def _flat(totals: Sequence[Sequence[str]]) -> list[str]:
    return [number for pair in totals for number in pair]


def _before(totals: Sequence[Sequence[str]]) -> list[str]:
    """What the days before add up to."""
    return ["", "", *_flat(totals[:-1])]


def _less(total: str, before: str) -> str:
    # A unit is one on every day.
    return total if not before or total == before else f"({total}) - ({before})"


def _exact(row: Mapping[str, Any], scales: Sequence[int]) -> Exact:
    return Exact(int(row["n"]), row["sums"], row["products"], scales)


def _novelty(
    metric: Metric, variant: str, arms: tuple[Exact, Exact], alpha: float
) -> NoveltyReport:
    days = range(len(_windows(metric)))
    effects = {
        day: ratio_test(*(arm.moments(2 * day, 2 * day + 1) for arm in arms), alpha=alpha)
        for day in days
    }
    fit = not any(each.reason for each in effects.values())
    found = novelty_test(
        effects, correlation=_correlation(arms, len(days)) if fit else None, alpha=alpha
    )
    return NoveltyReport(
        metric=metric.key,
        title=metric.title,
        variant=variant,
        cohort_days=DAYS,
        units=(arms[0].n, arms[1].n),
        days=tuple(DayEffect(day, each.estimate, each.ci, each.reason) for day, each in found.days),
        slope=found.slope.estimate,
        interval=found.slope.ci,
        p_value=found.slope.p_value,
        trend=found.trend,
        reason=found.slope.reason,
        method=found.slope.method,
    )


def _correlation(arms: Iterable[Exact], days: int) -> NDArray[np.float64]:
    """Of the days' effects, as `day_correlation` finds it from the units themselves."""
    covariance = np.zeros((days, days))
    for arm in arms:
        size = np.array([arm.mean(2 * day + 1) for day in range(days)])
        ratio = np.array([arm.mean(2 * day) for day in range(days)]) / size
        places = range(2 * days)
        raw = np.array([[arm.cov(i, j) for j in places] for i in places])
        # A unit's day is (numerator - ratio * denominator) / mean denominator.
        slopes = np.zeros((days, 2 * days))
        for day in range(days):
            slopes[day, 2 * day : 2 * day + 2] = 1 / size[day], -ratio[day] / size[day]
        covariance += slopes @ raw @ slopes.T / arm.n
    scale = np.sqrt(np.diag(covariance))
    correlation = np.asarray(covariance / np.outer(scale, scale))
    np.fill_diagonal(correlation, 1.0)
    return correlation
