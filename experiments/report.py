"""From moments to a verdict: health first, then effects, then the decision."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from experiments.metrics import METRICS, ArmMoments, Metric, Reading, read
from experiments.registry import Experiment, Guardrail
from experiments.stats import (
    SRM_ALARM,
    AnytimeResult,
    Effect,
    Moments,
    SRMResult,
    confidence_sequence,
    ratio_test,
    relative_interval,
    srm_test,
    student_p,
)
from ingest.store import Store

Verdict = Literal["ship", "rollback", "continue", "blocked"]
_EMPTY = Moments(0, 0.0, 0.0)


@dataclass(frozen=True)
class ArmEstimate:
    variant: str
    units: int
    estimate: float | None


@dataclass(frozen=True)
class Comparison:
    """Treatment against control. Numbers are None where `reason` says why there is no answer."""

    variant: str
    control: str
    effect: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    relative_effect: float | None
    relative_interval: tuple[float, float] | None
    method: str
    reason: str | None

    def improves(self, metric: Metric) -> bool:
        """The whole interval lies on the good side of 0."""
        if self.interval is None or self.reason:
            return False
        low, high = self.interval
        return low > 0 if metric.good == "up" else high < 0

    def harms(self, metric: Metric, margin: float = 0.0) -> bool:
        """The whole interval lies beyond the margin on the bad side."""
        if self.interval is None or self.reason:
            return False
        low, high = self.interval
        return high < -margin if metric.good == "up" else low > margin

    def is_safe(self, metric: Metric, margin: float) -> bool:
        """The whole interval lies on the good side of the margin."""
        if self.interval is None or self.reason:
            return False
        low, high = self.interval
        return low > -margin if metric.good == "up" else high < margin


@dataclass(frozen=True)
class MetricReport:
    metric: Metric
    role: Literal["goal", "guardrail"]
    margin: float | None
    arms: tuple[ArmEstimate, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Health:
    srm: SRMResult
    srm_alarm: bool
    units: int
    excluded_units: int
    newest_fact: str | None
    simulated: bool
    """At least one unit was a scripted developer or met a scripted engine."""


@dataclass(frozen=True)
class Decision:
    """What the plan's rule says; `variant` is set when it says so of one."""

    verdict: Verdict
    rule: str
    variant: str | None = None


@dataclass(frozen=True)
class Report:
    experiment: dict[str, Any]
    as_of: str
    health: Health
    metrics: tuple[MetricReport, ...]
    decision: Decision


def report(store: Store, experiment: Experiment, *, as_of: datetime | None = None) -> Report:
    """The experiment as the facts received until `as_of` (now) have it. Raises: Unavailable."""
    plan, at = experiment.plan, as_of or datetime.now(UTC)
    roles: list[tuple[Metric, Guardrail | None]] = [
        (METRICS[key], None) for key in plan.metrics.goals
    ]
    roles += [(METRICS[rail.metric], rail) for rail in plan.metrics.guardrails]
    facts = read(store, experiment.spec, [each for each, _ in roles], as_of=at)
    metrics = tuple(_metric_report(experiment, facts, each, rail) for each, rail in roles)
    health = _health(experiment, facts)
    return Report(experiment.public(), at.isoformat(), health, metrics, decide(health, metrics))


def decide(health: Health, metrics: tuple[MetricReport, ...]) -> Decision:
    """The first rule that fires: mismatch, harm, goal reached with safe guardrails, else go on."""
    if health.srm_alarm:
        return Decision("blocked", f"sample ratio mismatch, p = {health.srm.p_value:.2g}: arms did "
                        "not get the units they were promised; no effect can be trusted")  # fmt: skip
    goals = [each for each in metrics if each.role == "goal"]
    rails = [each for each in metrics if each.role == "guardrail"]
    for each in (*rails, *goals):
        for arm in each.comparisons:
            if arm.harms(each.metric, each.margin or 0.0):
                return Decision("rollback", f"{each.metric.key} is worse by more than "
                                f"{each.margin or 0:g}", arm.variant)  # fmt: skip
    held_back: Decision | None = None
    for arm in goals[0].comparisons:
        if not any(other.improves(each.metric) for each, other in _of(arm.variant, goals)):
            continue
        unsafe = [
            each.metric.key
            for each, other in _of(arm.variant, rails)
            if not other.is_safe(each.metric, each.margin or 0.0)
        ]
        if not unsafe:
            return Decision("ship", "a goal improved and every guardrail is safe", arm.variant)
        rule = f"a goal improved; not yet safe: {', '.join(unsafe)}"
        held_back = held_back or Decision("continue", rule, arm.variant)
    return held_back or Decision("continue", "no difference is certain yet")


