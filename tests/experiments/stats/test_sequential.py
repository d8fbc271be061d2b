from math import exp, inf, log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.stats import (
    AnytimeResult,
    Effect,
    Moments,
    confidence_sequence,
    ratio_test,
    relative_interval,
)
from experiments.stats.sequential import NormalMixture
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector


def mean(n: int, total: float, squares: float) -> Moments:
    return Moments(n, total / n, (squares - total**2 / n) / (n - 1))


def effect(estimate: float = 0.1, std_error: float = 0.05, units: int = 1000) -> Effect:
    z = estimate / std_error
    return Effect(estimate, std_error, 9e9, z, 0.5, (0, 1), 0.05, "absolute", "x", units, units)


def bounds(result: AnytimeResult) -> tuple[float, float]:
    assert result.ci is not None
    return result.ci


def test_the_published_case_holds() -> None:
    given = vector("sequential-acs-1")["input"]
    arms = [mean(given[arm]["n"], given[arm]["sum"], given[arm]["sum_squares"]) for arm in "ab"]
    lift = relative_interval(*arms)
    units = arms[0].n + arms[1].n
    result = confidence_sequence(lift, units, tuning_n=given["tuning_n"], alpha=given["alpha"])
    bet = given["mixture"]
    mixture = NormalMixture.tuned(bet["v_opt"], bet["alpha_opt"])
    agrees(
        "sequential-acs-1",
        {
            "est": result.estimate,
            "se": lift.std_error,
            "ci": result.ci,
            "p": result.p_value,
            "mixture": {
                "rho": mixture.rho,
                "log_e": mixture.log_e(bet["s"], bet["v"]),
                "bound": mixture.bound(bet["v"], bet["alpha"]),
            },
        },
    )
    assert result.reason is None


@given(n=st.integers(400, 10**7), tuning_n=st.integers(1, 10**7), alpha=st.floats(0.001, 0.5))
def test_the_width_is_the_papers_formula(n: int, tuning_n: int, alpha: float) -> None:
    # Written from the paper's theorem, in its own arrangement: σ̂ = se √n.
    rho2 = (-2 * log(alpha) + log(-2 * log(alpha) + 1)) / tuning_n
    width = sqrt(2 * (n * rho2 + 1) / (n**2 * rho2) * log(sqrt(n * rho2 + 1) / alpha))
    result = confidence_sequence(effect(), n, tuning_n=tuning_n, alpha=alpha)
    half = 0.05 * sqrt(n) * width
    assert bounds(result) == pytest.approx((0.1 - half, 0.1 + half), rel=1e-9)


@given(z=st.floats(-12, 12), n=st.integers(2, 10**6), alpha=st.floats(0.001, 0.5))
def test_the_interval_excludes_0_when_p_is_below_alpha(z: float, n: int, alpha: float) -> None:
    result = confidence_sequence(effect(z * 0.05), n, tuning_n=5000, alpha=alpha)
    low, high = bounds(result)
    assert result.p_value is not None
    if abs(result.p_value - alpha) > 1e-9:
        assert (low > 0 or high < 0) == (result.p_value < alpha)


@given(n=st.integers(400, 10**6))
def test_it_is_wider_than_the_interval_of_one_look(n: int) -> None:
    control, treatment = Moments(n, 0.0, 1.0), Moments(n, 0.1, 1.0)
    once = ratio_test(control, treatment)
    assert once.ci is not None
    low, high = bounds(confidence_sequence(once, 2 * n, tuning_n=5000))
    assert low < once.ci[0] < once.ci[1] < high


@given(n=st.integers(400, 10**7), tuning_n=st.integers(1, 10**7), alpha=st.floats(0.001, 0.25))
def test_one_side_has_the_papers_one_sided_width(n: int, tuning_n: int, alpha: float) -> None:
    # Waudby-Smith et al. 2024, the one-sided sequence: ln(1 + √(nρ² + 1) / 2α) for ln(√… / α).
    rho2 = (-2 * log(2 * alpha) + log(-2 * log(2 * alpha) + 1)) / tuning_n
    width = sqrt(2 * (n * rho2 + 1) / (n**2 * rho2) * log(1 + sqrt(n * rho2 + 1) / (2 * alpha)))
    half = 0.05 * sqrt(n) * width
    lower = bounds(confidence_sequence(effect(), n, tuning_n=tuning_n, alpha=alpha, side="lower"))
    upper = bounds(confidence_sequence(effect(), n, tuning_n=tuning_n, alpha=alpha, side="upper"))
    assert lower == pytest.approx((0.1 - half, inf), rel=1e-9, abs=1e-12)
    assert upper == pytest.approx((-inf, 0.1 + half), rel=1e-9)


@given(z=st.floats(-40, 40), n=st.integers(2, 10**6), alpha=st.floats(0.001, 0.4))
def test_a_one_sided_bound_passes_0_when_its_p_is_below_alpha(
    z: float, n: int, alpha: float
) -> None:
    lower = confidence_sequence(effect(z * 0.05), n, tuning_n=5000, alpha=alpha, side="lower")
    upper = confidence_sequence(effect(-z * 0.05), n, tuning_n=5000, alpha=alpha, side="upper")
    assert lower.p_value is not None
    assert upper.p_value == lower.p_value
    assert bounds(upper)[1] == -bounds(lower)[0]
    if abs(lower.p_value - alpha) > 1e-9:
        assert (bounds(lower)[0] > 0) == (lower.p_value < alpha)


@given(n=st.integers(400, 10**6))
def test_harm_is_seen_sooner_on_one_side_than_on_two(n: int) -> None:
    one = confidence_sequence(effect(-0.1), n, tuning_n=5000, side="upper")
    two = confidence_sequence(effect(-0.1), n, tuning_n=5000)
    assert bounds(one)[1] < bounds(two)[1]


