"""Effects by part of the units: first whether parts differ at all, then each part."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments._answers import Answer, Reading
from experiments.compare import compare_plainly
from experiments.findings import PartEffect, SegmentedEffect, SegmentReport
from experiments.metrics import ArmMoments, Metric, Segment
from experiments.metrics import Reading as Facts
from experiments.plans import Guardrail
from experiments.stats import FEW_UNITS, Effect, Interaction, holm, interaction_test

MOST_PARTS = 20
"""More are a list to fish in: the largest are shown."""

Roles = Sequence[tuple[Metric, Guardrail | None]]


def segmented(reading: Reading, segment: Segment, facts: Facts, roles: Roles) -> SegmentReport:
    """Every metric and arm by the parts that have enough units.

    Effects are as measured, without the units' past, as the test of their difference is.
    """
    control, *arms = [each.key for each in reading.plan.variants]
    parts = _parts(facts, [control, *arms])
    asked = [(metric, rail, arm) for metric, rail in roles for arm in arms]
    read = replace(reading, family=max(1, len(asked) * len(parts)))
    found = [
        _effect(read, metric, rail, parts=parts, pair=(control, arm), arms=facts.arms)
        for metric, rail, arm in asked
    ]
    units = sum(arm.units for each in facts.segments.values() for arm in each.values())
    shown = sum(arm.units for each in parts.values() for arm in each.values())
    return SegmentReport(
        key=segment.key,
        title=segment.title,
        is_planned=segment.key in reading.plan.segments,
        interval_alpha=read.alpha,
        effects=_with_holm(found, reading.plan.alpha),
        left_out_units=units - shown,
    )


_Parts = Mapping[str, Mapping[str, ArmMoments]]


def _parts(facts: Facts, variants: Sequence[str]) -> _Parts:
    """The largest first, by units, which no arm's effect decides."""
    enough = {
        part: arms
        for part, arms in facts.segments.items()
        if all(arm in arms and arms[arm].units >= FEW_UNITS for arm in variants)
    }
    order = sorted(enough, key=lambda part: (-sum(a.units for a in enough[part].values()), part))
    return {part: enough[part] for part in order[:MOST_PARTS]}


def _effect(
    reading: Reading,
    metric: Metric,
    rail: Guardrail | None,
    *,
    parts: _Parts,
    pair: tuple[str, str],
    arms: Mapping[str, ArmMoments],
) -> SegmentedEffect:
    control, variant = pair
    compared = {
        part: compare_plainly(reading, metric, each[control], each[variant])
        for part, each in parts.items()
    }
    mixed = None
    if not metric.quantile:
        moments = {
            part: (each[control].moments[metric.key], each[variant].moments[metric.key])
            for part, each in parts.items()
        }
        mixed = interaction_test(moments, alpha=reading.plan.alpha)
    shrunk = {each.name: each.shrunk for each in mixed.segments} if mixed else {}
    return SegmentedEffect(
        metric=metric.key,
        title=metric.title,
        role="guardrail" if rail else "goal",
        variant=variant,
        interaction_p=mixed.test.p_value if mixed else None,
        interaction_reason=mixed.test.reason if mixed else "not asked of quantiles",
        differ=False,
        standardised=mixed.standardised.estimate if mixed else None,
        is_reversed=_is_reversed(mixed, metric, arms, pair),
        parts=tuple(
            _part(part, parts[part], pair, each, shrunk.get(part))
            for part, each in compared.items()
        ),
    )


def _is_reversed(
    mixed: Interaction | None,
    metric: Metric,
    arms: Mapping[str, ArmMoments],
    pair: tuple[str, str],
) -> bool:
    """Against the effect over all units, those of small parts among them."""
    if mixed is None or mixed.standardised.estimate is None:
        return False
    means = [arms[arm].moments[metric.key] for arm in pair]
    if not all(each.den_mean for each in means):
        return False
    control, treatment = (each.mean / each.den_mean for each in means)
    return (treatment - control) * mixed.standardised.estimate < 0


def _part(
    part: str,
    arms: Mapping[str, ArmMoments],
    pair: tuple[str, str],
    compared: tuple[Effect, Answer],
    shrunk: float | None,
) -> PartEffect:
    effect, found = compared
    return PartEffect(
        part=part,
        units=(arms[pair[0]].units, arms[pair[1]].units),
        effect=effect.estimate,
        interval=found.interval,
        p_value=found.p_value,
        adjusted_p=None,
        shrunk=shrunk,
        method=found.method,
        reason=found.reason,
    )


def _with_holm(found: Sequence[SegmentedEffect], alpha: float) -> tuple[SegmentedEffect, ...]:
    """One family of the questions whether parts differ, and one of all parts' effects."""
    tests = holm(each.interaction_p for each in found)
    parts = iter(holm(part.p_value for each in found for part in each.parts))
    return tuple(
        replace(
            each,
            interaction_p=test,
            differ=test is not None and test < alpha,
            parts=tuple(replace(part, adjusted_p=next(parts)) for part in each.parts),
        )
        for each, test in zip(found, tests, strict=True)
    )
