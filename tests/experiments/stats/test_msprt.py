from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from experiments.stats.msprt import msprt
from ingest.errors import BadInput


@given(diff=st.floats(-1, 1), n=st.integers(1, 300), tau=st.floats(0.05, 0.5))
def test_it_is_the_likelihood_ratio_averaged_over_the_prior(
    diff: float, n: int, tau: float
) -> None:
    error = (2 * 1.5 / n) ** 0.5
    effects = np.linspace(-16 * tau, 16 * tau, 40_001)
    ratio = np.exp((diff * effects - effects**2 / 2) / error**2)
    mean = np.trapezoid(ratio * norm.pdf(effects, scale=tau), effects)
    answer = msprt(diff, n, 1.5, tau**2)
    assert answer.log_e == pytest.approx(log(mean), abs=1e-6)


def test_the_mixing_variance_is_a_variance() -> None:
    # By hand: V = 2, n = 100, τ² = 0.04: L = √(2/6) exp(100² · 0.04 · 0.09 / (2 · 2 · 6)).
    answer = msprt(0.3, 100, 1.0, 0.04)
    assert answer.log_e == pytest.approx(0.5 * log(1 / 3) + 1.5)
    assert answer.p == pytest.approx(sqrt(3) * exp(-1.5))


def test_no_difference_has_a_p_of_1() -> None:
    assert msprt(0.0, 1000, 1.0, 0.01).p == 1


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((float("nan"), 10, 1.0, 1.0), "diff"),
        ((0.1, 0, 1.0, 1.0), "n_per_arm"),
        ((0.1, 10, 0.0, 1.0), "variance"),
        ((0.1, 10, 1.0, float("inf")), "mixing_variance"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(
    arguments: tuple[float, int, float, float], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        msprt(*arguments)
    assert [error.field for error in refused.value.errors] == [field]


@pytest.mark.slow
def test_a_look_after_every_ten_units_errs_at_most_5_percent() -> None:
    random = np.random.default_rng(20_261_203)
    replicates, looks = 2000, 100
    steps = random.normal(0, (2 / 10) ** 0.5, (replicates, looks))
    diffs = steps.cumsum(axis=1) / np.arange(1, looks + 1)
    errs = np.mean(
        [
            any((msprt(float(d), 10 * k, 1.0, 0.02).p or 0) < 0.05 for k, d in enumerate(row, 1))
            for row in diffs
        ]
    )
    print(f"\n100 looks, mSPRT: {errs:.3f}")
    assert errs <= 0.05 + 3 * (0.05 * 0.95 / replicates) ** 0.5
