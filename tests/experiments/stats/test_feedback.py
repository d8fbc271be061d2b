from dataclasses import replace
from math import nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.stats import Effect, Moments, ratio_test
from experiments.stats.feedback import FeedbackCounts, FeedbackEffect, feedback_effect
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector

Array = np.ndarray


def single(up: int, down: int, none: int) -> FeedbackCounts:
    """One turn per unit."""
    return FeedbackCounts.of(
        [1] * up + [0] * (down + none), [0] * up + [1] * down + [0] * none, [1] * (up + down + none)
    )


def users(random: np.random.Generator, units: int, up: float = 0.04, down: float = 0.02) -> Array:
    """Up, down and turns per user; users rate with very different frequency."""
    turns = random.poisson(20, units) + 1
    eager = random.gamma(0.5, 2, units)
    chances = np.clip(np.stack([up * eager, down * eager]), 0, 0.45)
    ups = random.binomial(turns, chances[0])
    downs = random.binomial(turns - ups, chances[1] / (1 - chances[0]))
    return np.stack([ups, downs, turns])


def number(value: float | None) -> float:
    assert value is not None
    return value


def pair(value: tuple[float, float] | None) -> tuple[float, float]:
    assert value is not None
    return value


CONTROL = FeedbackCounts.of(*users(np.random.default_rng(1), 900))
TREATMENT = FeedbackCounts.of(*users(np.random.default_rng(2), 800, up=0.05))


def test_the_vector_of_three_outcomes_holds() -> None:
    given_ = vector("feedback-3way-1")["input"]
    control, treatment = single(*given_["control"]), single(*given_["treatment"])
    effect = feedback_effect(control, treatment)
    # The vector's variance of a rate is p (1 - p) / n; ours is unbiased, n / (n - 1) times that.
    biased = number(effect.response_rate.statistic) * sqrt(control.n / (control.n - 1))
    agrees(
        "feedback-3way-1",
        {
            "naive_approval": effect.approval_by_arm,
            "response_rate": [(arm.mean[0] + arm.mean[1]) for arm in (control, treatment)],
            "response_p": 2 * stats.t.sf(biased, effect.response_rate.df),
            "net_per_turn": [(arm.mean[0] - arm.mean[1]) for arm in (control, treatment)],
            "net_diff_p": effect.net_rate.p_value,
            "three_way_chi2": effect.three_way.statistic,
            "three_way_p": effect.three_way.p_value,
            "manski_up": [effect.bounds.control, effect.bounds.treatment],
        },
    )


def test_approval_is_not_compared_where_the_response_rate_moved() -> None:
    effect = feedback_effect(single(80, 40, 9880), single(95, 70, 9835))
    assert not effect.comparable
    assert effect.approval.estimate is None
    assert effect.approval.reason == "not comparable: the response rate moved (p = 0.0073)"
    still = feedback_effect(single(80, 40, 9880), single(70, 52, 9878))
    assert still.comparable
    expected = ratio_test(
        Moments.of([1] * 80 + [0] * 9920, [1] * 120 + [0] * 9880),
        Moments.of([1] * 70 + [0] * 9930, [1] * 122 + [0] * 9878),
    )
    assert still.approval.estimate == pytest.approx(expected.estimate, rel=1e-9)
    assert still.approval.ci == pytest.approx(expected.ci, rel=1e-9)


def test_approval_of_turns_that_are_all_rated_needs_no_guardrail() -> None:
    effect = feedback_effect(single(60, 40, 0), single(80, 20, 0))
    assert effect.comparable
    assert effect.approval == effect.up_rate
    assert effect.three_way.df == 1
    assert effect.sensitivity.reason == "no tilt turns it round: too few turns are silent"


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 40), min_size=3, max_size=3),
    st.lists(st.integers(0, 40), min_size=2, max_size=2),
)
def test_with_one_turn_per_unit_and_equal_arms_the_joint_test_is_pearsons(
    one: list[int], other: list[int]
) -> None:
    total = sum(one)
    up = min(other[0], total)
    down = min(other[1], total - up)
    table = [one, [up, down, total - up - down]]
    joint = feedback_effect(single(*table[0]), single(*table[1])).three_way
    expected = stats.chi2_contingency(table, correction=False)
    assert joint.df == 2
    assert joint.statistic == pytest.approx(expected.statistic, rel=1e-9, abs=1e-9)
    assert joint.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def test_the_joint_test_is_a_quadratic_form_of_residuals_summed_by_user() -> None:
    random = np.random.default_rng(3)
    arms = users(random, 70), users(random, 110, up=0.06)
    joint = feedback_effect(FeedbackCounts.of(*arms[0]), FeedbackCounts.of(*arms[1])).three_way
    merged = np.hstack(arms)
    rates = merged[:2].sum(axis=1) / merged[2].sum()
    covariance = sum(
        ((arm[:2] - rates[:, None] * arm[2]) @ (arm[:2] - rates[:, None] * arm[2]).T)
        / arm[2].sum() ** 2
        for arm in arms
    )
    gap = arms[1][:2].sum(axis=1) / arms[1][2].sum() - arms[0][:2].sum(axis=1) / arms[0][2].sum()
    expected = gap @ np.linalg.solve(covariance, gap)
    assert joint.statistic == pytest.approx(expected, rel=1e-10)
    assert joint.p_value == pytest.approx(stats.chi2.sf(expected, 2), rel=1e-9)


