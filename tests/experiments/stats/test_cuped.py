from math import sqrt

import numpy as np
import pyarrow as pa
import pytest
import statsmodels.api as sm
import tea_tasting as tt
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from experiments.stats import ratio_test, relative_interval
from experiments.stats.cuped import PRE_ALARM, Cuped, PreMoments, cuped, pre_imbalance
from ingest.errors import BadInput
from tests.experiments.answers import answered
from tests.experiments.stats.pasts import Floats, arms_of, pair, ratios, users
from tests.experiments.vectors import vector


def from_sums(sums: dict[str, float]) -> PreMoments:
    n, y, x = sums["n"], sums["y"], sums["x"]
    yy, xx, xy = (
        (sums[name] - left * right / n) / (n - 1)
        for name, left, right in (("yy", y, y), ("xx", x, x), ("xy", x, y))
    )
    cov = ((yy, 0.0, xy, 0.0), (0.0,) * 4, (xy, 0.0, xx, 0.0), (0.0,) * 4)
    return PreMoments(int(n), (y / n, 1.0, x / n, 1.0), cov)


def test_the_published_case_holds() -> None:
    given_, expected = vector("cuped-1")["input"], vector("cuped-1")["expected"]
    result = cuped(from_sums(given_["control"]), from_sums(given_["treatment"]))
    assert result.thetas == pytest.approx((expected["theta"],) * 2, rel=1e-5)
    lift, std_error, p_value, _ = answered(result.relative)
    assert lift == pytest.approx(expected["rel"], rel=1e-5)
    # The source's p is that of the lift over its delta-method error; ours is the difference's.
    assert 2 * student.sf(abs(lift) / std_error, result.relative.df) == pytest.approx(
        expected["p"], rel=1e-5
    )
    assert p_value == result.absolute.p_value


@pytest.mark.parametrize("ratio", [False, True])
def test_it_agrees_with_tea_tasting(ratio: bool) -> None:
    control, treatment = arms_of(1)
    columns = {
        name: np.concatenate((control[name], treatment[name]))
        for name in ("value", "size", "past", "past_size")
    }
    columns["variant"] = np.repeat([0, 1], [300, 200])
    metric = (
        tt.RatioOfMeans("value", "size", "past", "past_size")
        if ratio
        else tt.Mean("value", covariate="past")
    )
    oracle = tt.Experiment(metric=metric).analyze(pa.table(columns))["metric"]
    if ratio:
        result = cuped(ratios(control), ratios(treatment))
    else:
        result = cuped(*(PreMoments.of(arm["value"], arm["past"]) for arm in (control, treatment)))
    estimate, _, p_value, ci = answered(result.absolute)
    assert estimate == pytest.approx(oracle.effect_size, rel=1e-10)
    assert ci == pytest.approx((oracle.effect_size_ci_lower, oracle.effect_size_ci_upper), rel=1e-9)
    assert p_value == pytest.approx(oracle.pvalue, rel=1e-8)
    assert result.absolute.df is not None


def test_lins_effect_is_that_of_the_regression_with_interactions() -> None:
    random = np.random.default_rng(2)
    control, treatment = pair(random, 2500, slope=1.0), pair(random, 1500, slope=1.0, level=5.1)
    result = cuped(PreMoments.of(*control), PreMoments.of(*treatment), adjustment="lin")
    outcome, past = np.concatenate((control, treatment), axis=1)
    arm = np.repeat([0.0, 1.0], [2500, 1500])
    centred = past - past.mean()
    design = np.column_stack((np.ones(4000), arm, centred, arm * centred))
    fit = sm.OLS(outcome, design).fit(cov_type="HC2")
    estimate, std_error, _, _ = answered(result.absolute)
    assert estimate == pytest.approx(float(fit.params[1]), rel=1e-10)
    assert std_error == pytest.approx(float(fit.bse[1]), rel=0.01)
    assert result.thetas == pytest.approx(
        (float(fit.params[2]), float(fit.params[2] + fit.params[3])), rel=1e-10
    )
    # By arm, without heteroscedasticity, it is exact; slopes that differ add their own variance.
    parts = [
        sm.OLS(values, np.column_stack((np.ones(len(own)), own - past.mean()))).fit().bse[0] ** 2
        for values, own in (control, treatment)
    ]
    weights = (2500 / 4000) ** 2, (1500 / 4000) ** 2
    centre = sum(
        w * own.var(ddof=1) / len(own)
        for w, (_, own) in zip(weights, (control, treatment), strict=True)
    )
    assert std_error**2 == pytest.approx(sum(parts) + fit.params[3] ** 2 * centre, rel=1e-10)


