from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from experiments.stats import Effect, Moments, ratio_test, relative_interval
from ingest.errors import BadInput
from tests.experiments.answers import answered

Turns = list[list[int]]

# Data made for these tests; expected values by statsmodels 0.15.0, OLS with clustered errors.
CONTROL: Turns = [[1, 0, 0, 1], [0, 0], [1, 1, 1, 0, 1], [0], [1, 0, 1], [0, 0, 0, 1, 0, 0]]
TREATMENT: Turns = [
    [1, 1, 0],
    [1, 1, 1, 1, 0, 1],
    [0, 1],
    [1],
    [0, 0, 1, 0],
    [1, 1, 0, 1, 1],
]

variances = st.floats(0.01, 100)
means = st.floats(-10, 10).filter(lambda mean: abs(mean) > 0.01)
arms = st.builds(Moments, st.integers(2, 10_000), means, variances)


@st.composite
def ratio_arms(draw: st.DrawFn) -> Moments:
    seed, users = draw(st.integers(0, 2**32 - 1)), draw(st.integers(3, 60))
    random = np.random.default_rng(seed)
    turns = random.poisson(4, users) + 1
    # A continuous part: arms that do not vary are refused.
    noise = random.uniform(0.01, 0.1, users)
    return Moments.of(random.binomial(turns, random.beta(2, 3, users)) + noise, turns)


def users(turns: Turns) -> Moments:
    return Moments.of([sum(user) for user in turns], [len(user) for user in turns])


def sums(
    n: int, total: float, squares: float, *, den: tuple[float, float], cross: float
) -> Moments:
    def centred(products: float, left: float, right: float) -> float:
        return (products - left * right / n) / (n - 1)

    return Moments(
        n=n,
        mean=total / n,
        var=centred(squares, total, total),
        den_mean=den[0] / n,
        den_var=centred(den[1], den[0], den[0]),
        cov=centred(cross, total, den[0]),
    )


def clustered_ols(turns: Turns, *treated: Turns) -> float:
    """CR0 s.e. of the last coefficient of OLS on turns: users are clusters, no correction."""
    groups = [(user, arm) for arm, part in enumerate((turns, *treated)) for user in part]
    outcome = [turn for user, _ in groups for turn in user]
    arm = [arm for user, arm in groups for _ in user]
    design = np.column_stack([np.ones(len(arm)), arm]) if treated else np.ones(len(arm))
    clusters = {"groups": np.repeat(np.arange(len(groups)), [len(user) for user, _ in groups])}
    fit = sm.OLS(outcome, design).fit(
        cov_type="cluster", cov_kwds=clusters | {"use_correction": False}
    )
    return float(fit.bse[-1])


def test_with_equal_arms_the_error_is_cr0_times_the_root_of_n_over_n_less_1() -> None:
    estimate, std_error, _, _ = answered(ratio_test(users(CONTROL), users(TREATMENT)))
    cr0 = clustered_ols(CONTROL, TREATMENT)
    assert cr0 == pytest.approx(0.16408211, rel=1e-6)
    assert estimate == pytest.approx(0.23809524, rel=1e-6)
    assert std_error == pytest.approx(cr0 * sqrt(6 / 5), rel=1e-12)
    assert std_error == pytest.approx(0.17974294, rel=1e-6)
    assert std_error > 0.15282673, "the naive OLS error, which the turns of a user make too small"


def test_with_unequal_arms_each_arms_cr0_variance_has_its_own_factor() -> None:
    control, treatment = CONTROL[:4], TREATMENT
    _, std_error, _, _ = answered(ratio_test(users(control), users(treatment)))
    expected = 4 / 3 * clustered_ols(control) ** 2 + 6 / 5 * clustered_ols(treatment) ** 2
    assert std_error**2 == pytest.approx(expected, rel=1e-12)


def test_the_published_ratio_case_holds() -> None:
    # Source: growthbook/growthbook@8f1db4456915, packages/stats/tests/test_gbstats.py,
    # RATIO_STATISTICS_DF (vector ratio-delta-1): its p is that of the lift's delta-method error.
    control = sums(100, 270, 848.79, den=(510, 810), cross=-900)
    treatment = sums(120, 300, 869, den=(500, 800), cross=-905)
    assert answered(ratio_test(control, treatment))[0] == pytest.approx(0.6 - 0.52941176, rel=1e-5)
    lift = relative_interval(control, treatment)
    estimate, std_error, _, _ = answered(lift)
    assert estimate == pytest.approx(0.13333333, rel=1e-5)
    p_value = 2 * stats.t.sf(abs(estimate / std_error), lift.df)
    assert p_value == pytest.approx(0.61066334, rel=1e-5)


