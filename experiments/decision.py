"""From findings to a verdict: gates in a fixed order, the first that fires decides."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.findings import Comparison, Health, MetricReport

Verdict = Literal["ship", "rollback", "continue", "inconclusive", "blocked"]
WEEK = 7


@dataclass(frozen=True)
class Policy:
    """When a verdict may fall. A default of one week holds weekdays against weekends."""

    min_days: int = WEEK
    max_excluded_share: float = 0.01
    """Of units that met two arms: beyond it, who is left may be chosen."""
    max_age_hours: float = 24
    """Of the newest fact while the experiment runs: an intake that stands still proves nothing."""
    max_units: int | None = None
    """Without a verdict by then there is none: inconclusive."""


@dataclass(frozen=True)
class Decision:
    """What the plan's rule says; `variant` is set when it says so of one."""

    verdict: Verdict
    rule: str
    variant: str | None = None
    gate: str = ""
    """The gate that decided."""


def decide(
    health: Health, metrics: Sequence[MetricReport], policy: Policy | None = None
) -> Decision:
    """The first gate that fires.

    In order: facts are fresh, the split is as planned, few units are excluded, no arm does harm
    beyond its margin; then a goal is reached, after whole weeks, with every guardrail shown to be
    safe; then the planned number of units is reached without that. Else the experiment goes on.
    """
    state = _State(health, metrics, policy or Policy())
    for name, gate in _GATES:
        if found := gate(state):
            return Decision(found.verdict, found.rule, found.variant, name)
    return Decision("continue", "no difference is certain yet", gate="no more gates")


@dataclass(frozen=True)
class _State:
    health: Health
    metrics: Sequence[MetricReport]
    policy: Policy

    @property
    def goals(self) -> list[MetricReport]:
        return [each for each in self.metrics if each.role == "goal"]

    @property
    def rails(self) -> list[MetricReport]:
        return [each for each in self.metrics if each.role == "guardrail"]


def _fresh(state: _State) -> Decision | None:
    age, most = state.health.age_hours, state.policy.max_age_hours
    if age is None or age <= most:
        return None
    return Decision(
        "blocked",
        f"the newest fact is {age:.0f} hours old: look at the intake (thumbwheel doctor) first",
    )


def _split(state: _State) -> Decision | None:
    if not state.health.srm_alarm:
        return None
    anytime, once = state.health.srm_sequential, state.health.srm.p_value
    p_value = once if anytime is None or anytime.p is None else anytime.p
    return Decision(
        "blocked",
        f"sample ratio mismatch, p = {p_value:.2g}: arms did not get the units they were "
        "promised; no effect can be trusted",
    )


def _exclusion(state: _State) -> Decision | None:
    share, most = state.health.excluded_share, state.policy.max_excluded_share
    # Below a hundred units one person with two machines is more than a hundredth.
    if share <= most or state.health.excluded_units < 10:
        return None
    return Decision(
        "blocked",
        f"{share:.1%} of the units met two arms, more than {most:.0%}: is the unit's id stable?",
    )


def _harm(state: _State) -> Decision | None:
    for each in (*state.rails, *state.goals):
        for arm in each.comparisons:
            if arm.harms(each.metric, each.margin or 0.0):
                rule = f"{each.metric.key} is worse by more than {each.margin or 0:g}"
                return Decision("rollback", rule, arm.variant)
    return None


def _gain(state: _State) -> Decision | None:
    waits: Decision | None = None
    for variant in _variants(state.goals):
        if not any(arm.improves(each.metric) for each, arm in _of(variant, state.goals)):
            continue
        unsafe = [
            each.metric.key
            for each, arm in _of(variant, state.rails)
            if not arm.is_safe(each.metric, each.margin or 0.0)
        ]
        if unsafe:
            rule = f"a goal improved; not yet safe: {', '.join(unsafe)}"
            waits = waits or Decision("continue", rule, variant)
        elif early := _too_early(state):
            waits = waits or Decision("continue", f"a goal improved; {early}", variant)
        else:
            return Decision("ship", "a goal improved and every guardrail is safe", variant)
    return None if _exhausted(state) else waits


def _too_early(state: _State) -> str:
    days, least = state.health.running_days, state.policy.min_days
    if days is None or days >= least:
        return ""
    return f"it has run for {days:.1f} of at least {least} days: weekdays are not weekends"


def _exhausted(state: _State) -> Decision | None:
    most = state.policy.max_units
    if most is None or state.health.units < most or _too_early(state):
        return None
    return Decision(
        "inconclusive",
        f"the planned {most:,} units were reached and no difference is certain",
    )


def _variants(metrics: Iterable[MetricReport]) -> list[str]:
    return list(dict.fromkeys(arm.variant for each in metrics for arm in each.comparisons))


def _of(variant: str, metrics: list[MetricReport]) -> list[tuple[MetricReport, Comparison]]:
    return [(each, arm) for each in metrics for arm in each.comparisons if arm.variant == variant]


_GATES: tuple[tuple[str, Callable[[_State], Decision | None]], ...] = (
    ("fresh facts", _fresh),
    ("split as planned", _split),
    ("few excluded", _exclusion),
    ("no harm", _harm),
    ("a goal, safely", _gain),
    ("planned units", _exhausted),
)
