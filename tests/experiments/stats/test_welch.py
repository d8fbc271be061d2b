from math import exp, inf, log, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, stats

from experiments.stats import Effect, Moments, ratio_test, relative_interval
from experiments.stats.welch import log_p_value, noninferiority_test, welch_test
from ingest.errors import BadInput
from tests.experiments.answers import answered
from tests.experiments.vectors import agrees, vector

means = st.floats(-10, 10).filter(lambda mean: abs(mean) > 0.01)
arms = st.builds(Moments, st.integers(2, 10_000), means, st.floats(0.01, 100))
alphas = st.floats(0.001, 0.6)
sides = st.sampled_from(["two-sided", "greater", "less"])


def as_json(effect: Effect) -> dict[str, object]:
    estimate, std_error, p_value, ci = answered(effect)
    return {"est": estimate, "se": std_error, "p": p_value, "ci": ci}


def mean_arm(n: int, total: float, squares: float) -> Moments:
    return Moments(n, total / n, (squares - total**2 / n) / (n - 1))


def share_arm(n: int, total: float) -> Moments:
    # The published case has the population's variance.
    return Moments(n, total / n, total / n * (1 - total / n))


def test_the_published_cases_hold_on_both_scales() -> None:
    given_ = vector("mean-welch-1")["input"]
    arms_ = [mean_arm(arm["n"], arm["sum"], arm["sum_squares"]) for arm in given_["mean"].values()]
    shares = [share_arm(arm["n"], arm["sum"]) for arm in given_["proportion"].values()]
    agrees(
        "mean-welch-1",
        {
            "relative": as_json(welch_test(*arms_, scale="relative")),
            "absolute": as_json(welch_test(*arms_)),
            "proportion_relative": as_json(welch_test(*shares, scale="relative")),
        },
    )


@given(arms, arms, sides, alphas)
def test_the_absolute_test_is_scipys(
    control: Moments, treatment: Moments, alternative: str, alpha: float
) -> None:
    effect = welch_test(control, treatment, alternative=alternative, alpha=alpha)  # type: ignore[arg-type]
    theirs = stats.ttest_ind_from_stats(
        treatment.mean,
        sqrt(treatment.var),
        treatment.n,
        control.mean,
        sqrt(control.var),
        control.n,
        equal_var=False,
        alternative=alternative,
    )
    assert effect.statistic == pytest.approx(theirs.statistic, rel=1e-12, abs=1e-12)
    _, std_error, p_value, (low, high) = answered(effect)
    assert p_value == pytest.approx(theirs.pvalue, rel=1e-10, abs=1e-14)
    level = alpha / 2 if alternative == "two-sided" else alpha
    half = stats.t.isf(level, effect.df) * std_error
    difference = treatment.mean - control.mean
    if alternative != "less":
        assert low == pytest.approx(difference - half, rel=1e-11, abs=1e-12)
    if alternative != "greater":
        assert high == pytest.approx(difference + half, rel=1e-11, abs=1e-12)


@given(arms, arms)
def test_it_is_the_ratio_test_of_means(control: Moments, treatment: Moments) -> None:
    ours, theirs = welch_test(control, treatment), ratio_test(control, treatment)
    assert answered(ours)[:2] == pytest.approx(answered(theirs)[:2], rel=1e-14)
    assert ours.p_value == pytest.approx(theirs.p_value, rel=1e-9)
    assert ours.ci == pytest.approx(theirs.ci, rel=1e-12)


@given(arms, arms, sides, alphas, st.floats(-3, 3), st.sampled_from(["absolute", "relative"]))
def test_the_interval_excludes_the_margin_exactly_when_p_is_below_alpha(
    control: Moments, treatment: Moments, alternative: str, alpha: float, margin: float, scale: str
) -> None:
    effect = welch_test(
        control,
        treatment,
        alternative=alternative,  # type: ignore[arg-type]
        alpha=alpha,
        margin=margin,
        scale=scale,  # type: ignore[arg-type]
    )
    assume(effect.reason is None)
    _, _, p_value, (low, high) = answered(effect)
    assume(abs(p_value / alpha - 1) > 1e-9)
    assert (not low <= margin <= high) == (p_value < alpha)


