"""A/A: both arms are alike, so whoever sees a difference errs. Seeds are fixed."""

from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from experiments.stats import Moments, confidence_sequence, ratio_test

Counts = NDArray[np.int64]


def within(rate: float, nominal: float, replicates: int) -> bool:
    """Within three standard errors of a simulated rate."""
    return abs(rate - nominal) <= 3 * sqrt(nominal * (1 - nominal) / replicates)


def thumbs(random: np.random.Generator, *shape: int) -> tuple[Counts, Counts]:
    """Thumbs up and turns per user; about 20 turns, correlated 0.1 within a user."""
    turns = random.poisson(19, shape) + 1
    liking = random.beta(0.3 * 9, 0.7 * 9, shape)  # icc = 1 / (1 + a + b)
    return random.binomial(turns, liking), turns


def naive_p(ups: Counts, turns: Counts) -> float:
    """Turns as if each were randomised alone."""
    rates, counts = ups.sum(axis=1) / turns.sum(axis=1), turns.sum(axis=1)
    error = sqrt((rates * (1 - rates) / counts).sum())
    return float(2 * norm.sf(abs(rates[1] - rates[0]) / error))


def test_the_ratio_test_errs_at_5_percent_where_a_test_of_turns_errs_far_more() -> None:
    replicates = 2000
    random = np.random.default_rng(20_261_130)
    ups, turns = thumbs(random, replicates, 2, 200)
    effects = [
        ratio_test(Moments.of(up[0], turn[0]), Moments.of(up[1], turn[1]))
        for up, turn in zip(ups, turns, strict=True)
    ]
    p_values = np.array([effect.p_value for effect in effects])
    for alpha in (0.01, 0.05, 0.1):
        assert within(float((p_values < alpha).mean()), alpha, replicates)
    assert kstest(p_values, "uniform").pvalue > 0.001
    naive = np.array([naive_p(up, turn) for up, turn in zip(ups, turns, strict=True)])
    assert (naive < 0.05).mean() > 0.25


def test_a_confidence_sequence_errs_at_most_5_percent_over_20_looks_where_a_fixed_test_errs_more() -> (
    None
):
    replicates, looks, batch = 400, 20, 200
    random = np.random.default_rng(20_261_201)
    fixed = anytime = 0
    for _ in range(replicates):
        ups, turns = thumbs(random, 2, looks, batch)
        arms = [Moments.of([]), Moments.of([])]
        wrong_once = wrong_ever = False
        for look in range(looks):
            arms = [arm + Moments.of(ups[i, look], turns[i, look]) for i, arm in enumerate(arms)]
            effect = ratio_test(*arms)
            result = confidence_sequence(effect, 2 * arms[0].n, tuning_n=2 * looks * batch)
            assert effect.p_value is not None
            assert result.p_value is not None
            wrong_once |= effect.p_value < 0.05
            wrong_ever |= result.p_value < 0.05
        fixed += wrong_once
        anytime += wrong_ever
    # Armitage, McPherson & Rowe 1969, Table 2: 24.8 % at 20 equal looks.
    assert within(fixed / replicates, 0.248, replicates)
    assert anytime / replicates <= 0.05
