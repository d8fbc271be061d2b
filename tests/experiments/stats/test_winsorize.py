import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from experiments.stats import Moments, ratio_test
from experiments.stats.quantiles import QuantileSummary
from experiments.stats.winsorize import Winsorized, winsorize
from ingest.errors import BadInput

Floats = NDArray[np.float64]

columns = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30)


def capped(result: Winsorized) -> dict[str, Floats]:
    assert result.reason is None
    assert result.values is not None
    return dict(result.values)


def p_value(arms: dict[str, Floats]) -> float:
    effect = ratio_test(Moments.of(arms["a"]), Moments.of(arms["b"]))
    assert effect.p_value is not None
    return effect.p_value


@given(left=columns, right=columns, q=st.floats(0.5, 0.99))
def test_one_cap_of_all_units_together_holds_for_each_arm(
    left: list[float], right: list[float], q: float
) -> None:
    result = winsorize({"a": left, "b": right}, upper_quantile=q)
    if result.reason:
        return
    cap = np.quantile(np.array(left + right), q)
    assert result.caps == {"a": cap, "b": cap}
    assert result.shares is not None
    for arm, before in (("a", np.array(left)), ("b", np.array(right))):
        after = capped(result)[arm]
        np.testing.assert_array_equal(after[before <= cap], before[before <= cap])
        assert (after[before > cap] == cap).all()
        assert result.shares[arm] == np.count_nonzero(before > cap) / len(before)
        np.testing.assert_array_equal(result.uncapped[arm], before)


def test_a_cap_fixed_before_launch_does_not_look_at_the_units() -> None:
    result = winsorize({"a": [1, 2, 30], "b": [4, 5, 60]}, upper=10)
    np.testing.assert_array_equal(capped(result)["a"], [1, 2, 10])
    np.testing.assert_array_equal(capped(result)["b"], [4, 5, 10])
    assert result.caps == {"a": 10.0, "b": 10.0}
    assert result.shares == pytest.approx({"a": 1 / 3, "b": 1 / 3})


def test_a_cap_of_0_over_units_below_0_is_a_cap() -> None:
    np.testing.assert_array_equal(capped(winsorize({"a": [-1, 2]}, upper=0))["a"], [-1, 0])


def test_the_arms_cannot_be_told_apart_by_their_cap_but_by_their_shares() -> None:
    random = np.random.default_rng(1)
    arms = {"a": random.lognormal(0, 1, 2000), "b": random.lognormal(0.2, 1, 2000)}
    result = winsorize(arms, upper_quantile=0.95)
    assert result.shares is not None
    assert result.shares["b"] > 1.2 * result.shares["a"]
    assert np.mean(list(result.shares.values())) == pytest.approx(0.05, abs=1e-3)


@pytest.mark.parametrize(
    ("arms", "reason"),
    [
        ({}, "an arm has no units"),
        ({"a": [], "b": [1.0, 2.0]}, "an arm has no units"),
        ({"a": [0.0] * 99 + [5.0], "b": [0.0] * 99}, "no unit is below the cap"),
    ],
)
def test_without_an_honest_cap_it_says_why(arms: dict[str, list[float]], reason: str) -> None:
    result = winsorize(arms, upper_quantile=0.95)
    assert result.reason == reason
    assert (result.values, result.caps, result.shares) == (None, None, None)
    assert list(result.uncapped) == list(arms)


def test_a_quantile_metric_refuses_capped_values() -> None:
    result = winsorize({"a": np.arange(1000.0)}, upper_quantile=0.99)
    with pytest.raises(BadInput, match="a quantile takes no cap"):
        QuantileSummary.of(result, np.arange(1000), 0.5)


@pytest.mark.parametrize(
    ("upper", "quantile", "field"),
    [
        (None, None, "upper"),
        (3.0, 0.9, "upper"),
        (float("nan"), None, "upper"),
        (float("inf"), None, "upper"),
        (None, 1.0, "upper_quantile"),
        (None, 0.0, "upper_quantile"),
        (None, float("nan"), "upper_quantile"),
    ],
)
def test_a_cap_that_is_none_is_refused(
    upper: float | None, quantile: float | None, field: str
) -> None:
    with pytest.raises(BadInput) as caught:
        winsorize({"a": [1.0, 2.0]}, upper=upper, upper_quantile=quantile)
    assert caught.value.errors[0].field == field


@pytest.mark.parametrize("column", [[1.0, float("nan")], [float("inf")], [[1.0], [2.0]]])
def test_values_that_are_no_column_of_numbers_are_refused(column: ArrayLike) -> None:
    with pytest.raises(BadInput, match="b:"):
        winsorize({"a": [1.0, 2.0], "b": column}, upper=1)


@pytest.mark.slow
def test_caps_by_arm_err_too_often_where_one_cap_does_not() -> None:
    """The negative control: an A/A test at 5 %, lognormal, 500 units an arm, capped at p95."""
    replicates = 2000
    random = np.random.default_rng(20_261_130)
    errors = {True: 0, False: 0}
    for _ in range(replicates):
        arms = {"a": random.lognormal(0, 1, 500), "b": random.lognormal(0, 1, 500)}
        for pooled in errors:
            errors[pooled] += (
                p_value(capped(winsorize(arms, upper_quantile=0.95, pooled=pooled))) < 0.05
            )
    rates = {pooled: count / replicates for pooled, count in errors.items()}
    print(f"\none cap {rates[True]:.1%}, a cap for each arm {rates[False]:.1%}")
    assert abs(rates[True] - 0.05) < 3 * np.sqrt(0.05 * 0.95 / replicates)
    assert rates[False] > 0.09
