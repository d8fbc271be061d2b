"""From a difference and its variance to the two effects that cannot contradict each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import copysign, inf, isfinite, isnan, sqrt
from typing import Self

from experiments.stats.effect import Effect, Scale, student_p, student_quantile


@dataclass(frozen=True)
class Basis:
    """What an effect says of itself, whether or not it has an answer."""

    alpha: float
    scale: Scale
    method: str
    n_control: int
    n_treatment: int

    def refusal(self, reason: str) -> Effect:
        """The effect without numbers."""
        return Effect(
            None,
            None,
            None,
            None,
            None,
            None,
            self.alpha,
            self.scale,
            self.method,
            self.n_control,
            self.n_treatment,
            reason,
        )


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

    def effect(self, basis: Basis) -> Effect:
        """The effect on the scale of `basis`, tested by the absolute difference on both."""
        if not isfinite(self.variance) or isnan(self.df):
            return basis.refusal("a number is too large")
        if not self.variance > 0:
            return basis.refusal("neither arm varies")
        quantile = student_quantile(basis.alpha, self.df)
        if basis.scale == "absolute":
            error = sqrt(self.variance)
            half = quantile * error
            ends = self.difference - half, self.difference + half
            return self._answer(basis, self.difference, error, ends)
        return self._lift(basis, quantile)

    def _lift(self, basis: Basis, quantile: float) -> Effect:
        """Fieller's interval with the joint covariance: it excludes 0 when the difference does."""
        base = self.base
        noise = self.base_variance / base / base if base else inf
        g = quantile**2 * noise
        if g >= 1:
            return basis.refusal("the control may be 0, so its lift is undefined")
        lift = self.difference / base
        own, shared = self.variance / base / base, self.cov / base / base
        # Roots of (D - θC)² = t²(vD - 2θcov + θ²vC), over C².
        spread = own * (1 - g) - 2 * lift * shared + (quantile * shared) ** 2 + noise * lift**2
        half = quantile * sqrt(max(spread, 0.0))
        middle, sign = lift - quantile**2 * shared, copysign(1.0, base)
        low, high = sorted((sign * (middle - half) / (1 - g), sign * (middle + half) / (1 - g)))
        at = self.plain / base
        error = sqrt(max(own - 2 * at * shared + noise * at**2, 0.0))
        return self._answer(basis, sign * lift, error, (low, high))

    def _answer(
        self, basis: Basis, estimate: float, error: float, ends: tuple[float, float]
    ) -> Effect:
        statistic = self.difference / sqrt(self.variance)
        return Effect(
            estimate=estimate,
            std_error=error,
            df=self.df,
            statistic=statistic,
            p_value=student_p(statistic, self.df),
            ci=ends,
            alpha=basis.alpha,
            scale=basis.scale,
            method=basis.method,
            n_control=basis.n_control,
            n_treatment=basis.n_treatment,
        )


def satterthwaite(parts: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own; infinite where all are 0."""
    parts = tuple(parts)
    whole = sum(variance for variance, _ in parts)
    if not 0 < whole < inf:
        return inf
    return 1 / sum((variance / whole) ** 2 / df for variance, df in parts)
