from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, stats
from scipy.special import ndtr
from statsmodels.stats.multitest import multipletests

from experiments.stats import Effect, Moments
from experiments.stats._dunnett import any_beyond, critical
from experiments.stats.multiplicity import Adjustment, adjust_pvalues, dunnett
from experiments.stats.welch import welch_test
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector

THEIR_NAMES: dict[Adjustment, str] = {
    "holm": "holm",
    "bh": "fdr_bh",
    "by": "fdr_by",
    "bonferroni": "bonferroni",
}

# C. W. Dunnett, Biometrics 20 (1964) 482-491: two-sided, alpha 0.05, arms of equal size, by the
# number of arms besides the control.
TABLE = {
    10.0: {1: 2.23, 2: 2.57, 3: 2.76, 4: 2.89, 5: 2.99},
    20.0: {1: 2.09, 2: 2.38, 3: 2.54, 4: 2.65, 5: 2.73},
    60.0: {1: 2.00, 2: 2.27, 3: 2.41, 4: 2.51, 5: 2.58},
    1e9: {1: 1.96, 2: 2.21, 3: 2.35, 4: 2.44, 5: 2.51},
}

# C. W. Dunnett, J. Am. Statist. Assoc. 50 (1955) 1096-1121: blood counts after two drugs.
BLOOD = (
    [7.40, 8.50, 7.20, 8.24, 9.84, 8.32],
    [9.76, 8.80, 7.68, 9.36],
    [12.80, 9.68, 12.16, 9.20, 10.55],
)


def numbers(effect: Effect) -> tuple[float, float, tuple[float, float]]:
    assert effect.reason is None
    assert effect.statistic is not None
    assert effect.p_value is not None
    assert effect.ci is not None
    return effect.statistic, effect.p_value, effect.ci


def test_the_published_example_holds() -> None:
    case = vector("multiplicity-1")["input"]
    adjusted = {
        method: adjust_pvalues(case["p"], method=method) for method in ("bonferroni", "holm", "bh")
    }
    agrees(
        "multiplicity-1",
        {
            "rejected": {method: int((p < case["alpha"]).sum()) for method, p in adjusted.items()},
            "bh_adjusted_first4": adjusted["bh"][:4].tolist(),
        },
    )


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.sampled_from(sorted(THEIR_NAMES)))
def test_adjusted_p_values_are_statsmodels_in_the_order_given(
    p: list[float], method: Adjustment
) -> None:
    theirs = multipletests(p, method=THEIR_NAMES[method])[1]
    assert adjust_pvalues(p, method=method) == pytest.approx(theirs, rel=1e-12, abs=1e-300)


def test_a_family_of_none_has_no_p_values() -> None:
    assert adjust_pvalues([]).tolist() == []


@pytest.mark.parametrize("p", [[1.2], [-0.1], [float("nan")], [[0.1]]])
def test_what_is_no_p_value_is_refused(p: list[float]) -> None:
    with pytest.raises(BadInput, match="p"):
        adjust_pvalues(p)


def test_bad_questions_are_refused_with_their_field() -> None:
    arm = Moments(10, 1.0, 1.0)
    with pytest.raises(BadInput, match="method"):
        adjust_pvalues([0.1], method="hochberg")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="alpha"):
        dunnett(arm, [arm], alpha=1.5)
    with pytest.raises(BadInput, match="variances"):
        dunnett(arm, [arm], variances="unequal")  # type: ignore[arg-type]


@pytest.mark.parametrize("df", TABLE)
def test_dunnetts_table_holds(df: float) -> None:
    for arms, published in TABLE[df].items():
        assert critical((sqrt(0.5),) * arms, df, 0.05) == pytest.approx(published, abs=5.1e-3)


def test_dunnetts_example_is_scipys_within_scipys_noise() -> None:
    theirs = stats.dunnett(*BLOOD[1:], control=BLOOD[0], rng=np.random.default_rng(1))
    between = theirs.confidence_interval(0.95)
    effects = dunnett(Moments.of(BLOOD[0]), [Moments.of(arm) for arm in BLOOD[1:]])
    for index, effect in enumerate(effects):
        statistic, p_value, ci = numbers(effect)
        assert statistic == pytest.approx(theirs.statistic[index], rel=1e-12)
        assert p_value == pytest.approx(theirs.pvalue[index], abs=5e-4)
        assert ci == pytest.approx((between.low[index], between.high[index]), abs=5e-3)


def test_dunnett_is_the_same_in_every_run() -> None:
    control, arms = Moments.of(BLOOD[0]), [Moments.of(arm) for arm in BLOOD[1:]]
    first = dunnett(control, arms)
    critical.cache_clear()
    assert dunnett(control, arms) == first
    # The order of the arms is only that of the answers.
    turned = dunnett(control, arms[::-1])[::-1]
    for one, other in zip(first, turned, strict=True):
        assert numbers(one)[1] == pytest.approx(numbers(other)[1], rel=1e-12)
        assert numbers(one)[2] == pytest.approx(numbers(other)[2], rel=1e-9)