def test_the_published_mean_case_holds_on_both_scales() -> None:
    # Source: growthbook/growthbook@8f1db4456915, packages/stats/tests/frequentist/test_tests.py.
    control = sums(3407, 1396.87, 52377.9767, den=(3407, 3407), cross=1396.87)
    treatment = sums(3461, 2422.7, 134698.29, den=(3461, 3461), cross=2422.7)
    estimate, std_error, p_value, ci = answered(ratio_test(control, treatment))
    assert (estimate, std_error) == pytest.approx((0.29, 0.12478363), rel=1e-5)
    assert p_value == pytest.approx(0.020158403, rel=1e-5)
    assert ci == pytest.approx((0.045377893, 0.53462211), rel=1e-5)
    lift, error, lift_p, lift_ci = answered(relative_interval(control, treatment))
    assert (lift, error) == pytest.approx((0.70731707, 0.37879436), rel=1e-5)
    # The delta method would say p = 0.062 and an interval over 0, against the test above.
    assert lift_p == p_value
    assert lift_ci[0] > 0


@given(control=arms, treatment=arms, alpha=st.floats(0.001, 0.5))
def test_over_denominators_of_1_it_is_welchs_test(
    control: Moments, treatment: Moments, alpha: float
) -> None:
    effect = ratio_test(control, treatment, alpha=alpha)
    estimate, _, p_value, ci = answered(effect)
    welch = stats.ttest_ind_from_stats(
        treatment.mean,
        sqrt(treatment.var),
        treatment.n,
        control.mean,
        sqrt(control.var),
        control.n,
        equal_var=False,
    )
    assert estimate == treatment.mean - control.mean
    assert effect.statistic == pytest.approx(welch.statistic, rel=1e-9, abs=1e-12)
    assert p_value == pytest.approx(welch.pvalue, rel=1e-6, abs=1e-300)
    half = stats.t.isf(alpha / 2, effect.df) * effect.std_error
    assert ci == pytest.approx((estimate - half, estimate + half), rel=1e-6, abs=1e-9)


def test_degrees_of_freedom_are_welchs() -> None:
    left, right = np.random.default_rng(1).normal(size=(2, 60))
    effect = ratio_test(Moments.of(left[:50]), Moments.of(3 * right))
    oracle = stats.ttest_ind(3 * right, left[:50], equal_var=False)
    assert effect.df == pytest.approx(oracle.df, rel=1e-9)
    assert effect.ci == pytest.approx(tuple(oracle.confidence_interval(0.95)), rel=1e-9)
    assert effect.method == "delta"


@given(control=ratio_arms(), treatment=ratio_arms())
def test_swapped_arms_flip_the_estimate_and_keep_the_p(
    control: Moments, treatment: Moments
) -> None:
    estimate, std_error, p_value, (low, high) = answered(ratio_test(control, treatment))
    swapped = answered(ratio_test(treatment, control))
    assert swapped[:3] == pytest.approx((-estimate, std_error, p_value), rel=1e-12)
    assert swapped[3] == pytest.approx((-high, -low), rel=1e-12)


@given(control=ratio_arms(), treatment=ratio_arms(), c=st.floats(0.001, 1000), d=st.floats(1, 9))
def test_other_units_of_the_metric_scale_the_effect_and_keep_the_p(
    control: Moments, treatment: Moments, c: float, d: float
) -> None:
    def scaled(arm: Moments) -> Moments:
        return Moments(
            arm.n,
            c * arm.mean,
            c**2 * arm.var,
            d * arm.den_mean,
            d**2 * arm.den_var,
            c * d * arm.cov,
        )

    estimate, std_error, p_value, _ = answered(ratio_test(control, treatment))
    after = answered(ratio_test(scaled(control), scaled(treatment)))
    assert after[:2] == pytest.approx((estimate * c / d, std_error * c / d), rel=1e-9)
    assert after[2] == pytest.approx(p_value, rel=1e-6)
    lift, lift_after = (
        relative_interval(*pair)
        for pair in ((control, treatment), (scaled(control), scaled(treatment)))
    )
    assert lift.reason == lift_after.reason
    if lift.ci:
        assert lift_after.ci == pytest.approx(lift.ci, rel=1e-6, abs=1e-9)


@given(
    control=st.one_of(arms, ratio_arms()),
    treatment=st.one_of(arms, ratio_arms()),
    alpha=st.floats(0.001, 0.5),
)
def test_the_lifts_interval_agrees_with_the_absolute_test(
    control: Moments, treatment: Moments, alpha: float
) -> None:
    estimate, _, p_value, ci = answered(ratio_test(control, treatment, alpha=alpha))
    lift = relative_interval(control, treatment, alpha=alpha)
    assume(lift.ci and abs(p_value - alpha) > 1e-9)
    assert lift.ci
    assert lift.p_value == p_value
    assert (lift.ci[0] > 0) == (ci[0] > 0)
    assert (lift.ci[1] < 0) == (ci[1] < 0)
    assert lift.estimate == pytest.approx(estimate / abs(control.mean / control.den_mean))


