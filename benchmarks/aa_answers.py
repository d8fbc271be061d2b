"""What each kind of test answers in thousands of simulated experiments at once.

The formulas are those of `experiments.stats`, over arrays; tests hold the two together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from benchmarks.aa_histories import Counts, Floats, Pool
from experiments.resampling import Histories, ManyEffects, ManyMoments, ratio_effects
from experiments.stats import Moments, cluster_factor, minimum_detectable_effect

Interval = tuple[Floats, Floats]

Q = 0.95
ALPHA, POWER = 0.05, 0.8
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

    def finds(self) -> NDArray[np.bool_]:
        """Whether the last look finds what such arms are planned to find with 80 % power."""


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

    def finds(self) -> NDArray[np.bool_]:
        last = self.moments.look(-1)
        control, treatment = last.arm(0), last.arms(1)
        sizes = int(last.n[0, 0, 0]), int(last.n[0, 0, -1])
        plan = minimum_detectable_effect(
            self.history.moments, sizes[0], ratio=sizes[1] / sizes[0], scale="absolute", power=POWER
        )
        assert plan.mde is not None
        # So much in each unit of the denominator: a turn, or a user.
        step = _half_each(plan.mde, len(last.mean))
        moved = replace(
            treatment,
            mean=treatment.mean + step * treatment.den_mean,
            var=treatment.var + 2 * step * treatment.cov + step**2 * treatment.den_var,
            cov=treatment.cov + step * treatment.den_var,
        )
        found: NDArray[np.bool_] = ratio_effects(control, moved).p_value[:, 0] < ALPHA
        return found


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

    def finds(self) -> NDArray[np.bool_]:
        n = self.moments.n
        sizes = int(n[0, -1, 0]), int(n[0, -1, -1])
        plan = minimum_detectable_effect(
            self.value, sizes[0], ratio=sizes[1] / sizes[0], power=POWER
        )
        assert plan.mde is not None
        return excludes(self.interval(plan.mde, ALPHA), 0.0)


def _half_each(size: float, replicates: int) -> Floats:
    """An effect that is a rise in half of the experiments and a fall in the others: of skewed users
    a rise is found a little more often than a fall, and a plan does not know which it will be."""
    step: Floats = np.where(np.arange(replicates) % 2, -size, size)[:, np.newaxis, np.newaxis]
    return step


def excludes(interval: Interval, truth: float) -> NDArray[np.bool_]:
    """Where the truth is outside."""
    low, high = interval
    found: NDArray[np.bool_] = (low > truth) | (high < truth)
    return found


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

    def finds(self) -> NDArray[np.bool_]:
        looks = self.looks
        step = _half_each(self._planned(), len(looks.estimate))
        found: NDArray[np.bool_] = replace(looks, estimate=looks.estimate + step).p_value < ALPHA
        return found[:, -1]

    def _planned(self) -> float:
        """By the usual formula, with the error that users of these histories have."""
        active = self.units[:, -1].mean(axis=0)[[0, -1]]
        turns = active * self.pool.turns.sum() / np.count_nonzero(self.pool.turns)
        variances = self._variance / turns
        whole = variances.sum()
        student = -stdtrit(whole**2 / (variances**2 / _df(active, turns)).sum(), ALPHA / 2)
        return float(np.sqrt(whole) * (student + ndtri(POWER)))

    @cached_property
    def _variance(self) -> float:
        """Of the quantile, times the turns it is made from."""
        # Wider apart than a test's bounds, so that the plan has no noise of its own.
        low, high = np.quantile(self.pool.values, (Q - 0.004, Q + 0.004))
        user = np.repeat(np.arange(len(self.pool.turns)), self.pool.turns)
        below = np.bincount(user, self.pool.values <= self.value, len(self.pool.turns))
        factor = cluster_factor(Moments.of(below, self.pool.turns), Q)
        return factor * Q * (1 - Q) * float((high - low) / 0.008) ** 2

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
