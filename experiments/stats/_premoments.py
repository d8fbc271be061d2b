"""Outcome and past of an arm's units, in moments that can be merged."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats.moments import Moments, pooled
from ingest.errors import BadInput

Four = tuple[float, float, float, float]

# What is left of a variance below this share of its terms is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class PreMoments:
    """Means and unbiased covariances of four numbers per unit of one arm.

    In this order: the outcome and its denominator, the covariate from before the unit's first
    exposure and its denominator; a plain mean has the denominator 1. `cov` is the symmetric 4 x 4
    matrix with n - 1, 0 below two units. `missing` counts units without a past: they are in `n`
    with a covariate of 0.
    """

    n: int
    mean: Four
    cov: tuple[Four, Four, Four, Four]
    missing: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.missing <= self.n:
            raise BadInput.of("missing", f"{self.missing} of {self.n} units")
        if np.shape(self.mean) != (4,) or np.shape(self.cov) != (4, 4):
            raise BadInput.of("cov", "four means and a 4 x 4 matrix are needed")

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(
        cls,
        values: ArrayLike,
        pre: ArrayLike,
        *,
        denominators: ArrayLike | None = None,
        pre_denominators: ArrayLike | None = None,
    ) -> Self:
        """The moments of an outcome and a covariate per unit; NaN as covariate is a missing past.

        A missing past counts as 0, and as 0 of its denominator where there is one: in a ratio it
        then says nothing.
        Raises: BadInput if lengths differ or a number is not finite, but for NaN in `pre` and
        `pre_denominators`.
        """
        past, past_size, missing = _past(pre, pre_denominators)
        outcome, before = Moments.of(values, denominators), Moments.of(past, past_size)
        if outcome.n != before.n:
            raise BadInput.of("pre", f"{before.n} for {outcome.n} values")
        if not outcome.n:
            return cls(0, (0.0,) * 4, ((0.0,) * 4,) * 4)
        tops = np.asarray(values, dtype=np.float64)
        sizes = np.ones_like(tops) if denominators is None else denominators
        columns = np.asarray((tops, sizes, past, past_size), dtype=np.float64)
        mean = np.array((outcome.mean, outcome.den_mean, before.mean, before.den_mean))
        centred = columns - mean[:, None]
        return cls(
            n=outcome.n,
            mean=_four(mean),
            cov=_matrix(centred @ centred.T / max(outcome.n - 1, 1)),
            missing=missing,
        )

    def __add__(self, other: "PreMoments") -> "PreMoments":
        """The moments of both arms' units together (Chan, Golub & LeVeque 1983)."""
        if not self.n or not other.n:
            return self if self.n else other
        mean, cov = pooled((self.n, other.n), (self.mean, other.mean), (self.cov, other.cov))
        missing = self.missing + other.missing
        return PreMoments(self.n + other.n, _four(mean), _matrix(cov), missing)

    @property
    def outcome(self) -> Moments:
        """The outcome alone."""
        return self._moments(0)

    @property
    def pre(self) -> Moments:
        """The covariate alone."""
        return self._moments(2)

    def _moments(self, at: int) -> Moments:
        return Moments(
            n=self.n,
            mean=self.mean[at],
            var=self.cov[at][at],
            den_mean=self.mean[at + 1],
            den_var=self.cov[at + 1][at + 1],
            cov=self.cov[at][at + 1],
        )


@dataclass(frozen=True)
class Linear:
    """Both ratios of an arm, and the covariances of its units' linearised values.

    A unit's value (top - ratio * bottom) / mean bottom has the variance of the ratio times n.
    """

    outcome: float
    pre: float
    outcome_var: float
    pre_var: float
    cov: float

    @classmethod
    def of(cls, arm: PreMoments) -> Self:
        """Of an arm with denominators whose means are not 0. A constant has variance exactly 0."""
        top, size, past, past_size = arm.mean
        outcome, pre = top / size, past / past_size
        slopes = np.array(
            ((1 / size, -outcome / size, 0, 0), (0, 0, 1 / past_size, -pre / past_size))
        )
        spread = slopes @ np.array(arm.cov) @ slopes.T
        terms = slopes**2 @ np.diag(arm.cov)
        variances = np.where(np.diag(spread) <= _ROUNDING * terms, 0.0, np.diag(spread))
        cov = float(spread[0, 1]) if variances.all() else 0.0
        return cls(outcome, pre, float(variances[0]), float(variances[1]), cov)


def _past(
    pre: ArrayLike, pre_denominators: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Covariate and its denominator without gaps, and how many units had one."""
    past = np.array(pre, dtype=np.float64)
    past_size = np.ones_like(past)
    if pre_denominators is not None:
        past_size = np.array(pre_denominators, dtype=np.float64)
    if past.ndim != 1:
        raise BadInput.of("pre", f"one number per unit, not {past.ndim} dimensions")
    if past.shape != past_size.shape:
        raise BadInput.of("pre_denominators", f"{past_size.shape} for {past.shape} of pre")
    if np.isinf(past).any() or np.isinf(past_size).any():
        raise BadInput.of("pre", "every number must be finite, or NaN for a missing past")
    missing = np.isnan(past) | np.isnan(past_size)
    past[missing] = 0.0
    past_size[missing] = 0.0 if pre_denominators is not None else 1.0
    return past, past_size, int(np.count_nonzero(missing))


def _four(numbers: NDArray[np.float64]) -> Four:
    first, second, third, fourth = numbers.tolist()
    return first, second, third, fourth


def _matrix(rows: NDArray[np.float64]) -> tuple[Four, Four, Four, Four]:
    first, second, third, fourth = map(_four, rows)
    return first, second, third, fourth
