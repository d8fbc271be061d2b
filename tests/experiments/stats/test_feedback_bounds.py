from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from experiments.stats.feedback import FeedbackCounts, feedback_effect

Array = NDArray[np.float64]


def single(up: int, down: int, none: int) -> FeedbackCounts:
    """One turn per unit."""
    return FeedbackCounts.of(
        [1] * up + [0] * (down + none), [0] * up + [1] * down + [0] * none, [1] * (up + down + none)
    )


def number(value: float | None) -> float:
    assert value is not None
    return value


def pair(value: tuple[float, float] | None) -> tuple[float, float]:
    assert value is not None
    return value


def test_lees_bounds_are_those_of_trimming_the_surplus_raters() -> None:
    effect = feedback_effect(single(60, 40, 900), single(90, 60, 850), bounds="lee")
    raters = np.array([1] * 90 + [0] * 60)
    worst, best = np.sort(raters)[:100].mean(), np.sort(raters)[50:].mean()
    assert pair(effect.bounds.treatment) == pytest.approx((worst, best))
    assert pair(effect.bounds.control) == pytest.approx((0.6, 0.6))
    assert pair(effect.bounds.effect) == pytest.approx((worst - 0.6, best - 0.6))


@pytest.mark.parametrize(
    ("control", "treatment"),
    [
        ((60, 40, 900), (90, 60, 850)),
        ((60, 40, 900), (110, 15, 875)),
        ((60, 40, 900), (30, 110, 860)),
    ],
)
def test_errors_of_lees_bounds_are_the_jackknifes(
    control: tuple[int, int, int], treatment: tuple[int, int, int]
) -> None:
    def ends(one: tuple[int, ...], two: tuple[int, ...]) -> Array:
        (up, down, _), (ups, downs, _) = (np.array(arm) / sum(arm) for arm in (one, two))
        rated = up + down
        edges = np.array([max(0.0, 1 - downs / rated), min(1.0, ups / rated)])
        return np.asarray(edges - up / rated)

    def jackknife(arm: tuple[int, ...], *, first: bool) -> Array:
        variance, whole = np.zeros(2), ends(control, treatment)
        for kind in range(3):
            less = tuple(count - (at == kind) for at, count in enumerate(arm))
            moved = ends(less, treatment) if first else ends(control, less)
            variance += arm[kind] * (moved - whole) ** 2
        return variance

    expected = np.sqrt(jackknife(control, first=True) + jackknife(treatment, first=False))
    found = feedback_effect(single(*control), single(*treatment), bounds="lee", alpha=0.1).bounds
    (low, high), ci = pair(found.effect), pair(found.ci)
    assert (low, high) == pytest.approx(ends(control, treatment))
    # Bounds far apart have one-sided quantiles.
    z = stats.norm.ppf(0.9)
    assert np.array([low - ci[0], ci[1] - high]) / z == pytest.approx(expected, rel=0.02)


def test_bounds_that_meet_have_the_two_sided_interval() -> None:
    found = feedback_effect(single(60, 40, 0), single(50, 50, 0)).bounds
    low, high = pair(found.effect)
    assert low == pytest.approx(high)
    error = sqrt((0.24 + 0.25) / 99)
    assert low - pair(found.ci)[0] == pytest.approx(stats.norm.ppf(0.975) * error, rel=1e-6)


def test_gamma_is_the_tilt_at_which_both_arms_please_alike() -> None:
    gamma = number(feedback_effect(single(80, 40, 9880), single(95, 70, 9835)).sensitivity.gamma)

    def satisfied(approval: float, tilt: float) -> float:
        return approval / (approval + tilt * (1 - approval))

    assert satisfied(80 / 120, gamma) == pytest.approx(satisfied(95 / 165, 1 / gamma))
    same = feedback_effect(single(80, 40, 9880), single(40, 20, 9940)).sensitivity
    assert same.gamma == pytest.approx(1)


def test_gamma_moves_no_share_out_of_its_bounds() -> None:
    # 95 % of the control rated: it pleased at most 45 + 5 of 100, the treatment at least 30.
    control, treatment = single(45, 50, 5), single(30, 2, 68)
    gamma = number(feedback_effect(control, treatment).sensitivity.gamma)
    free = sqrt((30 / 2) / (45 / 50))
    assert gamma > free
    assert gamma == pytest.approx((30 / 2) / (50 / 50))


def test_an_arm_without_thumbs_gives_reasons_not_numbers() -> None:
    effect = feedback_effect(single(0, 0, 500), single(8, 4, 488), bounds="lee")
    assert effect.approval_by_arm[0] is None
    assert effect.approval_by_arm[1] == pytest.approx(2 / 3)
    assert effect.approval.reason == "an arm's denominator is 0"
    assert effect.bounds.reason == "an arm has no thumbs"
    assert effect.sensitivity.reason == "an arm has no thumbs up, or none down"
    assert effect.three_way.df == 2
    silent = feedback_effect(single(0, 0, 500), single(0, 0, 400))
    assert silent.three_way.reason == "nothing varies"
    assert silent.up_rate.reason == "neither arm varies"


@pytest.mark.slow
def test_lees_interval_covers_those_who_rate_in_either_arm() -> None:
    replicates, random = 2000, np.random.default_rng(7)
    always, extra, likes, liked = 0.05, 0.03, 0.6, 0.7
    covered = 0
    for _ in range(replicates):
        up = random.multinomial(4000, [always * likes, always * (1 - likes), 1 - always])
        # Those who only rate the treatment are all delighted, so the upper bound is the truth's.
        other = random.multinomial(
            4000, [always * liked + extra, always * (1 - liked), 1 - always - extra]
        )
        low, high = pair(feedback_effect(single(*up), single(*other), bounds="lee").bounds.ci)
        covered += low <= liked - likes <= high
    print(f"coverage {covered / replicates:.3f}")
    assert covered / replicates >= 0.95 - 3 * sqrt(0.05 * 0.95 / replicates)
