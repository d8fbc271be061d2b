"""An arm's mean or ratio with the delta method's variance."""

from dataclasses import dataclass
from math import isfinite
from typing import Self

from experiments.stats.moments import Moments

# v + R²w - 2Rc loses about this share of its terms to rounding: what is left below it is no variance.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Arm:
    """A mean (or a ratio of means), the sampling variance of it, and the units behind it."""

    value: float
    variance: float
    n: int

    @classmethod
    def of(cls, moments: Moments) -> Self:
        """The arm of moments that are fit (`unfit` has no reason)."""
        value, spread = moments.mean / moments.den_mean, _spread(moments)
        return cls(value, spread / moments.n / moments.den_mean / moments.den_mean, moments.n)


def _spread(moments: Moments) -> float:
    """The variance of a unit's numerator less its denominators times the arm's ratio."""
    if not (moments.den_var or moments.cov):
        return moments.var
    value = moments.mean / moments.den_mean
    terms = moments.var + value * value * moments.den_var
    spread = terms - 2 * value * moments.cov
    return 0.0 if moments.den_var and abs(spread) <= _ROUNDING * abs(terms) else spread


def unfit(arm: Moments) -> str | None:
    """Why these moments have no variance of their mean, or None."""
    if arm.n < 2:
        return "an arm has fewer than 2 units"
    if not all(map(isfinite, (arm.mean, arm.var, arm.den_mean, arm.den_var, arm.cov))):
        return "a moment is not finite"
    if arm.den_mean == 0:
        return "an arm's denominator is 0"
    # Of moments that no units have; two such arms may add up to a variance above 0.
    return "a variance is negative" if min(arm.var, _spread(arm)) < 0 else None
