from math import log, sqrt

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
from ingest.errors import BadInput


def mean(n: int, total: float, squares: float) -> Moments:
    return Moments(n, total / n, (squares - total**2 / n) / (n - 1))


def effect(estimate: float = 0.1, std_error: float = 0.05, units: int = 1000) -> Effect:
    z = estimate / std_error
    return Effect(estimate, std_error, 9e9, z, 0.5, (0, 1), 0.05, "absolute", "x", units, units)


def bounds(result: AnytimeResult) -> tuple[float, float]:
    assert result.ci is not None
    return result.ci


def test_the_published_case_holds() -> None:
    # Source: growthbook/growthbook@8f1db4456915, packages/stats/tests/frequentist/test_tests.py
    # (sequential, relative, n = both arms).
    control = mean(3000, 1396.87, 52377.9767)
    treatment = mean(3461, 2422.7, 134698.29)
    lift = relative_interval(control, treatment)
    assert lift.estimate == pytest.approx(0.50336109, rel=1e-5)
    assert lift.std_error == pytest.approx(0.33341221, rel=1e-5)
    result = confidence_sequence(lift, 6461, tuning_n=1000)
    assert bounds(result) == pytest.approx((-0.55844051, 1.5651627), rel=1e-5)
    assert result.p_value == 1.0
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


def test_an_effect_without_an_answer_stays_without_one() -> None:
    none = ratio_test(Moments(500, 1.0, 0.0), Moments(500, 1.0, 0.0))
    result = confidence_sequence(none, 1000, tuning_n=5000)
    assert (result.estimate, result.ci, result.p_value) == (None, None, None)
    assert result.reason == "neither arm varies"


def test_a_huge_effect_has_a_p_of_0_and_no_overflow() -> None:
    assert confidence_sequence(effect(1e9), 2000, tuning_n=5000).p_value == 0


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
