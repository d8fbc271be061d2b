"""What a switchback found: periods are its units, however many users and answers they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import _period_sql as period_sql
from experiments._arms import UnitColumns, unit_columns
from experiments._plan import Plan as Columns
from experiments._plan import listed, micros
from experiments.allocations import InPeriods
from experiments.metrics import METRICS, Metric
from experiments.plans import Experiment
from experiments.scan import newest_fact
from experiments.stats import holm, switchback_effect, switchback_test
from experiments.stats.switchback import MIN_WINDOWS
from ingest.errors import BadInput, Conflict
from ingest.store import Store

_MICRO = 1_000_000
_MOST_PERIODS = 100_000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Periods:
    """Those that are over. Arms are those of the schedule, in the plan's order of variants."""

    starts_at: str
    period_s: int
    wash_in_s: int
    carryover: int
    dealt: Mapping[str, int]


@dataclass(frozen=True)
class PeriodEffect:
    """One metric. `means` are of its value in the periods of each arm, and describe; the effect is
    of always treating against never, in the metric's unit.

    `p_value` is exact over all schedules that could have been drawn; `adjusted_p` is Holm's over
    several goals. `note` says why there is no interval, `reason` why there is no answer at all.
    """

    metric: Metric
    role: str
    margin: float | None
    empty: Mapping[str, int]
    """Periods without a value, by arm: a difference between arms would be a bias."""
    means: Mapping[str, float | None]
    effect: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    adjusted_p: float | None
    method: str
    note: str | None
    reason: str | None


@dataclass(frozen=True)
class SwitchbackReport:
    experiment: dict[str, Any]
    as_of: str
    periods: Periods
    newest_fact: str | None
    simulated: bool
    alpha: float
    metrics: tuple[PeriodEffect, ...]


@dataclass(frozen=True)
class _Design:
    """The schedule of the periods that are over, and how to read it."""

    arms: Sequence[int]
    share: float
    how: InPeriods
    names: tuple[str, str]
    alpha: float

    def told(self, starts_at: datetime) -> Periods:
        dealt = {name: self.arms.count(arm) for arm, name in enumerate(self.names)}
        how = self.how
        return Periods(starts_at.isoformat(), how.period_s, how.wash_in_s, how.carryover, dealt)


def switchback_report(
    store: Store, experiment: Experiment, *, as_of: datetime | None = None
) -> SwitchbackReport:
    """The effects, period by period, from facts received until `as_of` (now).

    Periods of a schedule that is fixed by the salt are compared, by the test of Fisher and the
    estimator of Bojinov, Simchi-Levi & Zhao (Management Science 2023). One look is planned: the p
    does not hold for who looks often and stops when it is small.

    Raises: Conflict if it is no switchback or has not begun; BadInput if it would have more than
        100,000 periods by then; Unavailable.
    """
    at, plan = as_of or datetime.now(UTC), experiment.plan
    design, starts_at = _design(experiment, at)
    count = len(design.arms)
    metrics = [*plan.metrics.goals, *(each.metric for each in plan.metrics.guardrails)]
    margins = [
        *(None for _ in plan.metrics.goals),
        *(each.margin for each in plan.metrics.guardrails),
    ]
    outcomes, simulated = _outcomes(store, experiment, [METRICS[key] for key in metrics], count, at)
    newest = newest_fact(store, at)
    return SwitchbackReport(
        experiment=experiment.public(),
        as_of=at.isoformat(),
        periods=design.told(starts_at),
        newest_fact=newest.isoformat() if newest else None,
        simulated=simulated,
        alpha=plan.alpha,
        metrics=_with_holm(
            [
                _effect(design, METRICS[key], margin, y)
                for key, margin, y in zip(metrics, margins, outcomes, strict=True)
            ]
        ),
    )