def _of(variant: str, metrics: list[MetricReport]) -> list[tuple[MetricReport, Comparison]]:
    return [(each, arm) for each in metrics for arm in each.comparisons if arm.variant == variant]


def _health(experiment: Experiment, facts: Reading) -> Health:
    variants = experiment.spec.variants
    units = [facts.arms[each.key].units if each.key in facts.arms else 0 for each in variants]
    srm = srm_test(units, [each.weight for each in variants])
    newest = facts.newest_fact
    return Health(
        srm=srm,
        srm_alarm=srm.p_value is not None and srm.p_value < SRM_ALARM,
        units=sum(units),
        excluded_units=facts.excluded_units,
        newest_fact=newest.replace(tzinfo=UTC).isoformat() if newest else None,
        simulated=facts.simulated,
    )


def _metric_report(
    experiment: Experiment, facts: Reading, metric: Metric, rail: Guardrail | None
) -> MetricReport:
    arms = [
        facts.arms.get(each.key, ArmMoments(each.key, 0, {metric.key: _EMPTY}))
        for each in experiment.spec.variants
    ]
    return MetricReport(
        metric=metric,
        role="guardrail" if rail else "goal",
        margin=rail.margin if rail else None,
        arms=tuple(ArmEstimate(arm.variant, arm.units, _value(arm, metric)) for arm in arms),
        comparisons=tuple(_compare(experiment, metric, arms[0], arm) for arm in arms[1:]),
    )


def _value(arm: ArmMoments, metric: Metric) -> float | None:
    moments = arm.moments[metric.key]
    return moments.mean / moments.den_mean if moments.n and moments.den_mean else None


def _compare(
    experiment: Experiment, metric: Metric, control: ArmMoments, treatment: ArmMoments
) -> Comparison:
    plan = experiment.plan
    pair = control.moments[metric.key], treatment.moments[metric.key]
    effect = ratio_test(*pair, alpha=plan.alpha)
    interval, p_value, reason, method = effect.ci, effect.p_value, effect.reason, effect.method
    alpha = plan.alpha
    if plan.reading == "sequential":
        units = max(control.units + treatment.units, 1)
        look = confidence_sequence(effect, units, tuning_n=plan.planned_units, alpha=plan.alpha)
        interval, p_value, reason = look.ci, look.p_value, look.reason
        method = f"{effect.method}, confidence sequence"
        alpha = _equivalent_alpha(effect, look)
    lift = relative_interval(*pair, alpha=alpha)
    return Comparison(
        variant=treatment.variant,
        control=control.variant,
        effect=effect.estimate,
        interval=interval,
        p_value=p_value,
        relative_effect=lift.estimate,
        relative_interval=lift.ci,
        method=method,
        reason=reason,
    )


def _equivalent_alpha(effect: Effect, look: AnytimeResult) -> float:
    """The error rate at which a fixed test is as wide as this look.

    Fieller at that rate inverts the confidence sequences of treatment − θ·control for every θ, so
    the relative interval is valid at every look too and never contradicts the absolute one.
    """
    if look.ci is None or effect.std_error is None or effect.df is None:
        return effect.alpha
    width = (look.ci[1] - look.ci[0]) / (2 * effect.std_error)
    return max(student_p(width, effect.df), 1e-300)
