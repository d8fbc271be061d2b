from math import inf, log, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.proportion import (
    confint_proportions_2indep,
    proportion_confint,
    proportions_ztest,
)
from statsmodels.stats.proportion import test_proportions_2indep as proportions_wald

from experiments.stats import Effect
from experiments.stats._restricted import Counts, restricted
from experiments.stats.proportions import ProportionMethod, proportion_test, wilson_interval
from tests.experiments.vectors import agrees, vector

METHODS: tuple[ProportionMethod, ...] = ("newcombe", "miettinen-nurminen", "mee")

# R. G. Newcombe, Statistics in Medicine 17 (1998) 873-890, table II: methods 10, 6 and 5.
TABLE_II = [
    ((56, 70), (48, 80), ((0.0524, 0.3339), (0.0528, 0.3382), (0.0533, 0.3377))),
    ((9, 10), (3, 10), ((0.1705, 0.8090), (0.1700, 0.8406), (0.1821, 0.8370))),
    ((6, 7), (2, 7), ((0.0582, 0.8062), (0.0342, 0.8534), (0.0544, 0.8478))),
    ((5, 56), (0, 29), ((-0.0381, 0.1926), (-0.0326, 0.1933), (-0.0313, 0.1926))),
    ((0, 10), (0, 20), ((-0.1611, 0.2775), (-0.1658, 0.2844), (-0.1611, 0.2775))),
    ((0, 10), (0, 10), ((-0.2775, 0.2775), (-0.2879, 0.2879), (-0.2775, 0.2775))),
    ((10, 10), (0, 20), ((0.6791, 1.0000), (0.7156, 1.0000), (0.7225, 1.0000))),
    ((10, 10), (0, 10), ((0.6075, 1.0000), (0.6636, 1.0000), (0.6777, 1.0000))),
]


@st.composite
def counted(draw: st.DrawFn) -> tuple[int, int]:
    units = draw(st.one_of(st.integers(1, 40), st.integers(1, 10**7)))
    return draw(st.one_of(st.integers(0, units), st.integers(0, min(units, 5)))), units


def interval(effect: Effect) -> tuple[float, float]:
    assert effect.reason is None
    assert effect.ci is not None
    return effect.ci


def p_of(effect: Effect) -> float:
    assert effect.p_value is not None
    return effect.p_value


@pytest.mark.parametrize(("treatment", "control", "limits"), TABLE_II)
def test_newcombes_table_holds(
    treatment: tuple[int, int],
    control: tuple[int, int],
    limits: tuple[tuple[float, float], ...],
) -> None:
    for method, published in zip(METHODS, limits, strict=True):
        ci = interval(proportion_test(control, treatment, method=method))
        assert ci == pytest.approx(published, abs=5.1e-5), method


def test_the_published_vectors_hold() -> None:
    case = vector("proportion-1")["input"]
    counts, units = case["ztest"]["count"], case["ztest"]["nobs"]
    pooled = proportion_test((counts[1], units[1]), (counts[0], units[0]), method="wald")
    newcombe = case["newcombe_diff"]
    agrees(
        "proportion-1",
        {
            "ztest": [pooled.statistic, pooled.p_value],
            "wilson": [wilson_interval(arm["count"], arm["nobs"]) for arm in case["wilson"]],
            "newcombe_diff": interval(proportion_test(tuple(newcombe["b"]), tuple(newcombe["a"]))),
        },
    )
    case = vector("noninferiority-1")["input"]
    arms = tuple(case["b"]), tuple(case["a"])
    agrees(
        "noninferiority-1",
        {
            method.replace("-", "_"): interval(
                proportion_test(*arms, method=method, alpha=1 - case["level"])
            )
            for method in METHODS[1:]
        },
    )


