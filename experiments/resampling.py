"""Whole experiments drawn from the histories of real units, thousands at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import log
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from experiments.stats import BURN_IN_UNITS, Moments
from ingest.errors import BadInput

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# A chunk of drawn units that stays in a processor's cache: ten times as many take four times as long.
_CHUNK = 200_000
_MOST_MOMENTS = 5_000_000


@dataclass(frozen=True)
class Histories:
    """What each unit did in one metric: one numerator and one denominator a unit."""

    numerators: Floats
    denominators: Floats

    @classmethod
    def of(cls, numerators: ArrayLike, denominators: ArrayLike | None = None) -> Self:
        """Raises: BadInput if the two differ in length, or a number is not finite."""
        tops = np.asarray(numerators, dtype=np.float64)
        bottoms = np.ones_like(tops)
        if denominators is not None:
            bottoms = np.asarray(denominators, dtype=np.float64)
        if tops.ndim != 1 or tops.shape != bottoms.shape:
            raise BadInput.of("denominators", f"{bottoms.shape} for {tops.shape} numerators")
        if not (np.isfinite(tops).all() and np.isfinite(bottoms).all()):
            raise BadInput.of("numerators", "every number must be finite")
        return cls(tops, bottoms)

    @property
    def units(self) -> int:
        return len(self.numerators)

    @property
    def moments(self) -> Moments:
        return Moments.of(self.numerators, self.denominators)


@dataclass(frozen=True)
class ManyMoments:
    """`Moments` of many simulated arms: arrays that broadcast to (replicates, looks, arms)."""

    n: Counts
    mean: Floats
    var: Floats
    den_mean: Floats
    den_var: Floats
    cov: Floats

    def arm(self, index: int) -> "ManyMoments":
        """One arm of every replicate at every look."""
        return self._each(lambda column: column[..., index : index + 1])

    def arms(self, start: int) -> "ManyMoments":
        """The arms from `start` on."""
        return self._each(lambda column: column[..., start:])

    def look(self, index: int) -> "ManyMoments":
        """One look of every replicate."""
        return self._each(lambda column: column[:, index : index + 1 or None])

    def changed(self, effect: float) -> "ManyMoments":
        """As if every unit's numerator had been 1 + `effect` times what it was."""
        factor = 1 + effect
        return replace(
            self, mean=factor * self.mean, var=factor**2 * self.var, cov=factor * self.cov
        )

    def one(self, replicate: int, look: int, arm: int) -> Moments:
        """A single arm, for the tests of `experiments.stats`."""
        shape = np.broadcast_shapes(self.n.shape, self.mean.shape)
        one = self._each(lambda column: np.broadcast_to(column, shape)[replicate, look, arm])
        numbers = one.mean, one.var, one.den_mean, one.den_var, one.cov
        return Moments(int(one.n), *map(float, numbers))

    def _each(self, cut: Callable[[NDArray[Any]], NDArray[Any]]) -> "ManyMoments":
        return ManyMoments(
            n=cut(self.n),
            mean=cut(self.mean),
            var=cut(self.var),
            den_mean=cut(self.den_mean),
            den_var=cut(self.den_var),
            cov=cut(self.cov),
        )


@dataclass(frozen=True)
class ManyEffects:
    """`ratio_test` of many pairs of arms. NaN where that test gives a reason, not a number."""

    estimate: Floats
    std_error: Floats
    df: Floats
    n_control: Counts
    n_treatment: Counts

    @cached_property
    def p_value(self) -> Floats:
        p_value: Floats = 2 * scipy.special.stdtr(self.df, -np.abs(self.estimate / self.std_error))
        return p_value

    def half_width(self, alpha: float) -> Floats:
        """Of the interval that covers 1 - `alpha`."""
        half: Floats = -scipy.special.stdtrit(self.df, alpha / 2) * self.std_error
        return half

    def anytime_p(self, tuning_n: int, alpha: float) -> Floats:
        """`confidence_sequence`'s p of every look, and 1 within the burn-in, when nobody may act."""
        # The formula is that of experiments.stats.sequential; a test holds the two together.
        mixing = self._units * (log(1 - 2 * log(alpha)) - 2 * log(alpha)) / tuning_n
        z = self.estimate / self.std_error
        log_p = 0.5 * np.log1p(mixing) - 0.5 * z**2 * mixing / (1 + mixing)
        p_value: Floats = np.where(self.warm, np.exp(np.minimum(0.0, log_p)), 1.0)
        return p_value

    @property
    def warm(self) -> NDArray[np.bool_]:
        """Where both arms have `BURN_IN_UNITS`."""
        return np.minimum(self.n_control, self.n_treatment) >= BURN_IN_UNITS

    @property
    def _units(self) -> Counts:
        return self.n_control + self.n_treatment


