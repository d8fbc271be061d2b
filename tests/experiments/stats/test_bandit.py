from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from experiments.stats.bandit import bandit_weights, best_arm_probabilities
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector


@dataclass(frozen=True)
class Normal:
    mean: float
    sd: float


posteriors = st.lists(
    st.builds(Normal, st.floats(-3, 3), st.floats(0.05, 3)), min_size=2, max_size=5
)
THREE = [Normal(0.1, 0.01), Normal(0.12, 0.012), Normal(0.11, 0.008)]


def test_the_published_case_holds() -> None:
    given_ = vector("bandit-1")["input"]
    arms = [
        Normal(mean, sd)
        for mean, sd in zip(given_["posterior_mean"], given_["posterior_sd"], strict=True)
    ]
    agrees(
        "bandit-1",
        {
            "best_arm": best_arm_probabilities(arms).tolist(),
            "weights": bandit_weights(arms, floor=given_["floor"]).tolist(),
        },
    )


@given(mean=st.floats(-5, 5), first=st.floats(0.001, 50), second=st.floats(0.001, 50))
def test_of_two_arms_it_is_a_normal_tail(mean: float, first: float, second: float) -> None:
    chances = best_arm_probabilities([Normal(0, first), Normal(mean, second)])
    expected = norm.cdf(mean / (first**2 + second**2) ** 0.5)
    assert chances[1] == pytest.approx(expected, abs=1e-11)


def test_arms_known_to_very_different_precision_do_not_spoil_it() -> None:
    arms = [Normal(0, 1), Normal(0.5, 1e-3), Normal(0.4995, 2e-4)]
    # Adaptive quadrature told where the narrow arms are.
    expected = quad(
        lambda x: norm.pdf(x) * norm.cdf(x, 0.5, 1e-3) * norm.cdf(x, 0.4995, 2e-4),
        0.49,
        12,
        points=[0.4975, 0.499, 0.4995, 0.5, 0.501, 0.5025, 0.51],
        epsabs=1e-13,
        limit=500,
    )[0]
    assert best_arm_probabilities(arms)[0] == pytest.approx(expected, abs=1e-10)


@given(arms=posteriors, scale=st.floats(1e-6, 1e6), shift=st.floats(-100, 100))
def test_neither_unit_nor_zero_point_matters(
    arms: list[Normal], scale: float, shift: float
) -> None:
    moved = [Normal(scale * (arm.mean + shift), scale * arm.sd) for arm in arms]
    assert best_arm_probabilities(moved) == pytest.approx(best_arm_probabilities(arms), abs=1e-9)


@given(arms=posteriors)
def test_lower_is_better_is_the_mirrored_question(arms: list[Normal]) -> None:
    mirrored = [Normal(-arm.mean, arm.sd) for arm in arms]
    for policy in ("thompson", "top-two"):
        assert bandit_weights(arms, policy=policy, lower_is_better=True) == pytest.approx(
            bandit_weights(mirrored, policy=policy),
            abs=1e-12,
        )


@given(arms=posteriors, floor=st.floats(0, 0.4), policy=st.sampled_from(["thompson", "top-two"]))
def test_shares_sum_to_1_and_keep_the_floor(arms: list[Normal], floor: float, policy: Any) -> None:
    weights = bandit_weights(arms, policy=policy, floor=floor)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert weights.min() >= min(floor, 1 / len(arms)) - 1e-15


def test_the_floor_is_added_not_cut_at() -> None:
    best = best_arm_probabilities(THREE)
    assert bandit_weights(THREE, floor=0.1) == pytest.approx(0.1 + 0.7 * best)


def test_a_floor_that_leaves_nothing_makes_all_shares_equal() -> None:
    assert bandit_weights(THREE, floor=0.5) == pytest.approx(1 / 3)


def test_top_two_of_two_arms_is_one_half_each() -> None:
    for lower_is_better in (False, True):
        weights = bandit_weights(
            [Normal(100, 5), Normal(190, 9)], policy="top-two", lower_is_better=lower_is_better
        )
        assert weights == pytest.approx([0.5, 0.5])


def test_top_two_is_how_often_leader_or_challenger_is_drawn() -> None:
    # Russo's procedure by hand: draw the best; half the time draw again until another is best.
    random = np.random.default_rng(20_261_208)
    means, sds = [arm.mean for arm in THREE], [arm.sd for arm in THREE]
    best = random.normal(means, sds, (1_000_000, 3)).argmax(axis=1)
    first, second = best[:500_000], best[500_000:]
    differ = first != second  # of the pairs that agree another second would be drawn
    leaders = np.bincount(first, minlength=3) / len(first)
    challengers = np.array(
        [
            sum(
                leaders[j]
                * (differ & (first == j) & (second == i)).sum()
                / (differ & (first == j)).sum()
                for j in range(3)
            )
            for i in range(3)
        ]
    )
    drawn = (leaders + challengers) / 2
    weights = bandit_weights(THREE, policy="top-two", floor=0)
    assert weights == pytest.approx(drawn, abs=4e-3)


def test_the_two_lowest_of_three_latencies_share_the_top_two() -> None:
    # GrowthBook's engine at 8f1db4456915 takes ranks 2 and 3 where lower is better.
    latencies = [Normal(900, 5), Normal(910, 5), Normal(2000, 5)]
    weights = bandit_weights(latencies, policy="top-two", floor=0, lower_is_better=True)
    assert weights == pytest.approx([0.5, 0.5, 0], abs=1e-12)


def test_a_leader_beyond_doubt_shares_with_its_likeliest_challenger() -> None:
    weights = bandit_weights([Normal(20, 1), Normal(1, 1), Normal(0, 1)], policy="top-two", floor=0)
    assert weights[0] == pytest.approx(0.5)
    assert weights[1] > 0.49
    hopeless = bandit_weights(
        [Normal(1e6, 1), Normal(1, 1), Normal(0, 1)], policy="top-two", floor=0
    )
    assert hopeless == pytest.approx([0.5, 0.25, 0.25])


def test_weights_do_not_move_before_every_arm_has_100_units() -> None:
    assert bandit_weights(THREE, units=[500, 99, 500]) == pytest.approx(1 / 3)
    moved = bandit_weights(THREE, units=[500, 100, 500])
    assert moved == pytest.approx(bandit_weights(THREE))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"posteriors": []}, "posteriors"),
        ({"posteriors": [Normal(float("nan"), 1)]}, "posteriors"),
        ({"posteriors": [Normal(0, 0)]}, "posteriors"),
        ({"posteriors": THREE, "floor": -0.1}, "floor"),
        ({"posteriors": THREE, "floor": float("nan")}, "floor"),
        ({"posteriors": THREE, "policy": "ucb"}, "policy"),
        ({"posteriors": THREE, "units": [1, 2]}, "units"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(
    arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        bandit_weights(**arguments)
    assert [error.field for error in refused.value.errors] == [field]
