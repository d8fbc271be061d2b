"""One arm against the control, as the plan reads it: at every look, at planned looks, or once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from experiments.findings import Comparison, MetricReport
from experiments.metrics import ArmMoments, Metric
from experiments.plans import Plan
from experiments.stats import (
    Effect,
    QuantileSummary,
    adjust_pvalues,
    confidence_sequence,
    cr2_test,
    group_sequential_bounds,
    quantile_test,
    ratio_test,
    relative_interval,
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

    @property
    def harm_alpha(self) -> float:
        """Each guardrail's part of the error rate: any of them may stop a rollout."""
        return self.plan.alpha / max(1, len(self.plan.metrics.guardrails))

    @property
    def comparisons(self) -> int:
        """Goals times arms: so many chances to be wrong about a gain."""
        return len(self.plan.metrics.goals) * (len(self.plan.variants) - 1)


@dataclass(frozen=True)
class _Answer:
    interval: tuple[float, float] | None
    p_value: float | None
    reason: str | None
    method: str


def compare(
    reading: Reading, metric: Metric, control: ArmMoments, treatment: ArmMoments, *, is_rail: bool
) -> Comparison:
    """The effect, its interval by the plan's reading, and the lift that agrees with it."""
    plan = reading.plan
    effects = _quantiles if metric.quantile else _ratios
    absolute, relative = effects(metric, control, treatment)
    effect = absolute(plan.alpha)
    units = max(control.units + treatment.units, 1)
    answer = _READINGS[plan.reading](reading, effect, units, is_rail)
    lift = relative(_equivalent_alpha(effect, answer.interval))
    return Comparison(
        variant=treatment.variant,
        control=control.variant,
        effect=effect.estimate,
        interval=answer.interval,
        p_value=answer.p_value,
        relative_effect=lift.estimate,
        relative_interval=lift.ci if answer.interval else None,
        method=answer.method,
        reason=answer.reason,
        alpha=plan.alpha,
        harm_bound=_harm_bound(reading, metric, effect, units) if is_rail else None,
    )


_AtAlpha = Callable[[float], Effect]


def _ratios(
    metric: Metric, control: ArmMoments, treatment: ArmMoments
) -> tuple[_AtAlpha, _AtAlpha]:
    """The absolute and the relative effect at an error rate; of few units by CR2."""
    few = [arm.samples[metric.key].sums for arm in (control, treatment) if arm.samples]
    if len(few) == 2 and all(few):
        return (
            lambda alpha: cr2_test(*few, alpha=alpha),
            lambda alpha: cr2_test(*few, scale="relative", alpha=alpha),
        )
    pair = control.moments[metric.key], treatment.moments[metric.key]
    return (
        lambda alpha: ratio_test(*pair, alpha=alpha),
        lambda alpha: relative_interval(*pair, alpha=alpha),
    )


def _quantiles(
    metric: Metric, control: ArmMoments, treatment: ArmMoments
) -> tuple[_AtAlpha, _AtAlpha]:
    q = metric.quantile or 0.5
    pair = quantile_of(control, metric), quantile_of(treatment, metric)
    return (
        lambda alpha: quantile_test(*pair, q, alpha=alpha),
        lambda alpha: quantile_test(*pair, q, scale="relative", alpha=alpha),
    )


def quantile_of(arm: ArmMoments, metric: Metric) -> QuantileSummary:
    """The arm's, or that of an arm without an event."""
    sample = arm.samples.get(metric.key)
    if sample is None or sample.quantile is None:
        return QuantileSummary(metric.quantile or 0.5, 0, 0, None, None, None)
    return sample.quantile


def _once(_: Reading, effect: Effect, _units: int, _is_rail: bool) -> _Answer:
    return _Answer(effect.ci, effect.p_value, effect.reason, effect.method)


def _always(reading: Reading, effect: Effect, units: int, _is_rail: bool) -> _Answer:
    plan = reading.plan
    look = confidence_sequence(effect, units, tuning_n=plan.planned_units, alpha=plan.alpha)
    return _Answer(look.ci, look.p_value, look.reason, f"{effect.method}, confidence sequence")


def _planned(reading: Reading, effect: Effect, _units: int, is_rail: bool) -> _Answer:
    """By bounds that spend the error rate, shared by goals and arms (Bonferroni)."""
    method = f"{effect.method}, group sequential (O'Brien-Fleming spending)"
    if not reading.shares:
        return _Answer(None, None, "the first look comes after one whole day", method)
    alpha = reading.plan.alpha if is_rail else reading.plan.alpha / reading.comparisons
    bounds = group_sequential_bounds(reading.shares, alpha=alpha)
    look = repeated_interval(effect, bounds, len(reading.shares))
    return _Answer(look.ci, None, look.reason, f"{method}, look {len(reading.shares)}")


_READINGS = {"fixed": _once, "sequential": _always, "group_sequential": _planned}


def _harm_bound(reading: Reading, metric: Metric, effect: Effect, units: int) -> float | None:
    """How good the effect is at best; harm is watched at every look, whatever the reading."""
    plan = reading.plan
    side: Side = "upper" if metric.good == "up" else "lower"
    look = confidence_sequence(
        effect, units, tuning_n=plan.planned_units, alpha=reading.harm_alpha, side=side
    )
    if look.ci is None or look.reason:
        return None
    return look.ci[1] if side == "upper" else look.ci[0]


def with_holm(metrics: Sequence[MetricReport]) -> tuple[MetricReport, ...]:
    """Goals carry Holm's p, over all goals and arms that have a p."""
    p_values = [
        arm.p_value
        for each in metrics
        for arm in each.comparisons
        if each.role == "goal" and arm.p_value is not None
    ]
    if len(p_values) < 2:
        return tuple(metrics)
    adjusted = iter(adjust_pvalues(p_values, method="holm"))

    def carried(each: MetricReport, arm: Comparison) -> Comparison:
        if each.role != "goal" or arm.p_value is None:
            return arm
        return replace(arm, adjusted_p=float(next(adjusted)))

    return tuple(
        replace(each, comparisons=tuple(carried(each, arm) for arm in each.comparisons))
        for each in metrics
    )


def _equivalent_alpha(effect: Effect, interval: tuple[float, float] | None) -> float:
    """The error rate at which a fixed test is as wide as this look.

    Fieller at that rate inverts the looks' intervals of treatment - θ·control for every θ, so the
    relative interval is valid whenever they are and never contradicts the absolute one.
    """
    if interval is None or effect.std_error is None or effect.df is None:
        return effect.alpha
    width = (interval[1] - interval[0]) / (2 * effect.std_error)
    return max(student_p(width, effect.df), 1e-300)