def test_the_score_interval_at_a_margin_is_not_statsmodels_wrong_one() -> None:
    """statsmodels/statsmodels#10269: the score method errs wherever the margin is not 0."""
    theirs = confint_proportions_2indep(56, 70, 48, 80, method="score", compare="diff")
    ours = interval(proportion_test((48, 80), (56, 70), method="miettinen-nurminen"))
    assert theirs[1] == pytest.approx(0.3440, abs=1e-4), "mended: then make it an oracle here"
    assert ours[1] == pytest.approx(0.3382, abs=1e-4)


@given(counted(), counted(), st.floats(-0.999, 0.999))
def test_the_restricted_rates_are_the_likeliest_ones(
    control: tuple[int, int], treatment: tuple[int, int], margin: float
) -> None:
    def log_likelihood(rate: float) -> float:
        total = 0.0
        for (hits, units), p in ((control, rate), (treatment, rate + margin)):
            for count, share in ((hits, p), (units - hits, 1 - p)):
                total += count * log(max(share, 1e-300)) if count else 0.0
        return total

    base, other = restricted(Counts((control[0], treatment[0]), (control[1], treatment[1])), margin)
    low, high = max(0.0, -margin), min(1.0, 1 - margin)
    found = optimize.minimize_scalar(
        lambda rate: -log_likelihood(rate), bounds=(low, high), method="bounded"
    )
    best = log_likelihood(base)
    assert best >= -found.fun - 1e-9 * max(1, abs(best))
    assert other == pytest.approx(base + margin, abs=1e-15)


@given(counted(), counted(), st.floats(0.001, 0.5))
def test_newcombes_and_wilsons_intervals_are_statsmodels(
    control: tuple[int, int], treatment: tuple[int, int], alpha: float
) -> None:
    newcombe = interval(proportion_test(control, treatment, alpha=alpha))
    theirs = confint_proportions_2indep(
        *treatment, *control, method="newcomb", compare="diff", alpha=alpha
    )
    assert newcombe == pytest.approx(theirs, abs=1e-9)
    wilson = proportion_confint(*control, alpha=alpha, method="wilson")
    assert wilson_interval(*control, alpha=alpha) == pytest.approx(wilson, abs=1e-12)


@given(counted(), counted())
def test_mees_test_at_margin_0_is_the_pooled_z(
    control: tuple[int, int], treatment: tuple[int, int]
) -> None:
    hits, units = (treatment[0], control[0]), (treatment[1], control[1])
    assume(0 < sum(hits) < sum(units))
    z, p = proportions_ztest(hits, units)
    effect = proportion_test(control, treatment, method="mee")
    assert effect.statistic == pytest.approx(z, rel=1e-9, abs=1e-9)
    assert effect.p_value == pytest.approx(p, rel=1e-6, abs=1e-12)
    # Miettinen and Nurminen's differs by the factor of the variance only.
    total = sum(units)
    corrected = proportion_test(control, treatment, method="miettinen-nurminen")
    assert corrected.statistic == pytest.approx(z * sqrt((total - 1) / total), rel=1e-9, abs=1e-9)


@given(
    counted(),
    counted(),
    st.sampled_from((*METHODS, "wald")),
    st.sampled_from(["two-sided", "greater", "less"]),
    st.one_of(st.just(0.0), st.floats(-0.99, 0.99)),
    st.floats(0.001, 0.4),
)
def test_the_interval_excludes_the_margin_exactly_when_p_is_below_alpha(
    control: tuple[int, int],
    treatment: tuple[int, int],
    method: ProportionMethod,
    alternative: str,
    margin: float,
    alpha: float,
) -> None:
    effect = proportion_test(
        control,
        treatment,
        method=method,
        alternative=alternative,  # type: ignore[arg-type]
        margin=margin,
        alpha=alpha,
    )
    assume(effect.reason is None)
    assert effect.std_error is not None
    assert effect.std_error > 0
    low, high = interval(effect)
    p_value = p_of(effect)
    assume(abs(p_value / alpha - 1) > 1e-6)
    # A limit on the margin itself, as 1 for 10 of 10 against 0 of 10, rounds either way.
    assume(min(abs(low - margin), abs(high - margin)) > 1e-12)
    assert (not low <= margin <= high) == (p_value < alpha)


