from math import sqrt

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from experiments.stats import Moments, ratio_test
from experiments.stats.clusters import cr2_test
from ingest.errors import BadInput
from tests.experiments.answers import answered
from tests.experiments.vectors import vector

Floats = NDArray[np.float64]
Turns = list[Floats]


def sums(turns: Turns) -> Floats:
    return np.array([(unit.sum(), len(unit)) for unit in turns])


def drawn(random: np.random.Generator, units: int, *, sigma: float = 1.0) -> Turns:
    """Turn values that are no 0 or 1, correlated within their unit."""
    sizes = np.ceil(random.lognormal(1.0, sigma, units)).astype(int)
    return [random.normal(random.normal(0.5, 0.4), 1.0, size) for size in sizes]


def voted(random: np.random.Generator, replicates: int, users: int) -> Floats:
    """(thumbs up, turns) of users whose turns are lognormal (σ = 1.2, mean 20) and correlated 0.1."""
    turns = np.ceil(random.lognormal(np.log(20) - 0.72, 1.2, (replicates, 2, users)))
    liking = random.beta(0.3 * 9, 0.7 * 9, turns.shape)
    return np.stack((random.binomial(turns.astype(int), liking), turns), axis=-1)


def root(matrix: Floats, power: float) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    powered: Floats = vectors @ np.diag(values**power) @ vectors.T
    return powered


def matrices(control: Turns, treatment: Turns, *, adjusted: bool = True) -> tuple[float, float]:
    """s.e. of the arm's coefficient, and Imbens and Kolesár's df, by the papers' matrices of turns."""
    units = control + treatment
    outcome = np.concatenate(units)
    arm = np.repeat([0.0, 1.0], [sum(map(len, control)), sum(map(len, treatment))])
    design = np.column_stack((np.ones_like(arm), arm))
    bread = np.linalg.inv(design.T @ design)
    residual_maker = np.eye(len(outcome)) - design @ bread @ design.T
    residuals = residual_maker @ outcome
    unit = np.repeat(np.arange(len(units)), [len(each) for each in units])
    rows, scores = [], []
    for i in range(len(units)):
        own = unit == i
        own_maker = residual_maker[np.ix_(own, own)]
        lever = root(own_maker, -0.5) if adjusted else np.eye(own.sum())
        weights = (design[own] @ bread[:, 1]) @ lever
        scores.append(weights @ residuals[own])
        rows.append(residual_maker[:, own] @ weights)
    within, between = working_model(units, residuals, unit, residual_maker)
    model = within * np.eye(len(unit)) + between * (unit[:, None] == unit)
    form = np.array(rows) @ model @ np.array(rows).T
    return sqrt(np.square(scores).sum()), np.trace(form) ** 2 / np.square(form).sum()


