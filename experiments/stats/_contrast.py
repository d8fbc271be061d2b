"""From a difference and its variance to the two effects that cannot contradict each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isfinite, isnan, sqrt
from typing import Self

from experiments.stats._arm import Arm
from experiments.stats._asked import Asked
from experiments.stats.effect import TOO_LARGE, Effect, student_quantile
from experiments.stats.moments import Moments

MAY_BE_0 = "the control may be 0, so its lift is undefined"


@dataclass(frozen=True)
class Contrast:
    """A difference of two arms beside the control's own value, `base`.

    `variance` and `base_variance` are those of the two estimates, `cov` is their covariance. An
    adjusted difference may have an unadjusted base: their joint covariance is what makes the lift's
    variance right. `plain` is the difference without adjustment: the lift's delta method is taken
    there, as in the published case, and only its `std_error` depends on it.
    """

    difference: float
    variance: float
    base: float
    base_variance: float
    cov: float
    df: float
    plain: float

    @classmethod
    def of_arms(
        cls, control: tuple[float, float], treatment: tuple[float, float], df: tuple[float, float]
    ) -> Self:
        """Two independent arms, each an estimate with its variance, of which one is not 0."""
        (base, base_variance), (value, value_variance) = control, treatment
        return cls(
            difference=value - base,
            variance=base_variance + value_variance,
            base=base,
            base_variance=base_variance,
            cov=-base_variance,
            df=satterthwaite(((base_variance, df[0]), (value_variance, df[1]))),
            plain=value - base,
        )

    @classmethod
    def of_moments(cls, control: Moments, treatment: Moments) -> Self:
        """Two arms of fit moments (`unfit` has no reason), with Welch's and Satterthwaite's df."""
        base, other = Arm.of(control), Arm.of(treatment)
        return cls.of_arms(
            (base.value, base.variance), (other.value, other.variance), (base.n - 1, other.n - 1)
        )

    @property
    def unusable(self) -> str | None:
        """Why there is no honest answer on any scale, or None."""
        if not isfinite(self.variance) or isnan(self.df):
            return TOO_LARGE
        return None if self.variance > 0 else "neither arm varies"

    @property
    def statistic(self) -> float:
        return self.difference / sqrt(self.variance)

    @property
    def lift(self) -> float:
        """The difference over |base|, so that its sign is the difference's."""
        return self.difference / abs(self.base)

    @property
    def lift_error(self) -> float:
        """The delta method's, for planning: Fieller's limits are not made from it."""
        own, shared, noise = self._relative
        at = self.plain / self.base
        return sqrt(max(own - 2 * at * shared + noise * at * at, 0.0))

    def may_be_0(self, t: float) -> bool:
        """Whether the control's value is within t errors of 0 (Fieller's g >= 1)."""
        return not self.base or t * t * (self.base_variance / self.base / self.base) >= 1

    def no_lift(self, t: float) -> str | None:
        """Why there is no honest lift at that many errors, or None."""
        if self.may_be_0(t):
            return MAY_BE_0
        # A treatment that is 0 for every unit, say: that the lift is -1 is no certainty.
        return None if self.lift_error > 0 else "the lift has no error"

    def lift_limits(self, t: float) -> tuple[float, float]:
        """Fieller's limits with the joint covariance, of a control that may not be 0.

        Roots of (D - θC)² = t²(vD - 2θcov + θ²vC), over C²: the limits exclude 0 exactly when the
        difference is t errors away from it.
        """
        own, shared, noise = self._relative
        g, lift = t * t * noise, self.difference / self.base
        spread = own * (1 - g) - 2 * lift * shared + t * shared * t * shared + noise * lift * lift
        half, middle = t * sqrt(max(spread, 0.0)), lift - t * t * shared
        low, high = (middle - half) / (1 - g), (middle + half) / (1 - g)
        return (low, high) if self.base > 0 else (-high, -low)

    @property
    def _relative(self) -> tuple[float, float, float]:
        """The variances of the difference, its covariance and the control's, over the control²."""
        base = self.base
        return (
            self.variance / base / base,
            self.cov / base / base,
            self.base_variance / base / base,
        )

    def effect(self, asked: Asked) -> Effect:
        """The effect on the scale of `asked`, tested by the absolute difference on both."""
        if reason := self.unusable:
            return asked.refuse(reason)
        t = student_quantile(asked.alpha, self.df)
        estimate, error = self.difference, sqrt(self.variance)
        ends = estimate - t * error, estimate + t * error
        if asked.scale == "relative":
            if reason := self.no_lift(t):
                return asked.refuse(reason)
            estimate, error, ends = self.lift, self.lift_error, self.lift_limits(t)
        return asked.answer(estimate, error, df=self.df, statistic=self.statistic, ci=ends)


def satterthwaite(parts: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own; infinite where all are 0."""
    parts = tuple(parts)
    whole = sum(variance for variance, _ in parts)
    if not 0 < whole < inf:
        return inf
    return 1 / sum((variance / whole) ** 2 / df for variance, df in parts)
