"""What each kind of test answers in thousands of simulated experiments at once.

The formulas are those of `experiments.stats`, over arrays; tests hold the two together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Protocol, Self

import numpy as np
from scipy.special import ndtri, stdtrit

from benchmarks.aa_histories import Counts, Floats, Pool
from experiments.resampling import Histories, ManyEffects, ManyMoments, ratio_effects

Interval = tuple[Floats, Floats]

Q = 0.95
_TAIL = 0.85
_Z = -float(ndtri(0.025))


class Answers(Protocol):
    """One metric in every replicate; `effect` is relative, and in every arm but the control."""

    @property
    def value(self) -> float:
        """The truth in the control."""

    @property
    def looks(self) -> ManyEffects:
        """Without an effect, (replicates, looks, comparisons)."""

    def interval(self, effect: float, alpha: float, look: int = -1) -> Interval:
        """Of one look, (replicates, comparisons)."""

    def errors(self, effect: float, sizes: Sequence[int]) -> tuple[float, float]:
        """For the plan: the error that a test reckons with, and the estimate's own."""


@dataclass(frozen=True)
class RatioAnswers:
    """`ratio_test`: means and ratios."""

    history: Histories
    moments: ManyMoments

    @property
    def value(self) -> float:
        whole = self.history.moments
        return whole.mean / whole.den_mean

    @cached_property
    def looks(self) -> ManyEffects:
        return ratio_effects(self.moments.arm(0), self.moments.arms(1))

    def interval(self, effect: float, alpha: float, look: int = -1) -> Interval:
        then = self.moments.look(look)
        effects = ratio_effects(then.arm(0), then.arms(1).changed(effect))
        half = effects.half_width(alpha)
        return (effects.estimate - half)[:, 0], (effects.estimate + half)[:, 0]

    def errors(self, effect: float, sizes: Sequence[int]) -> tuple[float, float]:
        variance = _unit_variance(self.history)
        error = sqrt(variance / sizes[0] + (1 + effect) ** 2 * variance / sizes[-1])
        return error, error


def _unit_variance(history: Histories) -> float:
    """Of the ratio, times the units it is made from."""
    whole = history.moments
    value = whole.mean / whole.den_mean
    return (whole.var - 2 * value * whole.cov + value**2 * whole.den_var) / whole.den_mean**2


@dataclass(frozen=True)
class ShareAnswers:
    """`proportion_test`, Newcombe's interval; an effect converts users who had not."""

    history: Histories
    moments: ManyMoments
    seed: int

    @property
    def value(self) -> float:
        return self.history.moments.mean

    @cached_property
    def looks(self) -> ManyEffects:
        return ratio_effects(self.moments.arm(0), self.moments.arms(1))

    @property
    def conversions(self) -> Counts:
        """Of each arm at each look."""
        return np.rint(self.moments.mean * self.moments.n).astype(np.int64)

    def interval(self, effect: float, alpha: float, look: int = -1) -> Interval:
        counts, units = self.conversions[:, look], self.moments.n[:, look]
        changed = counts[:, 1:]
        if effect:
            random = np.random.default_rng([self.seed, round(1e6 * effect)])
            chance = effect * self.value / (1 - self.value)
            changed = changed + random.binomial(units[:, 1:] - changed, chance)
        return newcombe(counts[:, :1], units[:, :1], changed, units[:, 1:], alpha)

    def errors(self, effect: float, sizes: Sequence[int]) -> tuple[float, float]:
        # A score test's limit is where the arms are alike: the textbook's plan of two proportions.
        base, rate = self.value, (1 + effect) * self.value
        pooled = (sizes[0] * base + sizes[-1] * rate) / (sizes[0] + sizes[-1])
        null = pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[-1])
        return sqrt(null), sqrt(base * (1 - base) / sizes[0] + rate * (1 - rate) / sizes[-1])


def newcombe(
    control: Counts, control_units: Counts, treatment: Counts, treatment_units: Counts, alpha: float
) -> Interval:
    """The limits of many differences of two proportions."""
    base, (low0, high0) = _wilson(control, control_units, alpha)
    rate, (low1, high1) = _wilson(treatment, treatment_units, alpha)
    low = rate - base - np.sqrt((rate - low1) ** 2 + (high0 - base) ** 2)
    high = rate - base + np.sqrt((high1 - rate) ** 2 + (base - low0) ** 2)
    return low, high


def _wilson(counts: Counts, units: Counts, alpha: float) -> tuple[Floats, Interval]:
    z = -float(ndtri(alpha / 2))
    rate = counts / units
    middle, square = counts + z * z / 2, z * z
    half = z * np.sqrt(units * rate * (1 - rate) + square / 4)
    return rate, ((middle - half) / (units + square), (middle + half) / (units + square))


