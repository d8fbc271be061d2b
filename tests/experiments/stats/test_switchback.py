from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from experiments.stats.switchback import (
    block_means,
    switchback_effect,
    switchback_test,
)
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector


def by_hand(arms: Any, y: Any, m: int, p: float) -> float:
    total = 0.0
    for t in range(m, len(y)):
        window = arms[t - m : t + 1]
        total += y[t] * (all(window) / p ** (m + 1) - (not any(window)) / (1 - p) ** (m + 1))
    return total / (len(y) - m)


def test_the_published_case_holds() -> None:
    given_ = vector("switchback-ht-1")["input"]
    agrees(
        "switchback-ht-1",
        [
            switchback_effect(given_["w"], given_["y"], carryover=m, p=given_["p"]).estimate
            for m in given_["m"]
        ],
    )


@given(
    blocks=st.lists(st.tuples(st.integers(0, 1), st.floats(0.5, 9)), min_size=8, max_size=30),
    carryover=st.integers(0, 3),
    p=st.floats(0.2, 0.8),
)
def test_the_estimate_is_horvitz_and_thompsons(
    blocks: list[tuple[int, float]], carryover: int, p: float
) -> None:
    arms, y = [arm for arm, _ in blocks], [value for _, value in blocks]
    answer = switchback_effect(arms, y, carryover=carryover, p=p)
    if answer.reason is None:
        assert answer.estimate == pytest.approx(by_hand(arms, y, carryover, p), rel=1e-9)
        assert answer.method == "switchback, few blocks"


@pytest.mark.parametrize(("carryover", "p"), [(0, 0.5), (1, 0.5), (1, 0.4), (2, 0.6)])
def test_over_all_schedules_the_estimate_is_unbiased_and_its_variance_not_too_small(
    carryover: int, p: float
) -> None:
    blocks = 8
    base = np.array([5.0, 1.0, 4.0, 2.0, 8.0, 3.0, 6.0, 2.0])
    mean = square = variance = 0.0
    for arms in product((0, 1), repeat=blocks):
        chance = p ** sum(arms) * (1 - p) ** (blocks - sum(arms))
        # Each of the last carryover + 1 arms adds 1.
        y = [base[t] + sum(arms[max(0, t - carryover) : t + 1]) for t in range(blocks)]
        answer = switchback_effect(arms, y, carryover=carryover, p=p)
        estimate = answer.estimate if answer.estimate is not None else 0.0
        mean += chance * estimate
        square += chance * estimate**2
        variance += chance * (answer.std_error or 0.0) ** 2
    assert mean == pytest.approx(carryover + 1)
    assert variance >= square - mean**2
    # What is left over is the effects' own products, here known.
    terms = blocks - carryover
    pairs = sum(abs(s - t) <= carryover for s in range(terms) for t in range(terms))
    excess = pairs * (carryover + 1) ** 2 / terms**2
    assert variance == pytest.approx(square - mean**2 + excess)


def drawn_arms(blocks: int, p: float = 0.5) -> list[int]:
    return [int(arm) for arm in np.random.default_rng(7).random(blocks) < p]


def test_the_interval_excludes_0_when_p_is_below_alpha() -> None:
    arms = drawn_arms(200)
    for lift in np.linspace(0, 2, 21):
        y = [np.sin(t) + lift * arm for t, arm in enumerate(arms)]
        answer = switchback_effect(arms, y)
        assert answer.ci is not None
        assert answer.p_value is not None
        assert (answer.ci[0] > 0 or answer.ci[1] < 0) == (answer.p_value < 0.05)
        assert answer.method == "switchback"


@pytest.mark.parametrize(
    ("blocks", "carryover", "p", "few"),
    [(39, 0, 0.5, True), (40, 0, 0.5, False), (80, 1, 0.5, True), (81, 1, 0.5, False)],
)
def test_few_blocks_are_marked_by_the_design(
    blocks: int, carryover: int, p: float, few: bool
) -> None:
    arms = drawn_arms(blocks, p)
    answer = switchback_effect(arms, range(1, blocks + 1), carryover=carryover, p=p)
    assert answer.method.endswith("few blocks") == few


def test_without_an_honest_answer_it_says_why() -> None:
    answer = switchback_effect([0, 1] * 30, [0.0] * 60)
    assert answer.reason == "the windows' variance is not above 0"
    assert (answer.estimate, answer.p_value, answer.ci) == (None, None, None)
    assert switchback_effect([0, 1] * 30, [1.0] * 60, carryover=1).reason is not None


@pytest.mark.parametrize(("carryover", "p"), [(0, 0.5), (1, 0.5), (1, 0.3)])
def test_the_exact_p_counts_all_schedules(carryover: int, p: float) -> None:
    arms, y = [1, 1, 0, 0, 1, 0, 1, 1], [3.0, 5.0, 1.0, 2.0, 4.0, 2.0, 5.0, 6.0]
    real = abs(by_hand(arms, y, carryover, p))
    expected = sum(
        p ** sum(other) * (1 - p) ** (8 - sum(other))
        for other in product((0, 1), repeat=8)
        if abs(by_hand(other, y, carryover, p)) >= real - 1e-9
    )
    assert switchback_test(arms, y, carryover=carryover, p=p) == pytest.approx(expected)