def test_lins_error_covers_units_that_are_a_sample() -> None:
    """Slopes of 0 and 3: the effect depends on X, so whoever is sampled moves it.

    HC2 takes the sampled units for all there are; its error is too small here.
    """
    random = np.random.default_rng(3)
    estimates, errors = [], []
    for _ in range(600):
        control, treatment = pair(random, 150, slope=0.0), pair(random, 150, slope=3.0)
        effect = cuped(PreMoments.of(*control), PreMoments.of(*treatment), adjustment="lin")
        estimate, std_error, _, _ = answered(effect.absolute)
        estimates.append(estimate)
        errors.append(std_error)
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.08)
    assert np.mean(np.abs(estimates) < 1.97 * np.array(errors)) == pytest.approx(0.95, abs=0.027)


@pytest.mark.parametrize("adjustment", ["pooled", "lin"])
def test_a_lift_over_a_noisy_control_is_covered(adjustment: str) -> None:
    """growthbook/growthbook#3610: the relative variance ignored that the control is unadjusted."""
    random = np.random.default_rng(4)
    replicates, covered, naive = 400, 0, 0
    for _ in range(replicates):
        control = pair(random, 200, slope=2.0, level=2.0)
        treatment = pair(random, 200, slope=2.0, level=4.0)
        arms = PreMoments.of(*control), PreMoments.of(*treatment)
        result = cuped(*arms, adjustment="lin" if adjustment == "lin" else "pooled")
        lift, _, _, (low, high) = answered(result.relative)
        covered += low < 1.0 < high
        assert result.absolute.std_error is not None
        # As it was: both means as if adjusted and independent.
        each = result.absolute.std_error**2 / 2
        wrong = sqrt(each * (1 + (1 + lift) ** 2)) / arms[0].mean[0]
        naive += abs(lift - 1.0) < 1.96 * wrong
    assert covered / replicates == pytest.approx(0.95, abs=3 * sqrt(0.05 * 0.95 / replicates))
    assert naive / replicates < 0.9


@given(seed=st.integers(0, 2**32 - 1), adjustment=st.sampled_from(["pooled", "lin"]))
def test_the_lift_never_contradicts_the_difference(seed: int, adjustment: str) -> None:
    control, treatment = arms_of(seed, 30, 40)
    result = cuped(
        ratios(control), ratios(treatment), adjustment="lin" if adjustment == "lin" else "pooled"
    )
    _, _, p_value, ci = answered(result.absolute)
    assert (ci[0] > 0 or ci[1] < 0) == (p_value < 0.05)
    if result.relative.ci is not None:
        low, high = result.relative.ci
        assert (low > 0, high < 0) == (ci[0] > 0, ci[1] < 0)


@pytest.mark.parametrize("adjustment", ["pooled", "lin"])
def test_the_variance_shrinks_by_1_less_rho_squared(adjustment: str) -> None:
    random = np.random.default_rng(5)
    arms = [PreMoments.of(*pair(random, 20_000, slope=2.0)) for _ in range(2)]
    result = cuped(*arms, adjustment="lin" if adjustment == "lin" else "pooled")
    assert result.variance_factor == pytest.approx(1 - 4 / 5, rel=0.03)
    plain = ratio_test(arms[0].outcome, arms[1].outcome)
    assert plain.std_error is not None
    assert result.absolute.std_error == pytest.approx(plain.std_error * sqrt(0.2), rel=0.02)


def test_unequal_arms_gain_from_their_own_slopes() -> None:
    random = np.random.default_rng(6)
    small, large = pair(random, 300, slope=-1.0), pair(random, 6000, slope=1.0)
    arms = PreMoments.of(*small), PreMoments.of(*large)
    pooled, lin = cuped(*arms), cuped(*arms, adjustment="lin")
    assert pooled.variance_factor is not None
    assert lin.variance_factor is not None
    assert pooled.variance_factor > 1.5, "the large arm's slope makes the small one worse"
    assert lin.variance_factor < 0.9


def test_units_without_a_past_stay_with_0_and_a_note() -> None:
    random = np.random.default_rng(7)
    values, past = pair(random, 200, slope=1.0)
    gaps = np.arange(200) < 25
    with_gaps = PreMoments.of(values, np.where(gaps, np.nan, past))
    assert with_gaps.n == 200
    assert with_gaps.missing == 25
    filled = PreMoments.of(values, np.where(gaps, 0.0, past))
    assert (with_gaps.mean, with_gaps.cov) == (filled.mean, filled.cov)
    result = cuped(PreMoments.of(values, past), with_gaps)
    assert result.note == (
        "0.0% and 12.5% of control and treatment have no past: a stratum of new units, "
        "kept with a covariate of 0"
    )
    assert cuped(filled, filled).note is None