@given(control=ratio_arms(), treatment=ratio_arms())
def test_fiellers_bounds_solve_fiellers_equation(control: Moments, treatment: Moments) -> None:
    lift = relative_interval(control, treatment)
    assume(lift.ci)
    assert lift.ci
    quantile = stats.t.isf(0.025, lift.df)
    for bound in lift.ci:
        theta, error = 1 + bound, 0.0
        for arm, factor in ((treatment, 1.0), (control, theta)):
            ratio = arm.mean / arm.den_mean
            spread = arm.var - 2 * ratio * arm.cov + ratio**2 * arm.den_var
            error += factor**2 * spread / arm.den_mean**2 / arm.n
        gap = treatment.mean / treatment.den_mean - theta * control.mean / control.den_mean
        assert abs(gap) / sqrt(error) == pytest.approx(quantile, rel=1e-5)


def test_over_a_negative_control_the_lift_has_the_sign_of_the_difference() -> None:
    control, treatment = Moments(100, -2.0, 1.0), Moments(100, -1.0, 1.0)
    lift, _, _, (low, high) = answered(relative_interval(control, treatment))
    assert lift == 0.5
    assert 0 < low < 0.5 < high


@pytest.mark.parametrize("test", [ratio_test, relative_interval])
@pytest.mark.parametrize(
    ("control", "reason"),
    [
        (Moments(0, 0.0, 0.0), "an arm has fewer than 2 units"),
        (Moments(1, 0.3, 0.0), "an arm has fewer than 2 units"),
        (Moments(90, 0.3, 1.0, 0.0), "an arm's denominator is 0"),
        (Moments(90, 0.3, 0.0), "neither arm varies"),
        (Moments(90, float("nan"), 1.0), "a moment is not finite"),
        (Moments(90, 1e200, 1.0, 1e-200, 1.0), "a number is too large"),
    ],
)
def test_without_an_honest_answer_it_says_why(
    test: Callable[[Moments, Moments], Effect], control: Moments, reason: str
) -> None:
    for arms_ in ((control, Moments(90, 0.4, 0.0)), (Moments(90, 0.4, 0.0), control)):
        effect = test(*arms_)
        assert effect.reason == reason
        numbers = (effect.estimate, effect.std_error, effect.df, effect.statistic, effect.p_value)
        assert numbers == (None,) * 5
        assert effect.ci is None


def test_a_ratio_that_is_the_same_for_every_unit_does_not_vary() -> None:
    turns = [1, 2, 3, 5, 8, 13]
    arm = Moments.of([0.3 * count for count in turns], turns)
    assert ratio_test(arm, arm).reason == "neither arm varies"


def test_one_arm_that_does_not_vary_can_be_compared() -> None:
    effect = ratio_test(Moments(90, 0.0, 0.0), Moments(60, 0.4, 1.0))
    assert effect.df == pytest.approx(59)
    assert effect.std_error == pytest.approx(sqrt(1 / 60))


def test_a_control_that_may_be_0_has_no_lift_but_a_difference() -> None:
    control, treatment = Moments(100, 0.1, 1.0), Moments(100, 0.2, 1.0)
    assert relative_interval(control, treatment).reason == (
        "the control may be 0, so its lift is undefined"
    )
    assert relative_interval(Moments(100, 0.0, 0.0), treatment).estimate is None
    assert ratio_test(control, treatment).estimate == pytest.approx(0.1)


@pytest.mark.parametrize(("units", "few"), [(49, True), (50, False)])
def test_under_50_units_in_an_arm_the_method_says_so(units: int, few: bool) -> None:
    arm, other = Moments(units, 1.0, 0.1), Moments(500, 1.0, 0.1)
    for effect in (ratio_test(arm, other), ratio_test(other, arm), relative_interval(arm, other)):
        assert effect.method.endswith(", few units") == few
        assert effect.ci is not None


def test_a_strong_effect_keeps_its_small_p() -> None:
    p_value = answered(ratio_test(Moments(10**6, 0.0, 1.0), Moments(10**6, 0.05, 1.0)))[2]
    assert 0 < p_value < 1e-200


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan")])
def test_an_alpha_that_is_no_error_rate_is_refused(alpha: float) -> None:
    arm = Moments(100, 1.0, 1.0)
    for test in (ratio_test, relative_interval):
        with pytest.raises(BadInput, match="alpha"):
            test(arm, arm, alpha=alpha)