def test_it_is_tightest_against_one_look_near_the_tuned_total() -> None:
    def excess(n: int) -> float:
        low, high = bounds(confidence_sequence(effect(0), n, tuning_n=5000))
        return high - low

    widths = {n: excess(n) for n in range(500, 20_001, 500)}
    assert min(widths, key=lambda n: widths[n]) == 5000


def test_before_the_burn_in_the_numbers_come_with_a_warning() -> None:
    early = confidence_sequence(effect(units=199), 398, tuning_n=5000)
    assert not early.burn_in_reached
    assert "fewer than 200 units" in str(early.reason)
    assert early.ci is not None
    in_time = confidence_sequence(effect(units=200), 400, tuning_n=5000)
    assert in_time.burn_in_reached
    assert in_time.reason is None


def test_the_burn_in_counts_the_smaller_arm() -> None:
    lopsided = ratio_test(Moments(9_999, 0.0, 1.0), Moments(199, 0.0, 1.0))
    assert not confidence_sequence(lopsided, 10_198, tuning_n=5000).burn_in_reached


def test_a_rare_event_burns_in_by_conversions() -> None:
    early = confidence_sequence(effect(), 2000, tuning_n=5000, conversions=(24, 60))
    assert not early.burn_in_reached
    assert "fewer than 25 conversions" in str(early.reason)
    assert early.ci is not None
    in_time = confidence_sequence(effect(), 2000, tuning_n=5000, conversions=(25, 60))
    assert in_time.burn_in_reached
    assert in_time.reason is None


def test_an_effect_without_an_answer_stays_without_one() -> None:
    none = ratio_test(Moments(500, 1.0, 0.0), Moments(500, 1.0, 0.0))
    result = confidence_sequence(none, 1000, tuning_n=5000)
    assert (result.estimate, result.ci, result.p_value) == (None, None, None)
    assert result.reason == "neither arm varies"


def test_a_huge_effect_has_a_p_of_0_and_no_overflow() -> None:
    assert confidence_sequence(effect(1e9), 2000, tuning_n=5000).p_value == 0
    assert confidence_sequence(effect(1e9), 2000, tuning_n=5000, side="lower").p_value == 0


def test_the_bets_e_value_is_the_mean_of_its_bets() -> None:
    # ∫ exp(λS - λ²v/2) N(λ; 0, 1/ρ) dλ by a sum over a fine grid.
    mixture, step = NormalMixture(12.6), 1e-3
    grid = [step * i for i in range(-4000, 4001)]
    prior = [exp(-0.5 * x * x * 12.6) * sqrt(12.6 / 6.283185307179586) for x in grid]
    e = sum(exp(x * 10 - x * x * 50) * w for x, w in zip(grid, prior, strict=True)) * step
    assert mixture.log_e(10, 100) == pytest.approx(log(e), rel=1e-9)


@pytest.mark.parametrize(
    ("n", "tuning_n", "alpha", "field"),
    [(0, 1, 0.05, "n"), (1, 0, 0.05, "tuning_n"), (1, 1, 0.0, "alpha"), (1, 1, 1.0, "alpha")],
)
def test_settings_that_make_no_sense_are_refused_by_name(
    n: int, tuning_n: int, alpha: float, field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        confidence_sequence(effect(), n, tuning_n=tuning_n, alpha=alpha)
    assert [error.field for error in refused.value.errors] == [field]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"side": "upper", "alpha": 0.5}, "alpha"),
        ({"side": "both"}, "side"),
        ({"conversions": (-1, 30)}, "conversions"),
        ({"alpha": float("nan")}, "alpha"),
    ],
)
def test_other_settings_are_refused_by_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        confidence_sequence(effect(), 2000, tuning_n=5000, **settings)
    assert [error.field for error in refused.value.errors] == [field]


def test_an_effect_that_is_no_number_is_refused() -> None:
    for estimate, std_error in ((float("nan"), 1.0), (inf, 1.0), (0.0, -1.0)):
        with pytest.raises(BadInput):
            confidence_sequence(effect(estimate, std_error), 2000, tuning_n=5000)


@pytest.mark.slow
def test_thirty_looks_err_at_most_at_alpha_where_a_daily_fixed_test_errs_at_28_percent() -> None:
    replicates, looks, batch = 2000, 30, 200
    random = np.random.default_rng(20_261_207)
    z = np.empty((replicates, looks))
    n = batch * np.arange(1, looks + 1)
    for start in range(0, replicates, 100):
        outcomes = random.lognormal(0, 1.5, (2, 100, looks, batch))
        means = outcomes.sum(axis=-1).cumsum(axis=-1) / n
        squares = (outcomes**2).sum(axis=-1).cumsum(axis=-1) / n
        variances = (squares - means**2) / (n - 1)
        z[start : start + 100] = (means[1] - means[0]) / np.sqrt(variances.sum(axis=0))
    rates = {"fixed": float((np.abs(z) > 1.959964).any(axis=1).mean())}
    for side in ("two-sided", "lower", "upper"):
        wrong = 0
        for row in z:
            results = [
                confidence_sequence(
                    effect(float(value), 1.0, int(units)),
                    2 * int(units),
                    tuning_n=2 * looks * batch,
                    side=side,
                )
                for value, units in zip(row, n, strict=True)
            ]
            wrong += any(result.p_value is not None and result.p_value < 0.05 for result in results)
        rates[side] = wrong / replicates
    print("\n30 looks at 5 %:", rates)
    assert rates["fixed"] > 0.2
    for side in ("two-sided", "lower", "upper"):
        assert rates[side] <= 0.05 + 3 * sqrt(0.05 * 0.95 / replicates)