@given(st.floats(0.01, 30), st.floats(1, 1e9), st.floats(0.01, 0.9999))
def test_one_arm_has_students_own_p(t: float, df: float, loading: float) -> None:
    expected = 2 * stats.t.sf(t, df)
    assert any_beyond(t, (loading,), df) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("loadings", [(0.7, 0.6, 0.5), (0.99, 0.2), (0.05, 0.02, 0.9), (0.3,) * 12])
def test_many_arms_have_the_normal_integral(loadings: tuple[float, ...]) -> None:
    own = np.sqrt(1 - np.square(loadings))

    def inside(z: float, t: float) -> float:
        edges = np.multiply(loadings, z)
        each: NDArray[np.float64] = ndtr((t - edges) / own) - ndtr((-t - edges) / own)
        return float(stats.norm.pdf(z) * each.prod())

    for t in (0.5, 1.5, 2.5):
        total, _ = integrate.quad(inside, -12, 12, args=(t,), epsabs=1e-12, limit=400)
        assert any_beyond(t, loadings, 1e12) == pytest.approx(1 - total, abs=1e-9)


def test_dunnett_lies_between_one_test_and_bonferronis() -> None:
    random = np.random.default_rng(3)
    arms = [Moments.of(random.normal(0.1 * arm, 1, 400 + 50 * arm)) for arm in range(4)]
    for effect in dunnett(arms[0], arms[1:]):
        statistic, p_value, _ = numbers(effect)
        single = 2 * stats.t.sf(abs(statistic), effect.df)
        assert single < p_value < 3 * single


def test_a_tiny_p_is_not_lost() -> None:
    arms = [Moments(100_000, mean, 1.0) for mean in (0.0, 0.1, 0.15)]
    p = [numbers(effect)[1] for effect in dunnett(arms[0], arms[1:])]
    # So far out, two arms are hardly ever out together: Bonferroni's is all but exact.
    for mean, adjusted in zip((0.1, 0.15), p, strict=True):
        single = 2 * stats.t.sf(mean / sqrt(2e-5), 299_997)
        assert single < 1e-100
        assert adjusted == pytest.approx(2 * single, rel=1e-6)


@given(
    st.lists(
        st.builds(Moments, st.integers(2, 500), st.floats(-1, 1), st.floats(0.1, 10)),
        min_size=2,
        max_size=4,
    ),
    st.sampled_from(["pooled", "separate"]),
)
def test_each_interval_excludes_0_exactly_when_its_p_is_below_alpha(
    arms: list[Moments], variances: str
) -> None:
    for effect in dunnett(arms[0], arms[1:], 0.1, variances=variances):  # type: ignore[arg-type]
        _, p_value, (low, high) = numbers(effect)
        assert (p_value < 0.1) == (not low <= 0 <= high) or p_value == pytest.approx(0.1, rel=1e-7)


def test_with_separate_variances_one_arm_is_welchs_test() -> None:
    control, arm = Moments(50, 1.0, 9.0), Moments(80, 2.0, 1.0)
    ours, theirs = dunnett(control, [arm], variances="separate")[0], welch_test(control, arm)
    assert numbers(ours)[:2] == pytest.approx(numbers(theirs)[:2], rel=1e-9)
    assert numbers(ours)[2] == pytest.approx(numbers(theirs)[2], rel=1e-8)


def test_an_arm_that_cannot_be_compared_leaves_the_others_their_family() -> None:
    control, good, lone = Moments(50, 1.0, 9.0), Moments(80, 2.0, 1.0), Moments(1, 5.0, 0.0)
    effects = dunnett(control, [good, lone, good])
    assert effects[1].reason == "an arm has fewer than 2 units"
    assert effects[1].p_value is None
    assert numbers(effects[0]) == numbers(effects[2])
    assert effects[0] == dunnett(control, [good, good])[0]
    for effect in dunnett(lone, [good, good]):
        assert effect.reason == "an arm has fewer than 2 units"
    still = Moments(50, 1.0, 0.0)
    assert dunnett(still, [still])[0].reason == "no arm varies"
    alone, other = dunnett(still, [still, good], variances="separate")
    assert alone.reason == "neither arm varies"
    assert numbers(other)[1] < 1
    assert dunnett(control, []) == []


@pytest.mark.slow
@pytest.mark.parametrize("variances", ["pooled", "separate"])
def test_if_no_arm_differs_any_error_is_made_at_alpha(variances: str) -> None:
    random, replicates, spread = np.random.default_rng(9), 1000, (1.0, 1.0, 1.0, 1.0)
    if variances == "separate":
        spread = (1.0, 3.0, 0.5, 1.0)
    errors = 0
    for _ in range(replicates):
        arms = [
            Moments.of(random.normal(0, sd, n))
            for sd, n in zip(spread, (120, 80, 200, 60), strict=True)
        ]
        effects = dunnett(arms[0], arms[1:], variances=variances)  # type: ignore[arg-type]
        errors += min(numbers(effect)[1] for effect in effects) < 0.05
    assert abs(errors / replicates - 0.05) < 3 * sqrt(0.05 * 0.95 / replicates)