def test_one_side_is_open_and_its_p_is_half() -> None:
    control, treatment = Moments(500, 1.0, 4.0), Moments(500, 1.3, 4.0)
    both = welch_test(control, treatment)
    more = welch_test(control, treatment, alternative="greater")
    fewer = welch_test(control, treatment, alternative="less")
    assert more.p_value == pytest.approx(answered(both)[2] / 2, rel=1e-14)
    assert answered(more)[2] + answered(fewer)[2] == pytest.approx(1, rel=1e-14)
    assert answered(more)[3][1] == inf
    assert answered(fewer)[3][0] == -inf
    assert more.method == "welch, greater"


def test_a_margin_is_part_of_the_answers_title() -> None:
    control, treatment = Moments(500, 1.0, 4.0), Moments(500, 0.95, 4.0)
    effect = welch_test(control, treatment, alternative="greater", margin=-0.2)
    assert effect.method == "welch, greater, margin -0.2"
    assert effect.statistic == pytest.approx((-0.05 + 0.2) / sqrt(8 / 500))


def test_strong_effects_in_huge_samples_have_a_p_value() -> None:
    """growthbook/growthbook#1320: no p-value shown for strong effects on rare metrics."""
    rare = Moments(50_000_000, 0.001, 0.001), Moments(50_000_000, 0.0012, 0.0012)
    effect = welch_test(*rare)
    _, _, p_value, _ = answered(effect)
    assert 0 < p_value < 1e-190
    assert log_p_value(effect) == pytest.approx(log(p_value))
    stronger = welch_test(rare[0], Moments(50_000_000, 0.0015, 0.0015))
    # The normal tail, whose logarithm scipy knows; the df of 1e8 change the ninth digit.
    tail = log(2) + stats.norm.logsf(stronger.statistic)
    assert tail < -2000
    assert log_p_value(stronger) == pytest.approx(tail, rel=1e-4)


@pytest.mark.parametrize(("t", "df"), [(60, 300.0), (300, 1000.0), (45, 1e5), (50, 1e9), (2e4, 90)])
@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_the_log_of_a_p_below_all_floats_is_that_of_the_density_integrated(
    t: float, df: float, alternative: str
) -> None:
    ci = (1.0, 2.0 if alternative == "two-sided" else inf)
    effect = Effect(1.0, 1 / t, df, t, 0.0, ci, 0.05, "absolute", "x", 9, 9)
    top, scale = stats.t.logpdf(t, df), (df + t * t) / t / df
    rest, _ = integrate.quad(
        lambda far: exp(stats.t.logpdf(t + far * scale, df) - top), 0, 80, epsrel=1e-11, limit=200
    )
    expected = top + log(rest * scale) + (log(2) if alternative == "two-sided" else 0)
    assert log_p_value(effect) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("control", "reason"),
    [
        (Moments(1, 1.0, 0.0), "an arm has fewer than 2 units"),
        (Moments(10, 1.0, 0.0), "neither arm varies"),
        (Moments(10, float("nan"), 1.0), "a moment is not finite"),
        (Moments(10, 1.0, -1.0), "a variance is negative"),
        (Moments(10, 1.0, 1.0, den_mean=0.0), "an arm's denominator is 0"),
        (Moments(10, 1e200, 1.0, den_mean=1e-200), "a number is too large"),
        (Moments(10, 0.0, 1.0), "the control may be 0, so its lift is undefined"),
        (Moments(10, 0.1, 1.0), "the control may be 0, so its lift is undefined"),
    ],
)
def test_no_honest_answer_is_a_reason_without_numbers(control: Moments, reason: str) -> None:
    treatment = Moments(10, 2.0, 0.0 if reason == "neither arm varies" else control.var or 1.0)
    if reason == "a variance is negative":
        treatment = Moments(10, 2.0, 1.0)
    for effect in (
        welch_test(control, treatment, scale="relative"),
        noninferiority_test(control, treatment, margin=0.1),
    ):
        assert effect.reason == reason
        assert effect.estimate is effect.p_value is effect.std_error is None
        assert effect.ci is None
        assert log_p_value(effect) is None


