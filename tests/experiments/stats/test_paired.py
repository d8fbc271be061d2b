from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from statsmodels.stats.contingency_tables import mcnemar as oracle

from experiments.stats import Moments, ratio_test
from experiments.stats.paired import (
    Method,
    PairedCounts,
    clustered_mcnemar,
    clustered_sign_test,
    mcnemar,
    sign_test,
)
from ingest.errors import BadInput
from tests.experiments.answers import answered

METHODS: tuple[Method, ...] = ("exact", "mid-p")


def test_the_published_example_has_its_two_ps() -> None:
    # Airway hyper-responsiveness before and after stem cell transplantation (Bentur et al. 2009),
    # in M. W. Fagerland, S. Lydersen & P. Laake, BMC Med. Res. Methodology 13 (2013) 91.
    pairs = PairedCounts(both=1, only_control=1, only_treatment=7, neither=12)
    assert round(answered(mcnemar(pairs, method="exact"))[2], 4) == 0.0703
    assert round(answered(mcnemar(pairs, method="mid-p"))[2], 4) == 0.0391


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 50))
def test_the_exact_p_is_that_of_statsmodels_and_mid_p_half_a_point_less(
    wins: int, losses: int, ties: int
) -> None:
    if wins + losses == 0:
        return
    exact = answered(sign_test(wins, losses, ties, method="exact"))[2]
    assert exact == pytest.approx(oracle([[0, losses], [wins, ties]], exact=True).pvalue, rel=1e-9)
    mid = answered(sign_test(wins, losses, ties))[2]
    point = stats.binom.pmf(wins, wins + losses, 0.5)
    two_sided = 2 * stats.binom.cdf(min(wins, losses), wins + losses, 0.5)
    assert mid == pytest.approx(two_sided - point, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40), st.sampled_from(METHODS))
def test_the_interval_excludes_0_exactly_when_the_test_rejects(
    wins: int, losses: int, ties: int, method: Method
) -> None:
    if wins + losses == 0:
        return
    for alpha in (0.3, 0.05):
        estimate, _, p_value, (low, high) = answered(
            sign_test(wins, losses, ties, method=method, alpha=alpha)
        )
        assert -1 <= low <= estimate <= high <= 1
        assert (low > 0 or high < 0) == (p_value < alpha)


@pytest.mark.parametrize(("wins", "losses", "ties"), [(9, 2, 33), (6, 14, 60), (3, 1, 0)])
def test_the_exact_interval_is_the_melded_one(wins: int, losses: int, ties: int) -> None:
    apart = wins + losses

    def below(gap: float) -> float:
        """P(discordant share × (2 × share of wins - 1) <= gap), by integrating over the wins'."""
        share = stats.beta(wins, losses + 1)
        if gap > 0:
            discordant = stats.beta(apart, ties + 1)
            rest, _ = quad(
                lambda t: share.pdf(t) * discordant.cdf(gap / (2 * t - 1)), 0.5, 1, epsabs=1e-9
            )
            return float(share.cdf(0.5) + rest)
        if not ties:
            return float(share.cdf((1 + gap) / 2))
        discordant = stats.beta(apart + 1, ties)
        found, _ = quad(
            lambda t: share.pdf(t) * discordant.sf(gap / (2 * t - 1)), 0, 0.5, epsabs=1e-9
        )
        return float(found)

    low = answered(sign_test(wins, losses, ties, method="exact"))[3][0]
    expected = brentq(lambda gap: below(gap) - 0.025, -1 + 1e-9, 1 - 1e-9)
    assert low == pytest.approx(expected, abs=2e-5)


def test_pairs_that_all_differ_one_way_have_the_binomial_limits() -> None:
    # Every pair is discordant, so only the share of wins is uncertain.
    _, _, p_value, ci = answered(sign_test(5, 0, method="exact"))
    assert p_value == pytest.approx(2 / 32)
    assert ci == pytest.approx((2 * 0.025 ** (1 / 5) - 1, 1.0), abs=1e-9)


def test_swapped_arms_turn_the_effect_round() -> None:
    for method in METHODS:
        ahead = answered(sign_test(14, 6, 60, method=method))
        back = answered(sign_test(6, 14, 60, method=method))
        assert back[0] == -ahead[0]
        assert back[2] == pytest.approx(ahead[2], rel=1e-12)
        assert back[3] == pytest.approx((-ahead[3][1], -ahead[3][0]), abs=1e-9)


def test_prompts_are_counted_from_two_lists_of_passes() -> None:
    control, treatment = [1, 1, 0, 0, 0, 1], [1, 0, 1, 1, 0, 1]
    pairs = PairedCounts.of(control, treatment)
    assert pairs == PairedCounts(both=2, only_control=1, only_treatment=2, neither=1)
    effect = mcnemar(pairs)
    assert effect.estimate == pytest.approx(np.mean(treatment) - np.mean(control))
    assert (effect.method, effect.df, effect.n_control) == ("McNemar, mid-p", inf, 6)
    assert effect.statistic == pytest.approx(1 / sqrt(3))


def test_ties_stay_in_the_size_and_out_of_the_direction() -> None:
    without, with_ties = answered(sign_test(14, 6)), answered(sign_test(14, 6, 180))
    assert with_ties[2] == without[2]
    assert with_ties[0] == pytest.approx(without[0] / 10)