def working_model(
    units: Turns, residuals: Floats, unit: NDArray[np.int64], maker: Floats
) -> tuple[float, float]:
    """The two variances whose E s² / (1 - h) agree in sum, and in sum over n."""
    sizes = np.array([len(each) for each in units], dtype=float)
    squares = []
    for i in range(len(units)):
        own = unit == i
        hat = 1 - maker[np.ix_(own, own)].sum() / own.sum()
        squares.append(residuals[own].sum() ** 2 / (1 - hat))
    sides = np.array([[sizes.sum(), (sizes**2).sum()], [len(sizes), sizes.sum()]])
    within, between = np.linalg.solve(sides, [sum(squares), (squares / sizes).sum()])
    if between <= 0:
        return 1.0, 0.0
    return (within, between) if within > 0 else (0.0, 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_unit_sums_give_what_the_matrices_of_turns_give(seed: int) -> None:
    random = np.random.default_rng(seed)
    control, treatment = drawn(random, 5), drawn(random, 9)
    effect = cr2_test(sums(control), sums(treatment))
    std_error, df = matrices(control, treatment)
    assert effect.std_error == pytest.approx(std_error, rel=1e-10)
    assert effect.df == pytest.approx(df, rel=1e-9)
    assert effect.estimate == pytest.approx(
        np.concatenate(treatment).mean() - np.concatenate(control).mean(), rel=1e-10
    )


def test_the_matrices_are_statsmodels_cr0_and_cr1_where_they_do_not_adjust() -> None:
    given_ = vector("cluster-robust-1")
    control, treatment = (
        [np.array(user, dtype=float) for user in given_["input"]["users"][arm]]
        for arm in ("control", "treatment")
    )
    cr0, _ = matrices(control, treatment, adjusted=False)
    expected = given_["expected"]
    assert cr0 == pytest.approx(expected["se_cr0_equals_delta_ddof0"], rel=1e-6)
    users, turns = len(control + treatment), sum(map(len, control + treatment))
    cr1 = cr0 * sqrt(users / (users - 1) * (turns - 1) / (turns - 2))
    assert cr1 == pytest.approx(expected["se_cr1_stata"], rel=1e-6)
    arm = np.repeat([0.0, 1.0], [sum(map(len, control)), sum(map(len, treatment))])
    clusters = np.repeat(np.arange(users), [len(user) for user in control + treatment])
    for correction, error in ((False, cr0), (True, cr1)):
        fit = sm.OLS(np.concatenate(control + treatment), sm.add_constant(arm)).fit(
            cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": correction}
        )
        assert error == pytest.approx(float(fit.bse[1]), rel=1e-10)
    effect = cr2_test(sums(control), sums(treatment))
    assert effect.estimate == pytest.approx(expected["diff"], rel=1e-6)
    std_error, df = matrices(control, treatment)
    assert (effect.std_error, effect.df) == pytest.approx((std_error, df), rel=1e-9)
    assert std_error > expected["se_delta_ddof1"], "the largest users get the largest correction"


def test_units_of_one_size_have_the_delta_methods_variance_and_the_classical_df() -> None:
    random = np.random.default_rng(1)
    control, treatment = random.normal(3, 1, 8), random.normal(3, 1, 5)
    effect = cr2_test(*(np.column_stack((arm, np.ones(len(arm)))) for arm in (control, treatment)))
    delta = ratio_test(Moments.of(control), Moments.of(treatment))
    assert (effect.estimate, effect.std_error) == pytest.approx(
        (delta.estimate, delta.std_error), rel=1e-12
    )
    # Imbens & Kolesár 2016, section II: Welch's df with equal variances put in.
    expected = (1 / 8 + 1 / 5) ** 2 / (1 / 8**2 / 7 + 1 / 5**2 / 4)
    assert effect.df == pytest.approx(expected, rel=1e-12)


@given(seed=st.integers(0, 2**32 - 1), c=st.floats(0.001, 1000), alpha=st.floats(0.001, 0.5))
def test_swapped_arms_flip_it_and_other_units_of_the_metric_scale_it(
    seed: int, c: float, alpha: float
) -> None:
    random = np.random.default_rng(seed)
    control, treatment = sums(drawn(random, 4)), sums(drawn(random, 6))
    estimate, std_error, p_value, ci = answered(cr2_test(control, treatment, alpha=alpha))
    swapped = answered(cr2_test(treatment, control, alpha=alpha))
    assert swapped[:3] == pytest.approx((-estimate, std_error, p_value), rel=1e-9)
    scaled = answered(cr2_test(control * (c, 1), treatment * (c, 1), alpha=alpha))
    assert scaled[:2] == pytest.approx((c * estimate, c * std_error), rel=1e-9)
    assert scaled[2] == pytest.approx(p_value, rel=1e-6)
    if abs(p_value - alpha) > 1e-9:
        assert (ci[0] > 0 or ci[1] < 0) == (p_value < alpha)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_lifts_interval_agrees_with_the_absolute_test(seed: int) -> None:
    random = np.random.default_rng(seed)
    control, treatment = voted(random, 1, 12)[0]
    absolute = cr2_test(control, treatment)
    lift = cr2_test(control, treatment, scale="relative")
    assert absolute.ci is not None
    if lift.reason is None:
        assert lift.ci is not None
        assert lift.p_value == absolute.p_value
        assert (lift.ci[0] > 0, lift.ci[1] < 0) == (absolute.ci[0] > 0, absolute.ci[1] < 0)


def test_a_dominant_unit_costs_degrees_of_freedom() -> None:
    random = np.random.default_rng(3)
    even = drawn(random, 12, sigma=0.1)
    heavy = [*even[:-1], random.normal(0.9, 1, 400)]
    spread, dominated = cr2_test(sums(even), sums(even[::-1])), cr2_test(sums(even), sums(heavy))
    assert spread.df is not None
    assert dominated.df is not None
    assert spread.df > 20
    assert dominated.df < 12


@pytest.mark.parametrize(
    ("units", "reason"),
    [
        ([], "an arm has fewer than 2 units"),
        ([(1, 2)], "an arm has fewer than 2 units"),
        ([(1, 0), (2, 0)], "an arm's denominator is 0"),
        ([(1, 5), (2, 0)], "one unit has all of an arm's denominator"),
        ([(1, 2), (2, 4), (5, 10)], "neither arm varies"),
        ([(1e200, 1), (2e200, 1)], "a number is too large"),
    ],
)
def test_without_an_honest_answer_it_says_why(
    units: list[tuple[float, float]], reason: str
) -> None:
    constant = [(0.3, 1), (0.9, 3), (0.3, 1)]
    for pair in ((units, constant), (constant, units)):
        effect = cr2_test(*pair)
        assert effect.reason == reason
        assert (effect.estimate, effect.std_error, effect.p_value, effect.ci) == (None,) * 4


def test_a_control_that_may_be_0_has_no_lift() -> None:
    control, treatment = [(-1, 1), (1, 1), (0.1, 1)], [(3, 1), (4, 1), (5, 1)]
    assert cr2_test(control, treatment).reason is None
    lift = cr2_test(control, treatment, scale="relative")
    assert lift.reason == "the control may be 0, so its lift is undefined"


@pytest.mark.parametrize(
    ("units", "match"),
    [
        ([1.0, 2.0], "control_units"),
        ([(1, 2, 3)], "control_units"),
        ([(1, float("nan")), (1, 2)], "finite"),
        ([(1, -1), (1, 2)], "negative"),
    ],
)
def test_sums_that_are_none_are_refused(units: ArrayLike, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        cr2_test(units, [(1, 2), (2, 2)])


@pytest.mark.parametrize("alpha", [0.0, 1.5, float("nan")])
def test_an_alpha_that_is_no_error_rate_is_refused(alpha: float) -> None:
    with pytest.raises(BadInput, match="alpha"):
        cr2_test([(1, 2), (2, 2)], [(1, 2), (2, 2)], alpha=alpha)


@pytest.mark.slow
@pytest.mark.parametrize(("users", "cr0_at_least"), [(10, 0.14), (20, 0.11), (50, 0.075)])
def test_with_few_users_it_errs_near_5_percent_where_cr0_errs_far_more(
    users: int, cr0_at_least: float
) -> None:
    replicates = 4000
    drawn_ = voted(np.random.default_rng(20_261_130 + users), replicates, users)
    p_values = np.array([cr2_test(*arms).p_value for arms in drawn_])
    tops, turns = drawn_[..., 0], drawn_[..., 1]
    ratios = tops.sum(-1) / turns.sum(-1)
    residuals = tops - ratios[..., None] * turns
    cr0 = np.sqrt(((residuals**2).sum(-1) / turns.sum(-1) ** 2).sum(-1))
    cr0_errors = float((2 * norm.sf(np.abs(ratios[:, 1] - ratios[:, 0]) / cr0) < 0.05).mean())
    errors = float((p_values < 0.05).mean())
    print(f"\n{users} users an arm: CR2 {errors:.1%}, CR0 {cr0_errors:.1%}")
    assert cr0_errors > cr0_at_least
    assert 0.035 < errors < 0.07