@dataclass(frozen=True)
class QuantileAnswers:
    """`quantile_test` at the p95; an effect multiplies every turn's value."""

    pool: Pool
    estimate: Floats
    """Of each replicate, look and arm; so are `variance`, its degrees of freedom and `units`."""
    variance: Floats
    df: Floats
    units: Counts
    """That have a turn: the others are in no quantile."""

    @cached_property
    def value(self) -> float:
        return float(np.quantile(self.pool.values, Q))

    @property
    def looks(self) -> ManyEffects:
        return self._effects(0.0)

    def interval(self, effect: float, alpha: float, look: int = -1) -> Interval:
        effects = self._effects(effect)
        half = effects.half_width(alpha)
        return (effects.estimate - half)[:, look], (effects.estimate + half)[:, look]

    def errors(self, effect: float, sizes: Sequence[int]) -> tuple[float, float]:
        variances = np.array([1.0, (1 + effect) ** 2]) * self._variance / (sizes[0], sizes[-1])
        error = sqrt(variances.sum())
        active = (self.pool.turns > 0).mean() * np.array([sizes[0], sizes[-1]])
        df = _df(active, self.pool.turns.mean() * np.array([sizes[0], sizes[-1]]))
        student = -stdtrit(variances.sum() ** 2 / (variances**2 / df).sum(), 0.025) / _Z
        return error * student, error

    @cached_property
    def _variance(self) -> float:
        # Wider apart than a test's bounds, so that the plan has no noise of its own.
        low, high = np.quantile(self.pool.values, (Q - 0.01, Q + 0.01))
        user = np.repeat(np.arange(len(self.pool.turns)), self.pool.turns)
        below = np.bincount(user, self.pool.values <= self.value, len(self.pool.turns))
        share = _unit_variance(Histories.of(below, self.pool.turns))
        return share * float((high - low) / 0.02) ** 2

    def _effects(self, effect: float) -> ManyEffects:
        own, grown = self.variance[..., :1], (1 + effect) ** 2 * self.variance[..., 1:]
        share = own / (own + grown)
        return ManyEffects(
            estimate=(1 + effect) * self.estimate[..., 1:] - self.estimate[..., :1],
            std_error=np.sqrt(own + grown),
            df=1 / (share**2 / self.df[..., :1] + (1 - share) ** 2 / self.df[..., 1:]),
            n_control=self.units[..., :1],
            n_treatment=self.units[..., 1:],
        )


def quantile_answers(
    pool: Pool, arms: Sequence[int], *, looks: int, replicates: int, random: np.random.Generator
) -> QuantileAnswers:
    """Users drawn with replacement, in even numbers between looks."""
    shape = replicates, looks, len(arms)
    estimate, variance, df = np.empty(shape), np.empty(shape), np.empty(shape)
    active = np.empty(shape, np.int64)
    reached = np.array([[count * look // looks for count in arms] for look in range(1, looks + 1)])
    summaries = Summaries.of(pool)
    rows = max(1, 100_000 // max(arms))
    for first in range(0, replicates, rows):
        here = slice(first, min(first + rows, replicates))
        for arm, count in enumerate(arms):
            chosen = random.integers(0, len(pool.turns), (here.stop - first, count))
            for look, units in enumerate(reached[:, arm]):
                read = summaries.read(chosen[:, :units])
                for all_of_them, new in zip((estimate, variance, df, active), read, strict=True):
                    all_of_them[here, look, arm] = new
    return QuantileAnswers(pool, estimate, variance, df, active)


@dataclass(frozen=True)
class Summaries:
    """Reads `QuantileSummary`s of many rows of users. Only high values can be near the p95, so only
    they are drawn and sorted."""

    turns: Counts
    high: Counts
    starts: Counts
    values: Floats

    @classmethod
    def of(cls, pool: Pool) -> Self:
        tail = pool.tail(_TAIL)
        return cls(pool.turns, tail.turns, tail.starts, tail.values)

    def read(self, users: Counts) -> tuple[Floats, Floats, Floats, Counts]:
        """The p95, its clustered variance, that's df, and the users with a turn, of each row."""
        turns, high = self.turns[users], self.high[users]
        n, known = turns.sum(axis=1), high.sum(axis=1)
        ends = np.cumsum(high.ravel())
        begins = ends - high.ravel()
        place = np.repeat(self.starts[users].ravel() - begins, high.ravel()) + np.arange(ends[-1])
        drawn = self.values[place]
        padded = np.full((len(users), known.max()), np.inf)
        padded[np.arange(known.max()) < known[:, np.newaxis]] = drawn
        padded.sort(axis=1)
        reach = _Z * np.sqrt(Q * (1 - Q) / n)
        lower, value, upper = (
            _level(padded, n, n - known, level) for level in (Q - reach, Q, Q + reach)
        )
        above = np.concatenate([[0], np.cumsum(drawn > np.repeat(value, known))])
        below = turns - (above[ends] - above[begins]).reshape(users.shape)
        share = below.sum(axis=1) / n
        residual = below - share[:, np.newaxis] * turns
        active = (turns > 0).sum(axis=1)
        factor = (residual**2).sum(axis=1) / (active - 1) / (n / active) / (Q * (1 - Q))
        variance = ((upper - lower) / (2 * _Z)) ** 2 * factor
        return value, variance, _df(active, n), active


def _df(units: Counts | Floats, n: Counts | Floats) -> Floats:
    # Between the bounds are some 2z√(nq(1 - q)) events: so well is their distance known.
    df: Floats = 1 / (1 / (units - 1) + 1 / (_Z * np.sqrt(n * Q * (1 - Q))))
    return df


def _level(rows: Floats, n: Counts, missing: Counts, level: Floats | float) -> Floats:
    """numpy's linear quantile of `n` values a row, of which the lowest `missing` are left out."""
    place = (n - 1) * level
    floor = place.astype(np.int64)
    if (floor < missing).any():
        raise AssertionError("the tail is too short")
    row = np.arange(len(rows))
    low, high = rows[row, floor - missing], rows[row, np.minimum(floor + 1, n - 1) - missing]
    found: Floats = low + (high - low) * (place - floor)
    return found
