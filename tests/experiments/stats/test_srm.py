from math import log, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from experiments.stats import SRM_ALARM, srm_test
from experiments.stats.srm import srm_batches, srm_sequential
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector

counts = st.lists(st.integers(0, 10**6), min_size=2, max_size=6)


def test_published_cases_hold() -> None:
    cases = vector("srm-chi2-1")["input"]
    agrees("srm-chi2-1", [srm_test(case["observed"], case["weights"]).p_value for case in cases])


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
    """(c) 1, growthbook/growthbook#4427: it was left out, and the worst mismatch looked like none."""
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
        ([float("nan"), 3], [1, 1], "observed"),
        ([1.5, 3], [1, 1], "observed"),
        ([1, 2], [1e308, 1e308], "expected"),
    ],
)
def test_counts_and_weights_that_make_no_sense_are_refused_by_name(
    observed: list[int], weights: list[float], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        srm_test(observed, weights)
    assert [error.field for error in refused.value.errors] == [field]
    with pytest.raises(BadInput) as refused:
        srm_sequential(observed, weights)
    assert [error.field for error in refused.value.errors] == [field]


def test_a_holdout_beside_the_experiment_raises_no_alarm() -> None:
    """(c) 3, PostHog/posthog#60006: the holdout counted in the expectation of each experiment."""
    with_holdout = [4750, 4760, 500]
    assert srm_test(with_holdout, [0.5, 0.5, 0]) == srm_test([4750, 4760], [0.5, 0.5])
    assert srm_sequential(with_holdout, [0.5, 0.5, 0]).p == 1.0


def test_published_sequential_cases_hold() -> None:
    answers = [
        srm_sequential(case["counts"], case["theta0"], concentration=case["prior_concentration"])
        for case in vector("srm-sequential-1")["input"]
    ]
    agrees("srm-sequential-1", [{"log_e": each.log_e, "p": each.p} for each in answers])


@given(
    stream=st.lists(st.integers(0, 2), max_size=60),
    concentration=st.floats(0.5, 500),
)
def test_the_evidence_is_the_product_of_bets_on_one_unit_each(
    stream: list[int], concentration: float
) -> None:
    shares = (0.5, 0.3, 0.2)
    seen, log_e = [0, 0, 0], 0.0
    for arm in stream:
        bet = (concentration * shares[arm] + seen[arm]) / (concentration + sum(seen))
        log_e += log(bet / shares[arm])
        seen[arm] += 1
    answer = srm_sequential(seen, [5, 3, 2], concentration=concentration)
    assert answer.log_e == pytest.approx(log_e, abs=1e-9)


def test_a_weighted_arm_without_units_is_evidence_too() -> None:
    answer = srm_sequential([1000, 1000, 0], [1, 1, 1])
    assert answer.p is not None
    assert answer.p < 1e-100
    assert srm_sequential([1000, 1200, 900], [1, 1, 0]) == srm_sequential([1000, 1200], [1, 1])


def test_one_arm_alone_is_no_evidence_but_a_reason() -> None:
    answer = srm_sequential([100, 3], [1, 0])
    assert (answer.log_e, answer.p, answer.reason) == (
        None,
        None,
        "fewer than two arms have weight",
    )


def test_a_concentration_of_0_is_refused() -> None:
    with pytest.raises(BadInput, match="concentration"):
        srm_sequential([1, 2], [1, 1], concentration=0)


@given(
    batches=st.lists(st.lists(st.integers(5, 1000), min_size=3, max_size=3), min_size=1, max_size=5)
)
def test_batches_of_constant_weights_are_one_experiment(batches: list[list[int]]) -> None:
    together = srm_test([sum(arm) for arm in zip(*batches, strict=True)], [5, 3, 2])
    apart = srm_batches(batches, [[5, 3, 2]] * len(batches))
    if together.reason is None:
        assert apart.df == together.df
        assert apart.statistic == pytest.approx(together.statistic, rel=1e-9, abs=1e-9)


def test_a_bandit_that_moves_its_weights_is_no_mismatch() -> None:
    observed = [[500, 500], [105, 895], [98, 902]]
    assert srm_test([703, 2297], [1, 9]).p_value == pytest.approx(0, abs=1e-100)
    answer = srm_batches(observed, [[0.5, 0.5], [0.1, 0.9], [0.1, 0.9]])
    # By hand: a surplus of 5 - 2 over variances of 250 + 90 + 90.
    assert answer.statistic == pytest.approx(3**2 / 430)
    assert answer.df == 1


def test_arms_that_never_share_a_batch_are_judged_by_batch() -> None:
    answer = srm_batches([[60, 40, 0, 0], [0, 0, 55, 45]], [[1, 1, 0, 0], [0, 0, 1, 1]])
    assert answer.df == 2
    assert answer.statistic == pytest.approx(4 + 1)


def test_batches_without_an_answer_say_why() -> None:
    assert "fewer than 5" in str(srm_batches([[4, 5]], [[1, 1]]).reason)
    assert "two arms" in str(srm_batches([[4, 5]], [[1, 0]]).reason)
    for observed, expected in (([], []), ([[1, 2]], []), ([[1, 2], [1, 2, 3]], [[1, 1]] * 2)):
        with pytest.raises(BadInput):
            srm_batches(observed, expected)


@pytest.mark.slow
def test_thirty_looks_at_a_clean_split_alarm_hardly_ever() -> None:
    replicates, looks, alarm = 4000, 30, 0.05
    random = np.random.default_rng(20_261_202)
    counts = random.binomial(200, 0.5, (replicates, looks)).cumsum(axis=1)
    totals = 200 * np.arange(1, looks + 1)
    fixed = np.abs(counts - totals / 2) / np.sqrt(totals / 4) > 1.959964
    evidence = np.array(
        [
            [
                srm_sequential([int(n), int(total - n)], [1, 1]).p
                for n, total in zip(row, totals, strict=True)
            ]
            for row in counts[:1000]
        ]
    )
    any_fixed, any_evidence = fixed.any(axis=1).mean(), (evidence < alarm).any(axis=1).mean()
    print(f"\n30 looks at 5 %: chi-square {any_fixed:.3f}, e-value {any_evidence:.3f}")
    assert any_fixed > 0.2
    assert any_evidence <= alarm + 3 * sqrt(alarm * (1 - alarm) / 1000)