def _design(experiment: Experiment, at: datetime) -> tuple[_Design, datetime]:
    key, how, switching = experiment.plan.key, experiment.plan.allocation, experiment.switchback
    if not isinstance(how, InPeriods):
        raise Conflict(f"{key!r} is no switchback; see GET /v1/experiments/{key}/report")
    if switching is None:
        raise Conflict(f"{key!r} has no periods yet; start it")
    stopped, spec = experiment.stopped_at, experiment.spec
    ends = min(at, datetime.fromisoformat(stopped)) if stopped else at
    count = max(0, (ends - switching.starts_at) // timedelta(seconds=how.period_s))
    if count > _MOST_PERIODS:
        raise BadInput.of("as_of", f"{count:,} periods until then; the most is {_MOST_PERIODS:,}")
    arms = switching.schedule(count, spec.salt, spec.weights)
    names, share = (spec.variants[0].key, spec.variants[1].key), spec.weights[1] / sum(spec.weights)
    return _Design(arms, share, how, names, experiment.plan.alpha), switching.starts_at


def _outcomes(
    store: Store, experiment: Experiment, metrics: Sequence[Metric], count: int, at: datetime
) -> tuple[list[Floats], bool]:
    """Each metric's value in each period, NaN where there is none; and whether any is simulated."""
    how, switching = experiment.plan.allocation, experiment.switchback
    if not (isinstance(how, InPeriods) and switching and count):
        return [np.empty(0) for _ in metrics], False
    plan = Columns()
    columns = [unit_columns(plan, each, n, matured_at=None) for n, each in enumerate(metrics)]
    # The whole numbers of a period: the sum above the line and the one below it.
    shown = (
        f"{each.numbers[place]} AS v{n}_{place}"
        for n, each in enumerate(columns)
        for place in (0, 1)
    )
    rows = store.rows(
        plan.levels(period_sql.PERIODS) + period_sql.OUTCOMES.format(columns=listed(shown)),
        **plan.bound.values,
        key=experiment.plan.key,
        version=experiment.version,
        as_of=at,
        last=count - 1,
        starts=micros(switching.starts_at),
        length=how.period_s * _MICRO,
        wash_in=how.wash_in_s * _MICRO,
    )
    found = [_series(rows, each, n, count) for n, each in enumerate(columns)]
    return found, any(row["scripted"] for row in rows)


def _series(
    rows: Sequence[Mapping[str, Any]], columns: UnitColumns, number: int, count: int
) -> Floats:
    values = np.full(count, np.nan)
    for row in rows:
        if below := int(row[f"v{number}_1"]) / columns.scales[1]:
            values[int(row["period"])] = int(row[f"v{number}_0"]) / columns.scales[0] / below
    return values


def _effect(design: _Design, metric: Metric, margin: float | None, y: Floats) -> PeriodEffect:
    arms = np.asarray(design.arms, dtype=np.int64)
    there = np.isfinite(y)
    empty = {name: int((~there & (arms == arm)).sum()) for arm, name in enumerate(design.names)}
    means = {
        name: float(y[own].mean()) if (own := there & (arms == arm)).any() else None
        for arm, name in enumerate(design.names)
    }
    role = "goal" if margin is None else "guardrail"
    nothing = PeriodEffect(
        metric, role, margin, empty, means, None, None, None, None, "switchback", None, None
    )
    carryover = design.how.carryover
    if carryover and not there.all():
        first = int(np.argmin(there))
        reason = f"period {first} has no value, and effects that carry over need every period"
        return replace(nothing, reason=reason)
    if None in means.values() or there.sum() <= carryover + 1:
        return replace(nothing, reason="an arm has had no period with a value yet")
    return _answer(nothing, design, arms[there].tolist(), y[there])


def _answer(nothing: PeriodEffect, design: _Design, arms: list[int], y: Floats) -> PeriodEffect:
    carryover, p = design.how.carryover, design.share
    levelled = (y - _levels(y, carryover)).tolist()
    found = switchback_effect(arms, levelled, carryover=carryover, p=p, alpha=design.alpha)
    if found.reason or not (found.n_control and found.n_treatment):
        reason = found.reason or f"no {carryover + 1} periods in a row had one of the arms"
        return replace(nothing, reason=reason)
    note = None
    if found.method.endswith("few blocks"):
        note = (
            f"too few periods for an interval: it needs {MIN_WINDOWS} windows of the rarer arm or "
            "more; estimate and p hold"
        )
    return replace(
        nothing,
        effect=found.estimate,
        interval=None if note else found.ci,
        p_value=switchback_test(arms, levelled, carryover=carryover, p=p),
        method=f"{found.method}, randomisation test",
        note=note,
    )


def _levels(y: Floats, carryover: int) -> Floats:
    """Each period's level as the others have it: the mean of those whose arms it shares nothing with.

    It follows from other draws than the period's own weight does, so taking it off leaves the
    estimate unbiased and takes the outcome's level out of its variance. The test stays exact: where
    no arm has an effect, nothing of it depends on the schedule.
    Source: E. Wu & J. Gagnon-Bartsch, Evaluation Review 42 (2018) 458-488.
    """
    count, sums = len(y), np.concatenate([[0.0], np.cumsum(y)])
    at = np.arange(count)
    low, high = np.maximum(at - carryover, 0), np.minimum(at + carryover + 1, count)
    apart = count - (high - low)
    rest = sums[-1] - (sums[high] - sums[low])
    levels: Floats = np.divide(rest, apart, out=np.zeros(count), where=apart > 0)
    return levels


def _with_holm(effects: Sequence[PeriodEffect]) -> tuple[PeriodEffect, ...]:
    asked = [each.p_value if each.role == "goal" else None for each in effects]
    if sum(p is not None for p in asked) < 2:
        return tuple(effects)
    pairs = zip(effects, holm(asked), strict=True)
    return tuple(replace(each, adjusted_p=p_value) for each, p_value in pairs)