def test_of_equal_outcomes_the_exact_p_is_the_sign_tests() -> None:
    arms = [1] * 9 + [0] * 3
    assert switchback_test(arms, [7.0] * 12) == pytest.approx(binomtest(9, 12).pvalue)


def test_drawn_schedules_give_nearly_the_exact_p_and_always_the_same() -> None:
    arms = drawn_arms(12)
    y = [arm + (t * 7 % 5) for t, arm in enumerate(arms)]
    exact, drawn = switchback_test(arms, y), switchback_test(arms, y, draws=4000)
    assert drawn == pytest.approx(exact, abs=0.03)
    assert switchback_test(arms, y, draws=4000) == drawn


def test_the_wash_in_of_every_block_is_dropped() -> None:
    means = block_means(
        [0, 0, 0, 1, 1, 1],
        [10.0, 400.0, 500.0, 299.9, 300.0, 3000.0],
        [99.0, 1.0, 3.0, 99.0, 5.0, 7.0],
        blocks=2,
        wash_in_s=300,
    )
    assert means.tolist() == [2.0, 6.0]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (([0, 1], [1.0, 2.0], [1.0, 2.0], 3, 0.0), "block"),
        (([0, 2], [1.0, 2.0], [1.0, 2.0], 2, 0.0), "block"),
        (([0, 1], [1.0, 2.0], [1.0, 2.0], 2, 1.5), "block"),
        (([0, 1], [1.0, 2.0], [1.0], 2, 0.0), "value"),
        (([0, 1], [1.0, float("nan")], [1.0, 2.0], 2, 0.0), "offset_s"),
        (([0, 1], [1.0, 2.0], [1.0, 2.0], 2, -1.0), "wash_in_s"),
    ],
)
def test_events_that_make_no_sense_are_refused_by_name(arguments: Any, field: str) -> None:
    block, offset_s, value, blocks, wash_in_s = arguments
    with pytest.raises(BadInput) as refused:
        block_means(block, offset_s, value, blocks=blocks, wash_in_s=wash_in_s)
    assert [error.field for error in refused.value.errors] == [field]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"outcome": [1.0]}, "outcome"),
        ({"outcome": [1.0, float("inf"), 2.0, 3.0]}, "outcome"),
        ({"assign": [0, 1, 2, 0]}, "assign"),
        ({"carryover": 4}, "carryover"),
        ({"carryover": -1}, "carryover"),
        ({"p": 1.0}, "p"),
    ],
)
def test_a_design_that_makes_no_sense_is_refused_by_name(
    changes: dict[str, Any], field: str
) -> None:
    whole: dict[str, Any] = {"assign": [0, 1, 1, 0], "outcome": [1.0, 2.0, 3.0, 4.0]}
    for ask in (switchback_effect, switchback_test):
        with pytest.raises(BadInput) as refused:
            ask(**whole | changes)
        assert [error.field for error in refused.value.errors] == [field]


def test_other_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInput, match="alpha"):
        switchback_effect([0, 1], [1.0, 2.0], alpha=0)
    with pytest.raises(BadInput, match="draws"):
        switchback_test([0, 1], [1.0, 2.0], draws=10)


@pytest.mark.slow
@pytest.mark.parametrize("lift", [0.0, 1.0])
@pytest.mark.parametrize(("blocks", "carryover"), [(40, 0), (84, 1), (168, 2), (336, 1)])
def test_the_interval_misses_at_most_5_percent_with_a_daily_cycle_and_skewed_noise(
    blocks: int, carryover: int, lift: float
) -> None:
    replicates = 2000
    random = np.random.default_rng(20_261_210)
    cycle = np.sin(np.arange(blocks) * 2 * np.pi / 24)
    missed = by_test = 0
    for _ in range(replicates):
        arms = (random.random(blocks) < 0.5).astype(int)
        felt = np.convolve(arms, np.ones(carryover + 1) / (carryover + 1))[:blocks]
        y = cycle + random.exponential(size=blocks) - 1 + lift * felt
        answer = switchback_effect(arms.tolist(), y.tolist(), carryover=carryover)
        assert answer.ci is not None
        missed += not answer.ci[0] <= lift <= answer.ci[1]
        if not lift:
            p_value = switchback_test(arms.tolist(), y.tolist(), carryover=carryover, draws=199)
            by_test += p_value <= 0.05
    print(
        f"\n{blocks} blocks, carry-over {carryover}, lift {lift}: missed "
        f"{missed / replicates:.3f}, exact test {by_test / replicates:.3f}"
    )
    assert missed / replicates <= 0.05 + 3 * sqrt(0.05 * 0.95 / replicates)
    assert by_test / replicates <= 0.05 + 3 * sqrt(0.05 * 0.95 / replicates)