def test_bad_questions_are_refused_with_their_field() -> None:
    arm = Moments(10, 1.0, 1.0)
    for bad, field in (
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"margin": inf}, "margin"),
        ({"alternative": "larger"}, "alternative"),
        ({"scale": "log"}, "scale"),
    ):
        with pytest.raises(BadInput, match=field):
            welch_test(arm, arm, **bad)
    for margin in (-0.1, 1.0, float("nan")):
        with pytest.raises(BadInput, match="margin"):
            noninferiority_test(arm, arm, margin=margin)


@given(arms, arms, alphas, st.floats(0, 0.99), st.booleans())
def test_the_one_sided_limit_clears_the_margin_exactly_when_p_is_below_alpha(
    control: Moments, treatment: Moments, alpha: float, margin: float, lower: bool
) -> None:
    effect = noninferiority_test(
        control, treatment, margin=margin, lower_is_better=lower, alpha=alpha
    )
    assume(effect.reason is None)
    _, _, p_value, (low, high) = answered(effect)
    assume(abs(p_value / alpha - 1) > 1e-7)
    cleared = high < margin if lower else low > -margin
    assert cleared == (p_value < alpha)


def test_non_inferiority_is_the_welch_test_against_a_scaled_control() -> None:
    control, treatment = Moments(400, 10.0, 9.0), Moments(300, 9.8, 12.0)
    scaled = Moments(400, 9.5, 9.0 * 0.95**2)
    theirs = stats.ttest_ind_from_stats(
        9.8, sqrt(12.0), 300, 9.5, sqrt(scaled.var), 400, equal_var=False, alternative="greater"
    )
    effect = noninferiority_test(control, treatment, margin=0.05)
    assert effect.p_value == pytest.approx(theirs.pvalue, rel=1e-12)
    # A margin that moves with the control has the control's error: it is not the fixed margin.
    fixed = welch_test(control, treatment, margin=-0.5, alternative="greater")
    assert fixed.p_value != pytest.approx(theirs.pvalue, rel=1e-3)


def test_harm_is_turned_round_for_metrics_that_are_better_lower_or_below_0() -> None:
    def p(control: float, treatment: float, *, lower: bool = False) -> float:
        effect = noninferiority_test(
            Moments(400, control, 9.0),
            Moments(400, treatment, 9.0),
            margin=0.1,
            lower_is_better=lower,
        )
        return answered(effect)[2]

    assert p(10, 10) < 0.001
    assert p(10, 8.5) > 0.9, "a fall by 15 % is harm"
    assert p(10, 11.5, lower=True) > 0.9, "a rise by 15 % is harm where lower is better"
    assert p(10, 8.5, lower=True) < 0.001
    assert p(-10, -11.5) > 0.9, "below 0 too, a fall is harm"
    assert p(-10, -11.5) == pytest.approx(p(10, 11.5, lower=True))


def test_not_significant_is_not_safe() -> None:
    few = Moments(50, 10.0, 100.0), Moments(50, 9.0, 100.0)
    assert answered(relative_interval(*few))[2] > 0.5
    assert answered(noninferiority_test(*few, margin=0.05))[2] > 0.5


@pytest.mark.slow
def test_at_the_margin_non_inferiority_errs_at_alpha() -> None:
    random, replicates = np.random.default_rng(5), 4000
    hits = 0
    for _ in range(replicates):
        control, treatment = random.normal(10, 5, 150), random.normal(9, 8, 90)
        test = noninferiority_test(Moments.of(control), Moments.of(treatment), margin=0.1)
        hits += answered(test)[2] < 0.05
    assert abs(hits / replicates - 0.05) < 3 * sqrt(0.05 * 0.95 / replicates)