def test_no_pair_that_tells_them_apart_is_a_reason_not_a_p_of_1() -> None:
    effect = mcnemar(PairedCounts(both=40, only_control=0, only_treatment=0, neither=2))
    assert effect.reason == "no pair tells the two apart"
    assert (effect.estimate, effect.p_value, effect.ci) == (None, None, None)


def test_a_strong_effect_in_huge_samples_keeps_its_p() -> None:
    """growthbook/growthbook#1320: no p-value was shown for strong effects."""
    p_value = answered(sign_test(3000, 1000, 10**6))[2]
    assert 0 < p_value < 1e-200


def test_a_family_of_one_prompt_each_is_students_paired_t() -> None:
    random = np.random.default_rng(1)
    control, treatment = random.integers(0, 2, 80), random.integers(0, 2, 80)
    effect = clustered_mcnemar(control, treatment, range(80))
    expected = stats.ttest_rel(treatment, control)
    _, _, p_value, ci = answered(effect)
    assert p_value == pytest.approx(expected.pvalue, rel=1e-10)
    assert ci == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    assert effect.method == "clustered McNemar"


def test_prompts_repeated_in_families_add_no_certainty() -> None:
    random = np.random.default_rng(2)
    signs = random.integers(-1, 2, 60)
    once = clustered_sign_test(signs, range(60))
    often = clustered_sign_test(np.repeat(signs, 20), np.repeat(np.arange(60), 20).tolist())
    assert often.p_value == pytest.approx(once.p_value, rel=1e-9)
    assert often.ci == pytest.approx(once.ci, rel=1e-9)
    assert (once.n_control, once.method) == (60, "clustered sign test")
    alone = sign_test(20 * int((signs > 0).sum()), 20 * int((signs < 0).sum()))
    assert answered(alone)[2] < answered(once)[2]


def test_families_of_unlike_size_have_the_error_of_a_ratio() -> None:
    random = np.random.default_rng(3)
    families = random.integers(0, 30, 300)
    signs = random.integers(-1, 2, 300)
    effect = clustered_sign_test(signs, families.tolist())
    sums = Moments.of(np.bincount(families, signs), np.bincount(families))
    # Against an arm that is known exactly the ratio's own error remains.
    known = ratio_test(Moments(1000, 0.0, 0.0), sums)
    assert effect.estimate == pytest.approx(known.estimate)
    assert effect.std_error == pytest.approx(known.std_error)
    assert effect.df == 29
    assert effect.method == "clustered sign test, few units"


def test_families_that_cannot_be_compared_give_a_reason() -> None:
    assert clustered_sign_test([1, -1], ["a", "a"]).reason == "there are fewer than 2 families"
    assert clustered_sign_test([1, 1], ["a", "b"]).reason == "the families do not differ"
    assert clustered_sign_test([], []).reason == "there are fewer than 2 families"


def test_input_that_cannot_be_is_refused_by_name() -> None:
    for call, field in (
        (lambda: PairedCounts(1, -1, 0, 0), "pairs"),
        (lambda: PairedCounts.of([1, 0], [1]), "treatment"),
        (lambda: PairedCounts.of([1, 2], [1, 0]), "control"),
        (lambda: sign_test(-1, 2), "wins"),
        (lambda: sign_test(1, 2, alpha=1.5), "alpha"),
        (lambda: sign_test(1, 2, method="wald"), "method"),  # type: ignore[arg-type]
        (lambda: clustered_sign_test([0.5], ["a"]), "preferences"),
        (lambda: clustered_sign_test([1], []), "families"),
        (lambda: clustered_sign_test([1], ["a"], alpha=0), "alpha"),
        (lambda: clustered_mcnemar([1, 0], [1], ["a", "b"]), "treatment"),
    ):
        with pytest.raises(BadInput) as caught:
            call()
        assert caught.value.errors[0].field == field


@pytest.mark.slow
def test_errors_and_coverage_are_as_named_and_families_must_be_too() -> None:
    replicates, random = 2000, np.random.default_rng(4)
    wrong = dict.fromkeys(METHODS, 0)
    covered = dict.fromkeys(METHODS, 0)
    for _ in range(replicates):
        null, real = (
            random.multinomial(80, [0.1, 0.1, 0.8]),
            random.multinomial(80, [0.25, 0.1, 0.65]),
        )
        for method in METHODS:
            if null[0] + null[1]:
                wrong[method] += answered(sign_test(*map(int, null), method=method))[2] < 0.05
            low, high = answered(sign_test(*map(int, real), method=method))[3]
            covered[method] += low <= 0.15 <= high
    clustered = plain = 0
    for _ in range(replicates):
        taste = np.repeat(random.normal(size=60), 10)
        signs = np.where(random.random(600) < 1 / (1 + np.exp(-taste)), 1, -1)
        families = np.repeat(np.arange(60), 10).tolist()
        clustered += answered(clustered_sign_test(signs, families))[2] < 0.05
        plain += answered(sign_test(int((signs > 0).sum()), int((signs < 0).sum())))[2] < 0.05
    print(
        {method: (wrong[method] / replicates, covered[method] / replicates) for method in METHODS}
    )
    print(f"families: clustered {clustered / replicates:.3f}, plain {plain / replicates:.3f}")
    slack = 3 * sqrt(0.05 * 0.95 / replicates)
    assert wrong["exact"] / replicates <= 0.05
    assert wrong["mid-p"] / replicates <= 0.05 + slack
    assert covered["exact"] / replicates >= 0.95
    assert covered["mid-p"] / replicates >= 0.95 - slack
    assert abs(clustered / replicates - 0.05) <= slack
    assert plain / replicates > 0.15
