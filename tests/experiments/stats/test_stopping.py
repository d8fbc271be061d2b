from itertools import pairwise
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from experiments.stats import Effect, ratio_test
from experiments.stats.group_sequential import (
    classical_bounds,
    group_sequential_bounds,
)
from experiments.stats.moments import Moments
from experiments.stats.stopping import conditional_power, repeated_interval, stage_wise
from ingest.errors import BadInput

FIFTHS = [0.2, 0.4, 0.6, 0.8, 1.0]


def effect(z: float, std_error: float = 0.05) -> Effect:
    estimate = z * std_error
    return Effect(estimate, std_error, inf, z, 0.5, (0, 1), 0.05, "absolute", "x", 900, 900)


def test_questions_that_make_no_sense_are_refused() -> None:
    bounds = group_sequential_bounds(FIFTHS, sides=1)
    for look in (0, 6):
        with pytest.raises(BadInput, match="look"):
            repeated_interval(effect(1), bounds, look)
    with pytest.raises(BadInput, match="no look follows"):
        conditional_power(effect(1), bounds, 5)
    with pytest.raises(BadInput, match="lower"):
        conditional_power(effect(1), bounds, 2, direction="lower")
    with pytest.raises(BadInput, match="truth"):
        conditional_power(effect(1), bounds, 2, truth=inf)


@given(z=st.floats(-6, 6), look=st.integers(1, 5))
def test_a_repeated_interval_excludes_0_when_the_bound_is_crossed(z: float, look: int) -> None:
    bounds = classical_bounds(5, design="pocock")
    answer = repeated_interval(effect(z), bounds, look)
    assert answer.ci is not None
    assert answer.crossed == (abs(z) > bounds.upper[look - 1])
    assert answer.crossed == (answer.ci[0] > 0 or answer.ci[1] < 0)


def test_a_look_without_an_answer_says_why() -> None:
    none = ratio_test(Moments(500, 1.0, 0.0), Moments(500, 1.0, 0.0))
    bounds = group_sequential_bounds([0.5, 1.0, 1.1])
    assert repeated_interval(none, bounds, 1).reason == "neither arm varies"
    assert stage_wise(none, bounds, 1).reason == "neither arm varies"
    assert conditional_power(none, bounds, 1) is None
    assert "no error is spent" in str(repeated_interval(effect(9), bounds, 3).reason)
    assert "not stopped" in str(stage_wise(effect(1), bounds, 1).reason)


@given(z=st.floats(-6, 6), alpha=st.floats(0.01, 0.2))
def test_a_test_of_one_look_has_the_plain_estimate_and_interval(z: float, alpha: float) -> None:
    answer = stage_wise(effect(z), group_sequential_bounds([1.0], alpha=alpha), 1)
    half = norm.isf(alpha / 2) * 0.05
    assert answer.estimate == pytest.approx(z * 0.05, abs=1e-8)
    assert answer.ci == pytest.approx((z * 0.05 - half, z * 0.05 + half), abs=1e-8)
    assert answer.p_value == pytest.approx(2 * norm.sf(abs(z)), rel=1e-6)


