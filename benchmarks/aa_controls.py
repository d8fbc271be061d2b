"""Tests outside the matrix: those that must be seen to fail, each beside one that holds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
from scipy.special import ndtr

from benchmarks.aa_cells import DAYS
from benchmarks.aa_histories import Floats, Pool, pool
from experiments.error_rates import ErrorRate, ErrorRates
from experiments.resampling import draw, ratio_effects
from experiments.simulate import simulate_aa
from experiments.stats import (
    BatchMoments,
    Effect,
    Moments,
    PreMoments,
    adaptive_effect,
    bandit_weights,
    cr2_test,
    cuped,
    ratio_test,
    winsorize,
)

_ALPHA = 0.05
_BATCHES, _BATCH = 25, 100

Pair = tuple[Floats, Floats]


@dataclass(frozen=True)
class Control:
    name: str
    fails: bool
    """It is known to be wrong: were it not seen to fail, this benchmark could see nothing."""
    rate: ErrorRate

    @property
    def as_expected(self) -> bool:
        return self.rate.at_most is not self.fails


def controls(*, replicates: int, seed: int) -> Iterator[Control]:
    """Error rates at 5 % where nothing differs."""
    alike, tailed = pool("even", 0.1, seed=seed), pool("heavy tail", 0.1, seed=seed)
    yield Control("turns as units, icc 0.1", fails=True, rate=_turns(alike, replicates, seed))
    daily = _looks(alike, replicates, seed)
    yield Control(f"fixed test, {DAYS} looks", fails=True, rate=daily.any_look[1])
    yield Control("fixed test, 1 look", fails=False, rate=daily.rates[1])
    capped = partial(_capped, pooled=False), partial(_capped, pooled=True)
    scalar: list[
        tuple[str, bool, Callable[[np.random.Generator], Iterator[Pair]], Callable[[Pair], Effect]]
    ] = [
        ("a cap for each arm, at its own p95", True, partial(_totals, tailed), capped[0]),
        ("one cap for all arms", False, partial(_totals, tailed), capped[1]),
        ("CR2, 10 users an arm", False, partial(_few, tailed), _cr2),
        ("CUPED, 19:1 split", False, partial(_past, alike), partial(_cuped, "pooled")),
        ("CUPED by Lin, 19:1 split", False, partial(_past, alike), partial(_cuped, "lin")),
    ]
    for name, fails, generator, estimator in scalar:
        rates = simulate_aa(generator, estimator, replicates=replicates, seed=seed)
        yield Control(name, fails=fails, rate=rates.rates[1])


def bandits(*, replicates: int, seed: int) -> Iterator[Control]:
    """The same of data whose shares followed the data."""
    for name, fails, answer in (("naive", True, _pooled), ("batched OLS", False, adaptive_effect)):
        rates = simulate_aa(_bandit, answer, replicates=replicates, seed=seed)
        yield Control(f"bandit, {name}", fails=fails, rate=rates.rates[1])


def _turns(people: Pool, replicates: int, seed: int) -> ErrorRate:
    named = [people.histories[each] for each in ("ratio", "squares")]
    values, squares = draw(
        named,
        [1000, 1000],
        looks=1,
        replicates=replicates,
        random=np.random.default_rng(seed),
        repeat=True,
    )
    mean = values.mean / values.den_mean
    variance = squares.mean / values.den_mean - mean**2
    error = np.sqrt((variance / (values.n * values.den_mean)).sum(axis=-1))
    z = (mean[..., 1] - mean[..., 0]) / error
    return ErrorRates.of(2 * ndtr(-np.abs(z))).rates[1]


def _looks(people: Pool, replicates: int, seed: int) -> ErrorRates:
    [moments] = draw(
        [people.histories["ratio"]],
        [1000, 1000],
        looks=DAYS,
        replicates=replicates,
        random=np.random.default_rng(seed),
        repeat=True,
    )
    return ErrorRates.of(ratio_effects(moments.arm(0), moments.arms(1)).p_value)


def _totals(people: Pool, random: np.random.Generator) -> Iterator[Pair]:
    totals = people.histories["mean"].numerators
    yield random.choice(totals, 1000), random.choice(totals, 1000)


def _capped(arms: Pair, *, pooled: bool) -> Effect:
    named = dict(zip(("control", "treatment"), arms, strict=True))
    values = winsorize(named, upper_quantile=0.95, pooled=pooled).values
    assert values is not None
    return ratio_test(Moments.of(values["control"]), Moments.of(values["treatment"]))


def _few(people: Pool, random: np.random.Generator) -> Iterator[Pair]:
    ratio = people.histories["ratio"]
    sums = np.column_stack([ratio.numerators, ratio.denominators])
    chosen = random.integers(0, len(sums), (2, 10))
    yield sums[chosen[0]], sums[chosen[1]]


def _cr2(arms: Pair) -> Effect:
    return cr2_test(*arms)


def _past(people: Pool, random: np.random.Generator) -> Iterator[Pair]:
    """A user's total, and another number that is alike: what they did before."""
    totals = people.histories["mean"].numerators
    chosen = random.integers(0, len(totals), 4000)
    past = totals[chosen] + random.normal(0, totals.std(), 4000)
    both = np.column_stack([totals[chosen], past])
    yield both[:3800], both[3800:]


def _cuped(adjustment: str, arms: Pair) -> Effect:
    moments = [PreMoments.of(arm[:, 0], arm[:, 1]) for arm in arms]
    return cuped(*moments, adjustment="lin" if adjustment == "lin" else "pooled").absolute


@dataclass(frozen=True)
class _Posterior:
    mean: float
    sd: float

    @classmethod
    def of(cls, arm: Moments) -> "_Posterior":
        return cls(arm.mean, sqrt(arm.var / arm.n))


def _bandit(random: np.random.Generator) -> Iterator[list[BatchMoments]]:
    """Thompson's shares, over two arms whose units are all standard normal."""
    shares, arms, batches = (0.5, 0.5), [Moments.of([]), Moments.of([])], []
    for _ in range(_BATCHES):
        treated = int(random.binomial(_BATCH, shares[1]))
        values = random.standard_normal(_BATCH)
        batch = Moments.of(values[treated:]), Moments.of(values[:treated])
        batches.append(BatchMoments(*batch, *shares, _BATCH))
        arms = [arm + new for arm, new in zip(arms, batch, strict=True)]
        weights = bandit_weights([_Posterior.of(arm) for arm in arms])
        shares = float(weights[0]), float(weights[1])
    yield batches


def _pooled(batches: list[BatchMoments]) -> Effect:
    control, treatment = Moments.of([]), Moments.of([])
    for batch in batches:
        control, treatment = control + batch.control, treatment + batch.treatment
    return ratio_test(control, treatment)