@given(counted(), counted(), st.sampled_from((*METHODS, "wald")), st.floats(-0.9, 0.9))
def test_swapped_arms_have_the_mirrored_answer(
    control: tuple[int, int],
    treatment: tuple[int, int],
    method: ProportionMethod,
    margin: float,
) -> None:
    one = proportion_test(control, treatment, method=method, margin=margin)
    other = proportion_test(treatment, control, method=method, margin=-margin)
    assert one.reason == other.reason
    assume(one.reason is None)
    low, high = interval(one)
    assert interval(other) == pytest.approx((-high, -low), abs=1e-9)
    assert p_of(other) == pytest.approx(p_of(one), rel=1e-6, abs=1e-12)


def test_walds_interval_and_its_z_at_a_margin_are_statsmodels() -> None:
    effect = proportion_test((480, 8000), (560, 7000), method="wald", margin=0.01)
    theirs = confint_proportions_2indep(560, 7000, 480, 8000, method="wald", compare="diff")
    assert interval(effect) == pytest.approx(theirs, rel=1e-12)
    test = proportions_wald(
        560, 7000, 480, 8000, value=0.01, method="wald", compare="diff", return_results=True
    )
    assert effect.p_value == pytest.approx(test.pvalue, rel=1e-12)


def test_a_guardrail_that_may_lose_two_points_is_one_sided() -> None:
    for method in METHODS:
        safe = proportion_test(
            (900, 1000), (901, 1000), method=method, margin=-0.04, alternative="greater"
        )
        assert p_of(safe) < 0.01
        low, high = interval(safe)
        assert -0.04 < low < 0
        assert high == inf
        few = proportion_test(
            (18, 20), (18, 20), method=method, margin=-0.04, alternative="greater"
        )
        assert p_of(few) > 0.05, "no difference in few units is no safety"


def test_rates_of_one_in_a_billion_keep_their_digits() -> None:
    # Few events in huge arms are two Poisson counts: given their sum, one is binomial.
    effect = proportion_test((3, 10**9), (21, 10**9), method="mee")
    assert effect.statistic == pytest.approx((21 - 3) / sqrt(24), rel=1e-8)
    rates = restricted(Counts((3, 5), (10**9, 10**9)), 1e-9)

    def score(rate: float) -> float:
        return 3 / rate + 5 / (rate + 1e-9) - 2e9

    assert rates[0] == pytest.approx(optimize.brentq(score, 1e-12, 1e-8, xtol=1e-20), rel=1e-6)


def test_no_event_in_either_arm_has_an_interval_and_no_made_up_p() -> None:
    # The rule of three: no event in n bounds the rate by about 3 / n, of two sides by 3.84 / n.
    for method in METHODS:
        effect = proportion_test((0, 1000), (0, 1000), method=method)
        low, high = interval(effect)
        assert -low == pytest.approx(high)
        assert high == pytest.approx(3.84 / 1003.84, rel=2e-3)
        assert effect.statistic == 0
        harm = proportion_test(
            (0, 1000), (0, 1000), method=method, margin=0.005, alternative="less"
        )
        assert p_of(harm) < 0.05, "five in a thousand can be excluded"
    assert proportion_test((0, 1000), (0, 1000), method="wald").reason is not None


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_small_arms_are_covered_and_harm_at_the_margin_is_found_at_alpha(
    method: ProportionMethod,
) -> None:
    # Exact sums over all tables, not draws.
    n = (20, 30)
    for base, other in ((0.1, 0.3), (0.5, 0.5), (0.05, 0.02)):
        covered = 0.0
        for hits in np.ndindex(n[0] + 1, n[1] + 1):
            mass = stats.binom.pmf(hits[0], n[0], base) * stats.binom.pmf(hits[1], n[1], other)
            low, high = interval(proportion_test((hits[0], n[0]), (hits[1], n[1]), method=method))
            covered += mass * (low <= other - base <= high)
        assert 0.93 < covered < 0.999
