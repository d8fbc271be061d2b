"""From moments to a verdict: health first, then effects, then the decision."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from experiments._days import effects_by_day
from experiments._looks import looks_by_day
from experiments._segments import segmented
from experiments.compare import Reading, compare, quantile_of, with_holm
from experiments.decision import Decision, Policy, Verdict, decide
from experiments.findings import (
    ArmEstimate,
    Comparison,
    Health,
    MetricReport,
    NoveltyReport,
    SegmentReport,
)
from experiments.metrics import METRICS, ArmMoments, Metric
from experiments.metrics import Reading as Facts
from experiments.metrics import segment as segment_named
from experiments.plans import Experiment, Guardrail, Plan
from experiments.scan import scan
from experiments.stats import SRM_ALARM, Moments, srm_test
from experiments.stats.srm import srm_sequential
from ingest.store import Store

__all__ = [
    "ArmEstimate", "Comparison", "Decision", "Health", "MetricReport", "Policy", "Report",
    "Verdict", "decide", "report",
]  # fmt: skip

_EMPTY = Moments(0, 0.0, 0.0)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Report:
    experiment: dict[str, Any]
    as_of: str
    """Facts received until then count; of planned looks, the end of the last one's day."""
    health: Health
    metrics: tuple[MetricReport, ...]
    decision: Decision
    segments: SegmentReport | None = None
    """Effects by part, if a segment was asked for; no decision rests on them."""
    novelty: tuple[NoveltyReport, ...] | None = None
    """Each goal's effect by day since exposure, if it was asked for."""


def report(
    store: Store,
    experiment: Experiment,
    *,
    as_of: datetime | None = None,
    segment: str | None = None,
    novelty: bool = False,
) -> Report:
    """The experiment as the facts received until `as_of` (now) have it.

    With the key of a `segment`, effects by its parts, too; with `novelty` also by day since each
    unit's first exposure, which costs a scan for each goal.

    Raises: BadInput if there is no such segment; Conflict if its arms do not split units;
    Unavailable.
    """
    experiment.check_splits_units()
    plan, at = experiment.plan, as_of or datetime.now(UTC)
    by = segment_named(segment, "segment") if segment is not None else None
    shares: tuple[float, ...] = ()
    if plan.reading == "group_sequential" and (began := started(experiment)):
        days = max(0, (at - began) // _DAY)
        looks = looks_by_day(store, experiment.spec, began, days, plan.planned_units)
        at, shares = began + looks.days * _DAY if looks.days else at, looks.shares
    roles = _roles(plan)
    facts = scan(store, experiment.spec, [each for each, _ in roles], as_of=at, segment=by)
    reading = Reading(plan, shares)
    metrics = with_holm([_metric(experiment, reading, facts, each, rail) for each, rail in roles])
    health = _health(experiment, facts, at)
    decision = decide(health, metrics, policy_of(plan))
    return Report(
        experiment=experiment.public(),
        as_of=at.isoformat(),
        health=health,
        metrics=metrics,
        decision=decision,
        segments=segmented(reading, by, facts, roles) if by else None,
        novelty=_novelty(store, experiment, at) if novelty else None,
    )


def _roles(plan: Plan) -> list[tuple[Metric, Guardrail | None]]:
    """Goals, then guardrails with their margins."""
    goals = [(METRICS[key], None) for key in plan.metrics.goals]
    return [*goals, *((METRICS[rail.metric], rail) for rail in plan.metrics.guardrails)]


def _novelty(store: Store, experiment: Experiment, at: datetime) -> tuple[NoveltyReport, ...]:
    plan = experiment.plan
    goals = [METRICS[key] for key in plan.metrics.goals]
    return effects_by_day(store, experiment.spec, goals, as_of=at, alpha=plan.alpha)


def policy_of(plan: Plan) -> Policy:
    """When the plan lets a verdict fall."""
    return Policy(min_days=plan.min_days, max_units=plan.planned_units)


def started(experiment: Experiment) -> datetime | None:
    """When the phase that is reported began."""
    at = experiment.phase_started_at or experiment.started_at
    return datetime.fromisoformat(at) if at else None


def _health(experiment: Experiment, facts: Facts, at: datetime) -> Health:
    variants = experiment.spec.variants
    units = [facts.arms[each.key].units if each.key in facts.arms else 0 for each in variants]
    weights = [each.weight for each in variants]
    once, anytime = srm_test(units, weights), srm_sequential(units, weights)
    newest = facts.newest_fact
    began, ended = started(experiment), experiment.stopped_at
    # As of then, whatever became of it since; of a time to come nobody knows the newest fact.
    ran = began is not None and (ended is None or datetime.fromisoformat(ended) > at)
    ages = ran and at <= datetime.now(UTC)
    # Looked at daily, the chi-square would stop one sound experiment in 140 within a month.
    p_value = once.p_value if experiment.plan.reading == "fixed" else anytime.p
    return Health(
        srm=once,
        srm_alarm=once.p_value is not None and p_value is not None and p_value < SRM_ALARM,
        units=sum(units),
        excluded_units=facts.excluded_units,
        newest_fact=newest.isoformat() if newest else None,
        simulated=facts.simulated,
        srm_sequential=anytime,
        running_days=max(0.0, (at - began) / _DAY) if began else None,
        age_hours=(at - newest) / timedelta(hours=1) if newest and ages else None,
    )


def _metric(
    experiment: Experiment, reading: Reading, facts: Facts, metric: Metric, rail: Guardrail | None
) -> MetricReport:
    arms = [
        facts.arms.get(each.key, ArmMoments(each.key, 0, {metric.key: _EMPTY}))
        for each in experiment.spec.variants
    ]
    compared = [
        compare(reading, metric, arms[0], arm, is_rail=rail is not None) for arm in arms[1:]
    ]
    if rail:
        compared = [replace(each, safety=each.safety_of(metric, rail.margin)) for each in compared]
    return MetricReport(
        metric=metric,
        role="guardrail" if rail else "goal",
        margin=rail.margin if rail else None,
        arms=tuple(ArmEstimate(arm.variant, arm.units, _value(arm, metric)) for arm in arms),
        comparisons=tuple(compared),
    )


def _value(arm: ArmMoments, metric: Metric) -> float | None:
    if metric.quantile:
        return quantile_of(arm, metric).value
    moments = arm.moments[metric.key]
    return moments.mean / moments.den_mean if moments.n and moments.den_mean else None