def draw(
    histories: Sequence[Histories],
    arms: Sequence[int],
    *,
    looks: int,
    replicates: int,
    random: np.random.Generator,
    repeat: bool = False,
) -> list[ManyMoments]:
    """Moments of each of the histories' metrics, at each look of each simulated experiment.

    Units come in random order and in even numbers between looks, until arm i has `arms[i]`. Without
    `repeat` no unit comes twice, so arms are a fresh randomisation of the same people; with it
    units are drawn with replacement, from the same histories to any size. Metrics share the draw.
    Memory is bounded by the moments, not by replicates x units.

    Raises: BadInput if the histories are too few or differ in units, an arm has fewer than 2 units
    at the first look, or replicates x looks x arms are more than memory should hold.
    """
    _check(histories, arms, looks, replicates, repeat=repeat)
    reached = np.array([[count * look // looks for count in arms] for look in range(looks + 1)])
    sizes = np.diff(reached, axis=0)
    columns = [_Columns.of(each) for each in histories]
    features = np.hstack([each.features for each in columns])
    sums = _block_sums(features, sizes.ravel(), replicates, random, repeat=repeat)
    sums = sums.reshape(replicates, looks, len(arms), -1).cumsum(axis=1)
    counts = reached[np.newaxis, 1:]
    splits = np.cumsum([each.features.shape[1] for each in columns])[:-1]
    parts = np.split(sums, splits, axis=-1)
    return [each.moments(counts, part) for each, part in zip(columns, parts, strict=True)]


def ratio_effects(control: ManyMoments, treatment: ManyMoments) -> ManyEffects:
    """`ratio_test` of every replicate, look and treatment arm against the control."""
    base, other = _Arms.of(control), _Arms.of(treatment)
    variance = base.variance + other.variance
    with np.errstate(divide="ignore", invalid="ignore"):
        share = base.variance / variance
        df = 1 / (share**2 / (control.n - 1) + (1 - share) ** 2 / (treatment.n - 1))
    return ManyEffects(
        estimate=other.ratio - base.ratio,
        std_error=np.where(variance > 0, np.sqrt(variance), np.nan),
        df=df,
        n_control=control.n,
        n_treatment=treatment.n,
    )


@dataclass(frozen=True)
class _Arms:
    ratio: Floats
    variance: Floats

    @classmethod
    def of(cls, arms: ManyMoments) -> Self:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(arms.den_mean == 0, np.nan, arms.mean / arms.den_mean)
            terms = arms.var + ratio**2 * arms.den_var
            spread = terms - 2 * ratio * arms.cov
            spread = np.where((arms.den_var > 0) & (spread <= 1e-13 * terms), 0.0, spread)
            return cls(ratio, spread / arms.n / arms.den_mean**2)


@dataclass(frozen=True)
class _Columns:
    """Per unit y and y², and for a ratio x, x² and xy, from origins near the middle."""

    origin: float
    den_origin: float
    features: Floats

    @classmethod
    def of(cls, histories: Histories) -> Self:
        # An origin that many units have: whole numbers stay whole, and an arm that does not vary
        # has the variance 0, not a rounding error.
        tops, bottoms = histories.numerators, histories.denominators
        origin, den_origin = (
            float(np.quantile(each, 0.5, method="lower")) for each in (tops, bottoms)
        )
        y, x = tops - origin, bottoms - den_origin
        columns = [y, y * y, x, x * x, x * y] if x.any() else [y, y * y]
        return cls(origin, den_origin, np.column_stack(columns))

    def moments(self, n: Counts, sums: Floats) -> ManyMoments:
        def spread(products: Floats, a: Floats, b: Floats) -> Floats:
            found: Floats = (products - a * b / n) / (n - 1)
            return found

        y, yy, *others = np.moveaxis(sums, -1, 0)
        mean, var = self.origin + y / n, np.maximum(spread(yy, y, y), 0)
        if not others:
            return ManyMoments(
                n, mean, var, np.full(n.shape, self.den_origin), *np.zeros((2, *n.shape))
            )
        x, xx, xy = others
        den_var = np.maximum(spread(xx, x, x), 0)
        return ManyMoments(n, mean, var, self.den_origin + x / n, den_var, spread(xy, x, y))


def _block_sums(
    features: Floats,
    sizes: Counts,
    replicates: int,
    random: np.random.Generator,
    *,
    repeat: bool,
) -> Floats:
    """Sums of the features over blocks of `sizes` random units: (replicates, blocks, features)."""
    units, total = len(features), int(sizes.sum())
    edges = list(pairwise(np.concatenate([[0], np.cumsum(sizes)])))
    sums = np.empty((replicates, len(sizes), features.shape[1]))
    rows = max(1, min(replicates, _CHUNK // max(total, 1)))
    order = np.empty((rows, units), np.int64)
    for start in range(0, replicates, rows):
        here = sums[start : start + rows]
        if repeat:
            chosen = random.integers(0, units, (len(here), total))
        else:
            chosen = order[: len(here)]
            chosen[:] = np.arange(units)
            random.permuted(chosen, axis=1, out=chosen)
        for block, (first, last) in enumerate(edges):
            drawn = np.take(features, chosen[:, first:last], axis=0, mode="clip")
            # A product with ones adds up ten times faster than numpy's sum over this axis.
            here[:, block] = np.matmul(np.ones((1, last - first)), drawn)[:, 0]
    return sums


def _check(
    histories: Sequence[Histories],
    arms: Sequence[int],
    looks: int,
    replicates: int,
    *,
    repeat: bool,
) -> None:
    units = histories[0].units
    if any(each.units != units for each in histories):
        raise BadInput.of("histories", "metrics of one draw must have the same units")
    if units < 2 or (not repeat and sum(arms) > units):
        raise BadInput.of("units", f"{units} histories are too few for {sum(arms)} units")
    if replicates < 1 or looks < 1:
        raise BadInput.of("replicates" if replicates < 1 else "looks", "must be 1 or more")
    if len(arms) < 2 or min(arms) // looks < 2:
        raise BadInput.of(
            "looks", f"each arm needs 2 units by the first of {looks} looks; arms have {list(arms)}"
        )
    if replicates * looks * len(arms) > _MOST_MOMENTS:
        raise BadInput.of(
            "replicates", f"replicates x looks x arms must be at most {_MOST_MOMENTS:,}"
        )