@pytest.mark.parametrize("adjustment", ["pooled", "lin"])
@pytest.mark.parametrize("past", [0.0, 0.1, np.nan])
def test_a_covariate_that_does_not_vary_adjusts_nothing_and_is_named(
    adjustment: str, past: float
) -> None:
    random = np.random.default_rng(9)
    arms = [PreMoments.of(random.normal(3, 1, 80), np.full(80, past)) for _ in range(2)]
    result = cuped(*arms, adjustment="lin" if adjustment == "lin" else "pooled")
    plain = ratio_test(arms[0].outcome, arms[1].outcome)
    lift = relative_interval(arms[0].outcome, arms[1].outcome)
    assert answered(result.absolute) == answered(plain)
    assert answered(result.relative) == answered(lift)
    assert result.absolute.method == "delta, unadjusted: the covariate does not vary"
    assert result.variance_factor == 1.0


def test_a_covariate_that_is_the_outcome_has_a_reason() -> None:
    values = np.random.default_rng(10).normal(3, 1, (2, 80))
    result = cuped(*(PreMoments.of(arm, 3 * arm) for arm in values))
    for effect in (result.absolute, result.relative):
        assert effect.reason == "the covariate explains all: it is the outcome itself"
        assert effect.estimate is None
    assert result.thetas is None
    assert result.variance_factor is None


def test_without_an_honest_answer_it_says_why() -> None:
    arm = PreMoments.of([1.0, 2.0], [0.0, 2.0])
    flat = PreMoments.of([1.0, 1.0], [0.0, 2.0])
    assert cuped(PreMoments.of([], []), arm).absolute.reason == "an arm has fewer than 2 units"
    assert cuped(flat, flat).absolute.reason == "neither arm varies"
    assert cuped(arm, arm, adjustment="lin").absolute.reason == "an arm has fewer than 3 units"
    broken = PreMoments(9, arm.mean, ((1, 0, np.inf, 0), (0, 0, 0, 0), (np.inf, 0, 1, 0), (0,) * 4))
    assert cuped(broken, arm).absolute.reason == "a moment of the covariate is not finite"
    may_be_0 = PreMoments.of([-1.0, 1.0, 0.1], [0.0, 2.0, 0.5])
    result = cuped(may_be_0, PreMoments.of([5.0, 6.0, 8.0], [0.0, 2.0, 0.6]))
    assert result.absolute.reason is None
    assert result.relative.reason == "the control may be 0, so its lift is undefined"
    assert result.absolute.method == "CUPED, few units"


def test_arms_that_differed_before_are_found_by_their_covariate() -> None:
    random = np.random.default_rng(11)
    control, treatment = pair(random, 900, slope=1.0), pair(random, 900, slope=1.0)
    alike = pre_imbalance(PreMoments.of(*control), PreMoments.of(*treatment))
    assert alike.p_value is not None
    assert alike.p_value > PRE_ALARM
    treatment[1] += 0.3
    effect = pre_imbalance(PreMoments.of(*control), PreMoments.of(*treatment), covariates=10)
    assert effect.alpha == PRE_ALARM / 10
    assert effect.p_value is not None
    assert effect.p_value < effect.alpha
    assert effect.estimate == pytest.approx(treatment[1].mean() - control[1].mean())
    with pytest.raises(BadInput, match="covariates"):
        pre_imbalance(PreMoments.of(*control), PreMoments.of(*treatment), covariates=0)


@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-100, 100), c=st.floats(0.01, 100))
def test_the_covariates_own_unit_and_origin_do_not_matter(
    seed: int, shift: float, c: float
) -> None:
    random = np.random.default_rng(seed)
    arms = [pair(random, 60, slope=1.0) for _ in range(2)]
    for lin in (False, True):

        def adjusted(moved: list[Floats], lin: bool = lin) -> Cuped:
            moments = (PreMoments.of(*each) for each in moved)
            return cuped(*moments, adjustment="lin" if lin else "pooled")

        result, moved = adjusted(arms), adjusted([np.stack((y, c * x + shift)) for y, x in arms])
        assert moved.absolute.estimate == pytest.approx(
            result.absolute.estimate, rel=1e-6, abs=1e-8
        )
        assert moved.absolute.std_error == pytest.approx(result.absolute.std_error, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("adjustment", ["pooled", "lin"])
def test_with_no_effect_it_errs_at_5_percent_also_for_unequal_arms(adjustment: str) -> None:
    replicates, errors = 2000, 0
    random = np.random.default_rng(20_261_130)
    for _ in range(replicates):
        arms = ratios(users(random, 900)), ratios(users(random, 60))
        result = cuped(*arms, adjustment="lin" if adjustment == "lin" else "pooled")
        errors += answered(result.absolute)[2] < 0.05
    print(f"\n{adjustment}: {errors / replicates:.1%}")
    assert abs(errors / replicates - 0.05) < 3 * sqrt(0.05 * 0.95 / replicates)


@pytest.mark.parametrize("alpha", [0.0, 1.5, float("nan")])
def test_an_alpha_that_is_no_error_rate_is_refused(alpha: float) -> None:
    arm = ratios(arms_of(12)[0])
    with pytest.raises(BadInput, match="alpha"):
        cuped(arm, arm, alpha=alpha)
