"""What an arm's units say, in six numbers that can be merged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats.effect import is_count
from ingest.errors import BadInput


@dataclass(frozen=True)
class Moments:
    """Mean and unbiased (n - 1) variance of one metric over the units of one arm.

    A unit is what was randomised: a user or an organisation, never a turn. For a ratio metric
    (thumbs per turn) a unit's value is its numerator's sum, and `den_*` are the moments of its
    denominator's; `cov` is their unbiased covariance. A plain mean has the denominator 1.
    Variances have the squared units of the metric; below two units they mean nothing and are 0.

    Centred moments, not sums of squares: the variance of 1e9 + 1, 1e9 + 2, 1e9 + 3 is 1, but
    SS - S²/n gives 0 in float64, and no later care brings the lost digits back.
    """

    n: int
    mean: float
    var: float
    den_mean: float = 1.0
    den_var: float = 0.0
    cov: float = 0.0

    def __post_init__(self) -> None:
        if not is_count(self.n):
            raise BadInput.of("n", f"units cannot be {self.n}")

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(cls, values: ArrayLike, denominators: ArrayLike | None = None) -> Self:
        """The moments of one value, and for a ratio one denominator, per unit.

        No units give n = 0, which merges as nothing.
        Raises: BadInput if the two differ in length, or a number is not finite.
        """
        tops = _column(values, "values")
        bottoms = np.ones_like(tops)
        if denominators is not None:
            bottoms = _column(denominators, "denominators")
        if len(tops) != len(bottoms):
            raise BadInput.of("denominators", f"{len(bottoms)} for {len(tops)} values")
        if not len(tops):
            return cls(0, 0.0, 0.0)
        mean, top = _centre(tops)
        den_mean, bottom = _centre(bottoms)
        spare = max(len(tops) - 1, 1)
        return cls(
            n=len(tops),
            mean=mean,
            var=float(top @ top) / spare,
            den_mean=den_mean,
            den_var=float(bottom @ bottom) / spare,
            cov=float(top @ bottom) / spare,
        )

    def __add__(self, other: "Moments") -> "Moments":
        """The moments of both arms' units together, equal to those of the units in one list.

        Source: T. F. Chan, G. H. Golub & R. J. LeVeque, The American Statistician 37 (1983) 242-247.
        """
        if not self.n or not other.n:
            return self if self.n else other
        n = self.n + other.n
        step, den_step = other.mean - self.mean, other.den_mean - self.den_mean
        between = self.n * other.n / n

        def spread(own: float, others: float, gap: float) -> float:
            return (self.n - 1) / (n - 1) * own + (other.n - 1) / (n - 1) * others + gap / (n - 1)

        return Moments(
            n=n,
            mean=self.mean + step * (other.n / n),
            var=spread(self.var, other.var, step * step * between),
            den_mean=self.den_mean + den_step * (other.n / n),
            den_var=spread(self.den_var, other.den_var, den_step * den_step * between),
            cov=spread(self.cov, other.cov, step * den_step * between),
        )


@np.errstate(over="ignore", invalid="ignore")
def pooled(
    ns: tuple[int, int], means: tuple[ArrayLike, ArrayLike], covs: tuple[ArrayLike, ArrayLike]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean vector and unbiased covariance of two groups of units together, neither empty.

    Source: as `Moments.__add__`, which is the same for two numbers without numpy's cost.
    """
    (first, second), n = ns, sum(ns)
    step = np.subtract(means[1], means[0])
    within = (first - 1) * np.asarray(covs[0]) + (second - 1) * np.asarray(covs[1])
    between = np.outer(step, step) * (first * second / n)
    mean = np.asarray(means[0]) + step * (second / n)
    return mean, (within + between) / (n - 1)


def _column(numbers: ArrayLike | Sequence[float], field: str) -> NDArray[np.float64]:
    column = np.asarray(numbers, dtype=np.float64)
    if column.ndim != 1:
        raise BadInput.of(field, f"one number per unit, not {column.ndim} dimensions")
    if not np.isfinite(column).all():
        raise BadInput.of(field, "every number must be finite")
    return column


def _centre(column: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    # Shifted by the first value, units that all say 0.1 have a variance of exactly 0; around
    # numpy's rounded mean it would be 1e-34, and a t statistic would be made of rounding errors.
    shifted = column - column[0]
    offset = shifted.mean()
    return float(column[0] + offset), shifted - offset
