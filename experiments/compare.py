"""One arm against the control: the effect with its past taken off, its interval, its lift."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from experiments._answers import Answer, Reading, answer, equivalent_alpha, harm_bound
from experiments._thumbs import thumbs
from experiments.findings import Adjustment, Comparison, MetricReport
from experiments.metrics import ArmMoments, Metric
from experiments.stats import (
    Effect,
    PreMoments,
    QuantileSummary,
    cr2_test,
    cuped,
    holm,
    pre_imbalance,
    quantile_test,
    ratio_test,
    relative_interval,
)

__all__ = ["Reading", "compare", "quantile_of", "with_holm"]

_AtAlpha = Callable[[float], Effect]
_Scales = tuple[_AtAlpha, _AtAlpha]
"""The absolute and the relative effect at an error rate."""


def compare(
    reading: Reading, metric: Metric, control: ArmMoments, treatment: ArmMoments, *, is_rail: bool
) -> Comparison:
    """The effect, its interval by the plan's reading, and the lift that agrees with it.

    Where units have a past, the effect is CUPED's at every look, from the first one on. No threshold
    of units or of gain chooses between two estimates, which a look might cross: as long as pasts do
    not vary the adjustment is 0, and the first few that do move next to nothing. So all looks are of
    one estimator, and one confidence sequence.
    """
    plain = _plain(metric, control, treatment)
    past = _past(metric, control, treatment)
    absolute, relative = _adjusted(past) if past else plain
    effect = absolute(reading.alpha)
    units = max(control.units + treatment.units, 1)
    found = answer(reading, effect, units, shared=not is_rail)
    lift = relative(equivalent_alpha(effect, found.interval))
    return Comparison(
        variant=treatment.variant,
        control=control.variant,
        effect=effect.estimate,
        interval=found.interval,
        p_value=found.p_value,
        relative_effect=lift.estimate,
        relative_interval=lift.ci if found.interval else None,
        method=found.method,
        reason=found.reason,
        alpha=reading.plan.alpha,
        harm_bound=harm_bound(reading, metric, effect, units) if is_rail else None,
        adjustment=_adjustment(past, plain, reading, units, is_rail=is_rail) if past else None,
        feedback=thumbs(reading, metric, control, treatment),
    )


def compare_plainly(
    reading: Reading, metric: Metric, control: ArmMoments, treatment: ArmMoments
) -> tuple[Effect, Answer]:
    """The effect as it is, without the units' past, and what the plan's reading says of it."""
    effect = _plain(metric, control, treatment)[0](reading.alpha)
    units = max(control.units + treatment.units, 1)
    return effect, answer(reading, effect, units, shared=False)


@dataclass(frozen=True)
class _Past:
    """Both arms with a covariate that says something, and how much."""

    control: PreMoments
    treatment: PreMoments
    variance_factor: float
    note: str | None


def _past(metric: Metric, control: ArmMoments, treatment: ArmMoments) -> _Past | None:
    """None where nothing is to be taken off, and of few units, which CR2 reads."""
    pasts = [sample.pre for arm in (control, treatment) if (sample := arm.samples.get(metric.key))]
    if len(pasts) < 2 or not (pasts[0] and pasts[1]) or _few(metric, control, treatment):
        return None
    found = cuped(pasts[0], pasts[1])
    if not (found.thetas and any(found.thetas) and found.variance_factor):
        return None
    return _Past(pasts[0], pasts[1], found.variance_factor, found.note)


def _adjusted(past: _Past) -> _Scales:
    pair = past.control, past.treatment
    return (
        lambda alpha: cuped(*pair, alpha=alpha).absolute,
        lambda alpha: cuped(*pair, alpha=alpha).relative,
    )


def _adjustment(
    past: _Past, plain: _Scales, reading: Reading, units: int, *, is_rail: bool
) -> Adjustment:
    effect = plain[0](reading.alpha)
    found = answer(reading, effect, units, shared=not is_rail)
    metrics = len(reading.plan.metrics.goals) + len(reading.plan.metrics.guardrails)
    covariates = metrics * (len(reading.plan.variants) - 1)
    before = pre_imbalance(past.control, past.treatment, covariates=covariates)
    return Adjustment(
        effect=effect.estimate,
        interval=found.interval,
        p_value=found.p_value,
        variance_factor=past.variance_factor,
        imbalance_p=before.p_value,
        is_imbalanced=before.p_value is not None and before.p_value < before.alpha,
        note=past.note,
    )


def _plain(metric: Metric, control: ArmMoments, treatment: ArmMoments) -> _Scales:
    """As it was measured; of few units by CR2."""
    if metric.quantile:
        return _quantiles(metric, control, treatment)
    if few := _few(metric, control, treatment):
        return (
            lambda alpha: cr2_test(*few, alpha=alpha),
            lambda alpha: cr2_test(*few, scale="relative", alpha=alpha),
        )
    pair = control.moments[metric.key], treatment.moments[metric.key]
    return (
        lambda alpha: ratio_test(*pair, alpha=alpha),
        lambda alpha: relative_interval(*pair, alpha=alpha),
    )


_Sums = tuple[tuple[float, float], ...]


def _few(metric: Metric, control: ArmMoments, treatment: ArmMoments) -> tuple[_Sums, _Sums] | None:
    """Every unit's sums, where both arms have few."""
    few = [arm.samples[metric.key].sums for arm in (control, treatment) if arm.samples]
    return (few[0], few[1]) if len(few) == 2 and all(few) else None


def _quantiles(metric: Metric, control: ArmMoments, treatment: ArmMoments) -> _Scales:
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


def with_holm(metrics: Sequence[MetricReport]) -> tuple[MetricReport, ...]:
    """Goals carry Holm's p, over all goals and arms that have a p."""
    asked = [
        arm.p_value if each.role == "goal" else None for each in metrics for arm in each.comparisons
    ]
    if sum(p is not None for p in asked) < 2:
        return tuple(metrics)
    adjusted = iter(holm(asked))
    return tuple(
        replace(
            each,
            comparisons=tuple(replace(arm, adjusted_p=next(adjusted)) for arm in each.comparisons),
        )
        for each in metrics
    )
