"""What a report says, part by part."""

from dataclasses import dataclass
from typing import Literal

from experiments.metrics import Metric
from experiments.stats import Bounds
from experiments.stats.sequential import EValue
from experiments.stats.srm import SRMResult


@dataclass(frozen=True)
class ArmEstimate:
    variant: str
    units: int
    estimate: float | None


Interval = tuple[float, float]
Safety = Literal["safe", "harm", "open"]


@dataclass(frozen=True)
class Adjustment:
    """What the units' own past took off the noise, and the effect without it."""

    effect: float | None
    interval: Interval | None
    p_value: float | None
    variance_factor: float
    """Of the variance of the difference, what is left: 0.5 halves the units that are needed."""
    imbalance_p: float | None
    """That the arms were alike before; `is_imbalanced` is below 0.001 shared by all comparisons."""
    is_imbalanced: bool
    note: str | None
    """How many units have no past."""


@dataclass(frozen=True)
class Feedback:
    """Who rates, and what those who do not may think. Pairs are control and treatment."""

    response: tuple[float | None, float | None]
    """Thumbs per completion."""
    response_interval: Interval | None
    """Of the difference, by the plan's reading."""
    response_differs: bool
    """Then those who rate are not alike in both arms, and `approval` must not be compared."""
    approval: tuple[float | None, float | None]
    """Thumbs up of all thumbs: of raters, and of nobody else."""
    manski: Bounds
    """Of the share of completions that pleased, whatever the silent ones think."""
    lee: Bounds
    """The same of completions rated in either arm, if an arm only adds raters or only loses some."""
    gamma: float | None
    """How unlike the arms' raters must be before the difference in approval is nothing."""


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
    alpha: float = 0.05
    adjusted_p: float | None = None
    """Holm's, over all goals and arms; a guardrail has none, as it must hold by itself."""
    harm_bound: float | None = None
    """One-sided, at the guardrails' share of the error rate: the harm is at least this, if the
    bound lies on the bad side of 0."""
    safety: Safety | None = None
    """Of a guardrail: not worse by more than its margin, worse by more, or neither is shown yet."""
    adjustment: Adjustment | None = None
    """Where the effect is adjusted for the units' past (CUPED); None where it is as measured."""
    feedback: Feedback | None = None
    """Of thumbs."""

    def improves(self, metric: Metric) -> bool:
        """The whole interval lies on the good side of 0, also as one of several goals and arms."""
        if self.interval is None or self.reason:
            return False
        if self.adjusted_p is not None and self.adjusted_p >= self.alpha:
            return False
        low, high = self.interval
        return low > 0 if metric.good == "up" else high < 0

    def harms(self, metric: Metric, margin: float = 0.0) -> bool:
        """What is certain of it lies beyond the margin on the bad side."""
        if self.interval is None or self.reason:
            return False
        low, high = self.interval
        if metric.good == "up":
            return (high if self.harm_bound is None else self.harm_bound) < -margin
        return (low if self.harm_bound is None else self.harm_bound) > margin

    def is_safe(self, metric: Metric, margin: float) -> bool:
        """The whole interval lies on the good side of the margin."""
        if self.interval is None or self.reason:
            return False
        low, high = self.interval
        return low > -margin if metric.good == "up" else high < margin

    def safety_of(self, metric: Metric, margin: float) -> Safety:
        """What a guardrail's margin makes of it."""
        if self.harms(metric, margin):
            return "harm"
        return "safe" if self.is_safe(metric, margin) else "open"


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
    srm_sequential: EValue | None = None
    """Of the split at every look; None where it cannot be asked."""
    running_days: float | None = None
    """Since it was started; None before."""
    age_hours: float | None = None
    """Of the newest fact; None without one."""

    @property
    def excluded_share(self) -> float:
        met = self.units + self.excluded_units
        return self.excluded_units / met if met else 0.0


@dataclass(frozen=True)
class PartEffect:
    """One part of the units. `adjusted_p` is Holm's over all parts, metrics and arms shown."""

    part: str
    """What the segment's field said; "" where nothing was known of a unit."""
    units: tuple[int, int]
    """Of control and treatment."""
    effect: float | None
    interval: Interval | None
    """At its part of the error rate, so that all intervals of the segment hold together."""
    p_value: float | None
    adjusted_p: float | None
    shrunk: float | None
    """The effect pulled to what the parts have in common: the better guess of its size, no test."""
    method: str
    reason: str | None


@dataclass(frozen=True)
class SegmentedEffect:
    """One metric of one arm: whether the parts differ, which comes first, then each part."""

    metric: str
    title: str
    role: Literal["goal", "guardrail"]
    variant: str
    interaction_p: float | None
    """That all parts have the same effect, adjusted for the metrics and arms shown; for one look."""
    interaction_reason: str | None
    differ: bool
    standardised: float | None
    """The effect if both arms had the control's mix of parts."""
    is_reversed: bool
    """Simpson's paradox: it has another sign than the effect over all units."""
    parts: tuple[PartEffect, ...]


@dataclass(frozen=True)
class SegmentReport:
    key: str
    title: str
    is_planned: bool
    """The plan named it before any effect was seen; else what is found here is exploratory."""
    interval_alpha: float
    effects: tuple[SegmentedEffect, ...]
    left_out_units: int
    """In parts with fewer than 50 units in an arm, or beyond the 20 largest."""


@dataclass(frozen=True)
class DayEffect:
    day: int
    """Since each unit's own first exposure; 0 is the first."""
    effect: float | None
    interval: Interval | None
    reason: str | None


@dataclass(frozen=True)
class NoveltyReport:
    """Whether a goal's effect fades or grows, from the units exposed long enough ago."""

    metric: str
    title: str
    variant: str
    cohort_days: int
    """Units count that were first exposed so long ago or more; every unit counts on every day."""
    units: tuple[int, int]
    days: tuple[DayEffect, ...]
    slope: float | None
    """Per day."""
    interval: Interval | None
    p_value: float | None
    trend: Literal["fading", "growing", "none seen"] | None
    reason: str | None
    method: str
