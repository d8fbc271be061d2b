"""What a report says, part by part."""

from dataclasses import dataclass
from typing import Literal

from experiments.metrics import Metric
from experiments.stats.sequential import EValue
from experiments.stats.srm import SRMResult


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
    alpha: float = 0.05
    adjusted_p: float | None = None
    """Holm's, over all goals and arms; a guardrail has none, as it must hold by itself."""
    harm_bound: float | None = None
    """One-sided, at the guardrails' share of the error rate: the harm is at least this, if the
    bound lies on the bad side of 0."""

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
