"""What an effect says as the plan reads it: at every look, at planned looks, or once."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.metrics import Metric
from experiments.plans import Plan
from experiments.stats import (
    Effect,
    confidence_sequence,
    group_sequential_bounds,
    repeated_interval,
    student_p,
)
from experiments.stats.sequential import Side


@dataclass(frozen=True)
class Reading:
    """How much may be said at this look."""

    plan: Plan
    shares: Sequence[float] = ()
    """Of the planned units, at each look up to this one; for planned looks only."""
    family: int = 1
    """Questions asked together beyond goals and arms: each has its part of the error rate."""

    @property
    def alpha(self) -> float:
        """Of one interval."""
        return self.plan.alpha / self.family

    @property
    def harm_alpha(self) -> float:
        """Each guardrail's part of the error rate: any of them may stop a rollout."""
        return self.plan.alpha / max(1, len(self.plan.metrics.guardrails))

    @property
    def comparisons(self) -> int:
        """Goals times arms: so many chances to be wrong about a gain."""
        return len(self.plan.metrics.goals) * (len(self.plan.variants) - 1)


@dataclass(frozen=True)
class Answer:
    interval: tuple[float, float] | None
    p_value: float | None
    reason: str | None
    method: str


def answer(reading: Reading, effect: Effect, units: int, *, shared: bool) -> Answer:
    """The interval and p that the plan's reading allows after `units` of both arms.

    `shared`: one of several goals and arms, among which planned looks split the error rate.
    """
    return _READINGS[reading.plan.reading](reading, effect, units, shared)


def harm_bound(reading: Reading, metric: Metric, effect: Effect, units: int) -> float | None:
    """How good the effect is at best; harm is watched at every look, whatever the reading."""
    side: Side = "upper" if metric.good == "up" else "lower"
    look = confidence_sequence(
        effect, units, tuning_n=reading.plan.planned_units, alpha=reading.harm_alpha, side=side
    )
    if look.ci is None or look.reason:
        return None
    return look.ci[1] if side == "upper" else look.ci[0]


def equivalent_alpha(effect: Effect, interval: tuple[float, float] | None) -> float:
    """The error rate at which a fixed test is as wide as this look.

    Fieller at that rate inverts the looks' intervals of treatment - θ·control for every θ, so the
    relative interval is valid whenever they are and never contradicts the absolute one.
    """
    if interval is None or effect.std_error is None or effect.df is None:
        return effect.alpha
    width = (interval[1] - interval[0]) / (2 * effect.std_error)
    return max(student_p(width, effect.df), 1e-300)


def _once(_: Reading, effect: Effect, _units: int, _shared: bool) -> Answer:
    return Answer(effect.ci, effect.p_value, effect.reason, effect.method)


def _always(reading: Reading, effect: Effect, units: int, _shared: bool) -> Answer:
    look = confidence_sequence(
        effect, units, tuning_n=reading.plan.planned_units, alpha=reading.alpha
    )
    return Answer(look.ci, look.p_value, look.reason, f"{effect.method}, confidence sequence")


def _planned(reading: Reading, effect: Effect, _units: int, shared: bool) -> Answer:
    """By bounds that spend the error rate, shared by goals and arms (Bonferroni)."""
    method = f"{effect.method}, group sequential (O'Brien-Fleming spending)"
    if not reading.shares:
        return Answer(None, None, "the first look comes after one whole day", method)
    alpha = reading.alpha / reading.comparisons if shared else reading.alpha
    bounds = group_sequential_bounds(reading.shares, alpha=alpha)
    look = repeated_interval(effect, bounds, len(reading.shares))
    return Answer(look.ci, None, look.reason, f"{method}, look {len(reading.shares)}")


_READINGS = {"fixed": _once, "sequential": _always, "group_sequential": _planned}