def test_at_its_bound_the_p_is_the_error_spent() -> None:
    for sides in (1, 2):
        bounds = group_sequential_bounds(FIFTHS, sides=sides)
        for look, (upper, spent) in enumerate(zip(bounds.upper, bounds.spent, strict=True), 1):
            p_value = stage_wise(effect(upper), bounds, look).p_value
            assert p_value == pytest.approx(spent, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(z=st.floats(2.1, 5), look=st.integers(3, 5), sign=st.sampled_from([-1, 1]))
def test_after_an_early_stop_the_estimate_is_drawn_towards_0(
    z: float, look: int, sign: int
) -> None:
    bounds = group_sequential_bounds(FIFTHS)
    if z < bounds.upper[look - 1]:
        return
    answer = stage_wise(effect(sign * z), bounds, look)
    assert answer.estimate is not None
    assert answer.ci is not None
    assert 0 < sign * answer.estimate < z * 0.05
    assert answer.ci[0] < answer.estimate < answer.ci[1]
    assert answer.p_value is not None
    assert (answer.ci[0] > 0 or answer.ci[1] < 0) == (answer.p_value < 0.05)
    mirrored = stage_wise(effect(-sign * z), bounds, look)
    assert mirrored.estimate == pytest.approx(-answer.estimate, rel=1e-6)


def test_a_huge_z_at_a_late_look_still_has_an_answer() -> None:
    bounds = group_sequential_bounds(FIFTHS, sides=1, alpha=0.025)
    answer = stage_wise(effect(-30), bounds, 5)
    assert answer.estimate == pytest.approx(-1.5, abs=1e-3)
    assert answer.p_value == pytest.approx(1)
    assert "too far" in str(stage_wise(effect(-31), bounds, 5).reason)
    two_sided = stage_wise(effect(300), group_sequential_bounds(FIFTHS), 3)
    assert two_sided.p_value == pytest.approx(0.00076, rel=0.05)  # what the first two looks spend


def test_conditional_power_before_the_last_look_is_a_normal_tail() -> None:
    # From z = 1 at t = 0.5 to the last bound: (c - 1·√½ - θ/2) / √½, with θ the plan's drift.
    bounds = group_sequential_bounds([0.5, 1.0])
    last = bounds.upper[1]
    for direction, sign in (("upper", 1), ("lower", -1)):
        for truth, drift in ((0.1, 0.1 / 0.05 / sqrt(0.5)), (None, sign / sqrt(0.5))):
            answer = conditional_power(
                effect(sign),
                bounds,
                1,
                truth=None if truth is None else sign * truth,
                direction=direction,  # type: ignore[arg-type]
            )
            need = last - sqrt(0.5) - abs(drift) / 2
            assert answer == pytest.approx(norm.sf(need / sqrt(0.5)), rel=1e-9)


def test_conditional_power_counts_every_later_look() -> None:
    random = np.random.default_rng(20_261_204)
    bounds = group_sequential_bounds(FIFTHS, spending="pocock")
    replicates = 100_000
    s, alive = np.full(replicates, sqrt(0.4)), np.ones(replicates, dtype=bool)
    wins = 0
    drift = 0.1 / 0.05 / sqrt(0.4)
    for before, after in pairwise([0.4, 0.6, 0.8, 1.0]):
        s = s + random.normal(drift * (after - before), sqrt(after - before), replicates)
        bound = bounds.upper[FIFTHS.index(after)] * sqrt(after)
        wins += int((alive & (s > bound)).sum())
        alive &= np.abs(s) < bound
    rate = wins / replicates
    answer = conditional_power(effect(1.0), bounds, 2, truth=0.1)
    assert answer == pytest.approx(rate, abs=4 * sqrt(rate * (1 - rate) / replicates))


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.0, 1.5, 3.24, 5.0])
def test_the_estimate_after_stopping_is_median_unbiased_and_its_interval_covers(
    drift: float,
) -> None:
    replicates = 2000
    bounds = group_sequential_bounds(FIFTHS)
    random = np.random.default_rng(20_261_206)
    paths = random.normal(drift * 0.2, sqrt(0.2), (replicates, 5)).cumsum(axis=1)
    above = covered = plain = 0
    for path in paths:
        z = path / np.sqrt(FIFTHS)
        crossed = np.flatnonzero(np.abs(z) > bounds.upper)
        look = int(crossed[0]) if len(crossed) else 4
        error = 1 / sqrt(FIFTHS[look])
        answer = stage_wise(effect(float(z[look]), error), bounds, look + 1)
        assert answer.ci is not None
        assert answer.estimate is not None
        above += answer.estimate > drift
        plain += z[look] * error > drift
        covered += answer.ci[0] <= drift <= answer.ci[1]
    print(
        f"\ndrift {drift}: above the truth {above / replicates:.3f} (plain "
        f"{plain / replicates:.3f}), covered {covered / replicates:.3f}"
    )
    assert abs(above / replicates - 0.5) < 3 * 0.5 / sqrt(replicates)
    assert covered / replicates == pytest.approx(0.95, abs=3 * sqrt(0.05 * 0.95 / replicates))
