from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

from experiments.stats.pairwise import Duels, Outcome, bradley_terry

Array = NDArray[np.float64]

# Data made for these tests: four checkpoints, all pairs.
WINS = np.array([[0, 12, 9, 20], [8, 0, 11, 15], [10, 14, 0, 13], [3, 7, 6, 0]], dtype=float)
TIES = np.array([[0, 5, 2, 4], [5, 0, 7, 1], [2, 7, 0, 3], [4, 1, 3, 0]], dtype=float)


def numbers(values: tuple[float, ...] | None) -> Array:
    assert values is not None
    return np.array(values)


def test_both_bad_is_an_answer_and_gives_its_mass_to_no_side() -> None:
    """bojieli/ai-agent-book#224: "both bad" was dropped, and one side got what it had."""
    shares: dict[Outcome, int] = {"first": 30, "second": 10, "tie": 20, "both_bad": 40}
    names = [name for name, count in shares.items() for _ in range(count)]
    data = Duels.of([0] * 100, [1] * 100, names, items=2)
    ranking = bradley_terry(data)
    strength = numbers(ranking.log_strength)
    assert ranking.tie is not None
    assert ranking.both_bad is not None
    # Two items and three free shares: the model gives back what was counted.
    pulls = np.exp([-strength[1] / 2, strength[1] / 2])
    whole = pulls.sum() + ranking.tie + ranking.both_bad
    shares = np.array([*pulls, ranking.tie, ranking.both_bad]) / whole
    assert shares == pytest.approx([0.3, 0.1, 0.2, 0.4], rel=1e-9)
    assert ranking.both_bad_share == (0.4, 0.4)
    assert ranking.duels == (100, 100)


def test_a_tie_is_not_half_a_win() -> None:
    halves = bradley_terry(WINS + TIES / 2)
    ranking = bradley_terry(WINS, TIES)
    gap = numbers(halves.log_strength) - numbers(ranking.log_strength)
    assert np.abs(gap[1:]).max() > 0.05


def test_duels_that_were_all_ties_give_a_reason() -> None:
    """bojieli/ai-agent-book#358: a table of nothing but ties."""
    ranking = bradley_terry(np.zeros((4, 4)), TIES)
    assert ranking.reason == "every duel was a tie"
    assert ranking.log_strength is None
    assert bradley_terry(np.zeros((4, 4)), TIES, pseudo=0.5).reason == "every duel was a tie"
    assert bradley_terry(np.zeros((3, 3))).reason == "there are no duels"


def test_a_resample_that_lost_an_items_losses_is_told_apart_from_an_estimate() -> None:
    """betagouv/ComparIA#470: degenerate bootstrap rounds were averaged in."""
    degenerate = WINS.copy()
    degenerate[3] = 0
    ranking = bradley_terry(degenerate)
    assert ranking.reason == "items [0, 1, 2] never lost to the others: separation"
    assert (ranking.log_strength, ranking.rank, ranking.std_error) == (None, None, None)
    assert ranking.duels == (59, 60, 57, 48)


def test_items_that_never_met_are_not_ranked_unless_asked() -> None:
    apart = np.zeros((4, 4))
    apart[0, 1], apart[1, 0], apart[2, 3], apart[3, 2] = 5, 3, 9, 1
    ranking = bradley_terry(apart)
    assert ranking.reason == "items [0, 1], [2, 3] were never compared, not even through others"
    asked = bradley_terry(apart, pseudo=0.5)
    assert asked.reason is None
    assert asked.rank == (2, 3, 1, 4)
    assert asked.rank_interval == ((1, 4), (1, 4), (1, 4), (1, 4))


def test_wins_one_way_with_ties_have_no_maximum() -> None:
    wins, ties = np.zeros((3, 3)), np.zeros((3, 3))
    wins[0, 1], wins[1, 2] = 4, 4
    ties[0, 1] = ties[1, 0] = ties[1, 2] = ties[2, 1] = 2
    assert str(bradley_terry(wins, ties).reason).endswith("are not told apart: separation")
    wins[2, 0] = 1
    assert bradley_terry(wins, ties).reason is None


def separated(wins: Array, drawn: Array) -> bool:
    """Whether some direction makes no observed outcome less likely, and one more, by linprog."""
    items, rows = len(wins), []
    ties = bool(drawn.any())

    def score(i: int, j: int, outcome: int) -> Array:
        row = np.zeros(items + 1)
        row[i], row[j], row[items] = outcome / 2, -outcome / 2, outcome == 0
        return row

    for i, j in combinations(range(items), 2):
        counts = {1: wins[i, j], -1: wins[j, i], 0: drawn[i, j]}
        alternatives = [1, -1, 0] if ties else [1, -1]
        if not sum(counts.values()):
            continue
        rows += [
            score(i, j, seen) - score(i, j, other)
            for seen, count in counts.items()
            for other in alternatives
            if count and other != seen
        ]
    table = np.array(rows)[:, 1 : items + ties]
    if np.linalg.matrix_rank(table) < table.shape[1]:
        return True
    bounds = [(-1, 1)] * table.shape[1]
    best = linprog(-table.sum(axis=0), A_ub=-table, b_ub=np.zeros(len(table)), bounds=bounds)
    return bool(-best.fun > 1e-7)


@settings(deadline=None, max_examples=80)
@given(st.integers(2, 4), st.data())
def test_there_is_a_reason_exactly_where_linear_programming_finds_separation(
    items: int, data: st.DataObject
) -> None:
    rare = st.sampled_from([0, 0, 0, 1, 3])
    wins, ties = np.zeros((items, items)), np.zeros((items, items))
    for i, j in combinations(range(items), 2):
        wins[i, j], wins[j, i] = data.draw(rare), data.draw(rare)
        ties[i, j] = ties[j, i] = data.draw(rare)
    if not (wins.any() or ties.any()):
        return
    ranking = bradley_terry(wins, ties)
    assert (ranking.reason is not None) == separated(wins, ties)


def test_pseudo_comparisons_are_wins_and_losses_against_one_more_item() -> None:
    wins = np.array([[0.0, 6, 5], [0, 0, 3], [0, 2, 0]])
    assert bradley_terry(wins).reason is not None
    ranking = bradley_terry(wins, pseudo=0.5)

    def loss(at: Array) -> float:
        strength = np.array([0, at[0], at[1], at[2]])
        counts = np.full((4, 4), 0.0)
        counts[:3, :3] = wins
        counts[3, :3] = counts[:3, 3] = 0.5
        gaps = strength[:, None] - strength
        return float((counts * np.logaddexp(0, -gaps)).sum())

    best = minimize(loss, np.zeros(3), tol=1e-12)
    assert numbers(ranking.log_strength)[1:] == pytest.approx(best.x[:2], abs=1e-4)
    assert ranking.duels == (11, 11, 10)