def test_merged_parts_are_the_whole() -> None:
    table = users(np.random.default_rng(4), 300)
    whole = FeedbackCounts.of(*table)
    empty = FeedbackCounts.of([], [], [])
    parts = empty
    for part in np.array_split(table, 7, axis=1):
        parts += FeedbackCounts.of(*part)
    assert parts.n == whole.n
    assert parts.mean == pytest.approx(whole.mean, rel=1e-12)
    assert np.array(parts.cov) == pytest.approx(np.cov(table), rel=1e-10)
    assert whole + empty == whole


def test_rates_are_ratio_tests_clustered_by_user() -> None:
    random = np.random.default_rng(5)
    arms = users(random, 200), users(random, 150)
    effect = feedback_effect(
        FeedbackCounts.of(*arms[0]), FeedbackCounts.of(*arms[1]), weights=(1, -3)
    )
    for got, weigh in (
        (effect.up_rate, (1, 0)),
        (effect.down_rate, (0, 1)),
        (effect.response_rate, (1, 1)),
        (effect.net_rate, (1, -3)),
    ):
        expected = ratio_test(*(Moments.of(np.array(weigh) @ arm[:2], arm[2]) for arm in arms))
        assert got.estimate == pytest.approx(expected.estimate, rel=1e-10)
        assert got.p_value == pytest.approx(expected.p_value, rel=1e-8)


def test_swapped_arms_give_the_same_p_and_the_opposite_effect() -> None:
    for bounds in ("manski", "lee"):
        ahead = feedback_effect(CONTROL, TREATMENT, bounds=bounds)
        back = feedback_effect(TREATMENT, CONTROL, bounds=bounds)
        assert back.three_way.p_value == pytest.approx(ahead.three_way.p_value, rel=1e-12)
        low, high = pair(ahead.bounds.ci)
        assert pair(back.bounds.ci) == pytest.approx((-high, -low), rel=1e-9)
        assert back.sensitivity.gamma == pytest.approx(ahead.sensitivity.gamma, rel=1e-12)


def test_an_arm_that_cannot_be_compared_gives_its_reason_everywhere() -> None:
    def reasons(effect: FeedbackEffect) -> set[str | None]:
        own = (effect.three_way, effect.bounds, effect.sensitivity)
        return {part.reason for part in own}

    small = feedback_effect(single(1, 0, 0), single(5, 5, 90))
    assert reasons(small) == {"an arm has fewer than 2 units"}
    idle = feedback_effect(FeedbackCounts.of([0] * 5, [0] * 5, [0] * 5), single(5, 5, 90))
    assert reasons(idle) == {"an arm has no turns"}
    broken = feedback_effect(replace(CONTROL, mean=(nan, 0.0, 1.0)), TREATMENT)
    assert reasons(broken) == {"a moment is not finite"}


@pytest.mark.parametrize(
    ("up", "down", "turns", "field"),
    [
        ([1], [0], [1, 1], "turns"),
        ([1], [1], [1], "turns"),
        ([-1], [0], [1], "up"),
        ([0], [nan], [1], "down"),
        ([[1]], [0], [1], "up"),
    ],
)
def test_sums_that_cannot_be_are_refused(up: Array, down: Array, turns: Array, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        FeedbackCounts.of(up, down, turns)
    assert caught.value.errors[0].field == field


def test_bad_options_are_refused_by_name() -> None:
    for options, field in (
        ({"alpha": 1.5}, "alpha"),
        ({"bounds": "guess"}, "bounds"),
        ({"weights": (0, 0)}, "weights"),
        ({"weights": (nan, 1)}, "weights"),
    ):
        with pytest.raises(BadInput) as caught:
            feedback_effect(CONTROL, TREATMENT, **options)
        assert caught.value.errors[0].field == field
    with pytest.raises(BadInput):
        FeedbackCounts(-1, CONTROL.mean, CONTROL.cov)


@pytest.mark.slow
def test_the_joint_test_errs_at_5_percent_where_a_table_of_turns_errs_far_more() -> None:
    replicates, random = 2000, np.random.default_rng(20_261_130)
    errors = naive = 0
    for _ in range(replicates):
        arms = users(random, 300), users(random, 200)
        joint = feedback_effect(*(FeedbackCounts.of(*arm) for arm in arms)).three_way
        errors += number(joint.p_value) < 0.05
        sums = np.array([arm.sum(axis=1) for arm in arms])
        sums[:, 2] -= sums[:, 0] + sums[:, 1]
        naive += stats.chi2_contingency(sums, correction=False).pvalue < 0.05
    print(f"joint test {errors / replicates:.3f}, table of turns {naive / replicates:.3f}")
    assert abs(errors / replicates - 0.05) <= 3 * sqrt(0.05 * 0.95 / replicates)
    assert naive / replicates > 0.15


def test_an_effect_has_no_number_without_an_answer() -> None:
    effect: Effect = feedback_effect(single(80, 40, 9880), single(95, 70, 9835)).approval
    assert (effect.std_error, effect.df, effect.statistic, effect.p_value, effect.ci) == (None,) * 5
    assert (effect.n_control, effect.n_treatment) == (10_000, 10_000)
