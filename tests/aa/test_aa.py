"""The A/A matrix asks the tests that users get; a few of its cells, `make aa` runs them all."""

import numpy as np
import pytest

from benchmarks import aa
from benchmarks.aa_answers import Q, newcombe, quantile_answers
from benchmarks.aa_cells import METRICS, Users, cells, groups
from benchmarks.aa_controls import controls
from benchmarks.aa_histories import Counts, Pool, pool
from experiments.stats import QuantileSummary, proportion_test, quantile_test


@pytest.fixture(scope="module")
def idle() -> Pool:
    return pool("zero inflated", 0.3, seed=1)


def summary(people: Pool, users: Counts) -> QuantileSummary:
    starts = np.cumsum(people.turns) - people.turns
    values = [people.values[starts[user] : starts[user] + people.turns[user]] for user in users]
    places = np.repeat(np.arange(len(users)), people.turns[users])
    return QuantileSummary.of(np.concatenate(values), places, Q)


def test_quantiles_of_the_matrix_are_those_of_the_engine(idle: Pool) -> None:
    arms = [300, 200]
    answers = quantile_answers(idle, arms, looks=2, replicates=3, random=np.random.default_rng(2))
    random = np.random.default_rng(2)
    drawn = [random.integers(0, len(idle.turns), (3, units)) for units in arms]
    for replicate in range(3):
        for look in range(2):
            users = [
                each[replicate, : units * (look + 1) // 2]
                for each, units in zip(drawn, arms, strict=True)
            ]
            control, treatment = (summary(idle, each) for each in users)
            effect = quantile_test(control, treatment, Q)
            looks = answers.looks
            place = replicate, look, 0
            assert effect.estimate == pytest.approx(looks.estimate[place], rel=1e-9)
            assert effect.std_error == pytest.approx(looks.std_error[place], rel=1e-9)
            assert effect.p_value == pytest.approx(looks.p_value[place], rel=1e-9)


def test_shares_of_the_matrix_are_those_of_the_engine() -> None:
    random = np.random.default_rng(1)
    counts = random.integers(0, 30, (2, 20))
    counts[:, 0] = 0
    low, high = newcombe(counts[0], np.full(20, 900), counts[1], np.full(20, 400), 0.01)
    for index in range(20):
        control, treatment = (int(counts[0, index]), 900), (int(counts[1, index]), 400)
        effect = proportion_test(control, treatment, alpha=0.01)
        assert effect.ci == pytest.approx((low[index], high[index]), abs=1e-12)


def test_the_matrix_has_every_kind_of_metric_users_split_and_arms() -> None:
    assert len(METRICS) * len(list(groups())) == 5 * 3 * 2 * 3 * 2


def test_a_few_cells_hold() -> None:
    users = Users("heavy tail", 0.1, "50/50", 2)
    for cell, again in aa.judged(users, replicates=250, seed=1):
        assert again is None or not again.faults, aa.row(cell)


def test_cells_of_a_seed_are_the_same_alone() -> None:
    users = Users("even", 0.1, "50/50", 2)
    both = list(cells(users, ["mean", "ratio"], replicates=40, seed=3))
    alone = list(cells(users, ["ratio"], replicates=40, seed=3))
    assert aa.row(both[1]) == aa.row(alone[0])


def test_wrong_tests_are_seen_to_be_wrong() -> None:
    for control in controls(replicates=400, seed=1):
        assert control.as_expected, control
