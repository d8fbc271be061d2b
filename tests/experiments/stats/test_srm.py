import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from experiments.stats import SRM_ALARM, srm_test
from ingest.errors import BadInput

counts = st.lists(st.integers(0, 10**6), min_size=2, max_size=6)


@pytest.mark.parametrize(
    ("observed", "weights", "expected"),
    [
        ([1000, 1200], [0.5, 0.5], 2.0078656e-05),
        ([135, 115], [0.5, 0.5], 0.20590321),
        ([310, 98], [0.75, 0.25], 0.64743419),
        ([500, 500, 600], [0.34, 0.33, 0.33], 0.00059263793),
        ([1000, 1200, 900], [0.5, 0.5, 0], 2.0078656e-05),
        ([500, 500], [0.5, 0.5], 1.0),
    ],
)
def test_published_cases_hold(observed: list[int], weights: list[float], expected: float) -> None:
    # Source: growthbook/growthbook@8f1db4456915, packages/back-end/test/stats.test.ts.
    assert srm_test(observed, weights).p_value == pytest.approx(expected, rel=1e-6)


@given(observed=counts, data=st.data())
def test_it_is_pearsons_chi_square(observed: list[int], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(observed), max_size=len(observed)))
    result = srm_test(observed, weights)
    expected = [sum(observed) * weight / sum(weights) for weight in weights]
    if min(expected) < 5:
        assert result.reason == "an arm expects fewer than 5 units"
        return
    oracle = chisquare(observed, expected)
    assert result.statistic == pytest.approx(oracle.statistic, rel=1e-9, abs=1e-9)
    assert result.p_value == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-300)


@given(observed=st.lists(st.integers(9, 10**6), min_size=2), factor=st.floats(0.001, 1000))
def test_only_the_proportions_of_weights_matter(observed: list[int], factor: float) -> None:
    assume(sum(observed) != 5 * len(observed))  # there the last bit of a factor decides
    one = srm_test(observed, [1.0] * len(observed))
    scaled = srm_test(observed, [factor] * len(observed))
    assert (scaled.reason, scaled.df) == (one.reason, one.df)
    if one.reason is None:
        assert scaled.p_value == pytest.approx(one.p_value, rel=1e-6)


def test_an_arm_without_weight_leaves_total_and_df() -> None:
    assert srm_test([1000, 1200, 900], [1, 1, 0]) == srm_test([1000, 1200], [1, 1])


def test_a_weighted_arm_without_units_is_a_mismatch() -> None:
    # growthbook/growthbook#4427: it was left out, and the worst mismatch looked like none.
    result = srm_test([1000, 1000, 0], [1, 1, 1])
    assert result.df == 2
    assert result.p_value is not None
    assert result.p_value < SRM_ALARM


def test_a_gross_mismatch_has_a_small_p_that_is_not_0() -> None:
    p_value = srm_test([50_000, 52_500], [1, 1]).p_value
    assert p_value is not None
    assert 0 < p_value < 1e-13
    assert srm_test([50_000, 60_000], [1, 1]).p_value == pytest.approx(
        chisquare([50_000, 60_000]).pvalue, rel=1e-6
    )


@pytest.mark.parametrize(
    ("observed", "weights", "reason"),
    [
        ([0, 0], [1, 1], "fewer than 5"),
        ([4, 5], [1, 1], "fewer than 5"),
        ([400, 1], [99, 1], "fewer than 5"),
        ([100], [1], "two arms"),
        ([100, 3], [1, 0], "two arms"),
    ],
)
def test_without_an_honest_answer_it_says_why(
    observed: list[int], weights: list[float], reason: str
) -> None:
    result = srm_test(observed, weights)
    assert reason in str(result.reason)
    assert (result.statistic, result.df, result.p_value) == (None, None, None)


@pytest.mark.parametrize(
    ("observed", "weights", "field"),
    [
        ([1, 2], [1], "expected"),
        ([1, -2], [1, 1], "observed"),
        ([1, 2], [1, -1], "expected"),
        ([1, 2], [1, float("nan")], "expected"),
        ([1, 2], [0, 0], "expected"),
        ([], [], "expected"),
    ],
)
def test_counts_and_weights_that_make_no_sense_are_refused_by_name(
    observed: list[int], weights: list[float], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        srm_test(observed, weights)
    assert [error.field for error in refused.value.errors] == [field]
