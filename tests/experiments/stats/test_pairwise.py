from itertools import combinations
from math import exp, inf, log, sqrt

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

from experiments.stats.pairwise import Duels, Outcome, Ranking, bradley_terry
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector

Array = NDArray[np.float64]

# Data made for these tests: four checkpoints, all pairs, in the order 01 02 03 12 13 23.
WINS = np.array([[0, 12, 9, 20], [8, 0, 11, 15], [10, 14, 0, 13], [3, 7, 6, 0]], dtype=float)
TIES = np.array([[0, 5, 2, 4], [5, 0, 7, 1], [2, 7, 0, 3], [4, 1, 3, 0]], dtype=float)
BAD = np.array([[0, 1, 6, 2], [1, 0, 3, 9], [6, 3, 0, 5], [2, 9, 5, 0]], dtype=float)


def numbers(values: tuple[float, ...] | None) -> Array:
    assert values is not None
    return np.array(values)


def duels(count: int, seed: int = 1, items: int = 4, *, position: float = 0.0) -> Duels:
    random = np.random.default_rng(seed)
    strength = np.linspace(0.8, -0.8, items)
    first = random.integers(0, items, count)
    second = (first + random.integers(1, items, count)) % items
    odds = strength[first] - strength[second] + position
    weights = np.stack([np.exp(odds / 2), np.exp(-odds / 2), *np.full((2, count), [[0.5], [0.3]])])
    drawn = (random.random(count) > np.cumsum(weights / weights.sum(0), axis=0)).sum(axis=0)
    names: tuple[Outcome, ...] = ("first", "second", "tie", "both_bad")
    return Duels.of(first, second, [names[each] for each in drawn], items=items)


def loglinear(wins: Array, drawn: Array) -> tuple[Array, Array]:
    """Strengths less item 0's and log ν with s.e., as statsmodels' Poisson model of the cells."""
    rows, counts = [], []
    pairs = list(combinations(range(len(wins)), 2))
    for at, (i, j) in enumerate(pairs):
        for outcome, count in ((1, wins[i, j]), (-1, wins[j, i]), (0, drawn[i, j])):
            row = np.zeros(len(wins) + 1 + len(pairs))
            row[i], row[j] = outcome / 2, -outcome / 2
            row[len(wins)] = outcome == 0
            row[len(wins) + 1 + at] = 1
            rows.append(row[1:])
            counts.append(count)
    fit = sm.GLM(counts, np.array(rows), family=sm.families.Poisson()).fit(tol=1e-14)
    return fit.params[: len(wins)], fit.bse[: len(wins)]


def design(data: Duels) -> Array:
    table = np.zeros((len(data.first), data.items))
    table[np.arange(len(table)), data.first] = 1
    table[np.arange(len(table)), data.second] = -1
    return table[:, 1:]


def decided(data: Duels) -> Duels:
    kept = data.outcome < 2
    return Duels(data.items, data.first[kept], data.second[kept], data.outcome[kept])


def test_the_vector_of_journal_citations_holds() -> None:
    ranking = bradley_terry(vector("bradley-terry-1")["input"]["wins"])
    agrees("bradley-terry-1", {"log_strength": ranking.log_strength, "se": ranking.std_error})
    assert ranking.rank == (2, 4, 3, 1)
    assert ranking.method == "Bradley-Terry"
    assert (ranking.tie, ranking.both_bad) == (0, 0)


def test_without_ties_it_is_the_logistic_regression_of_statsmodels() -> None:
    data = decided(duels(800))
    won = (data.outcome == 0).astype(float)
    fit = sm.GLM(won, design(data), family=sm.families.Binomial()).fit(tol=1e-14)
    ranking = bradley_terry(data)
    assert numbers(ranking.log_strength)[1:] == pytest.approx(fit.params, rel=1e-8)
    assert numbers(ranking.std_error)[1:] == pytest.approx(fit.bse, rel=1e-7)


def test_davidsons_ties_are_those_of_a_log_linear_model() -> None:
    params, errors = loglinear(WINS, TIES + BAD)
    ranking = bradley_terry(WINS, TIES, both_bad=BAD)
    assert numbers(ranking.log_strength)[1:] == pytest.approx(params[:-1], rel=1e-7)
    assert numbers(ranking.std_error)[1:] == pytest.approx(errors[:-1], rel=1e-6)
    assert ranking.tie is not None
    assert ranking.both_bad is not None
    assert ranking.tie + ranking.both_bad == pytest.approx(exp(params[-1]), rel=1e-7)
    assert ranking.tie / ranking.both_bad == pytest.approx(TIES.sum() / BAD.sum())
    assert ranking.method == "Bradley-Terry-Davidson"


def test_covariates_and_clustered_errors_are_those_of_statsmodels() -> None:
    data = decided(duels(1200, position=0.4))
    random = np.random.default_rng(2)
    shown = np.column_stack([np.ones(len(data.first)), random.normal(size=len(data.first))])
    users = random.integers(0, 90, len(data.first))
    won = (data.outcome == 0).astype(float)
    fit = sm.GLM(won, np.hstack([design(data), shown]), family=sm.families.Binomial()).fit(
        cov_type="cluster", cov_kwds={"groups": users, "use_correction": False}, tol=1e-14
    )
    ranking = bradley_terry(data, covariates=shown, clusters=users.tolist())
    factor = sqrt(90 / 89)
    assert numbers(ranking.log_strength)[1:] == pytest.approx(fit.params[:3], rel=1e-8)
    assert numbers(ranking.std_error)[1:] == pytest.approx(fit.bse[:3] * factor, rel=1e-7)
    assert numbers(ranking.covariates) == pytest.approx(fit.params[3:], rel=1e-8)
    assert numbers(ranking.covariate_errors) == pytest.approx(fit.bse[3:] * factor, rel=1e-7)
    assert (ranking.df, ranking.method) == (89, "Bradley-Terry, clustered")
    few = bradley_terry(data, clusters=(users % 20).tolist())
    assert few.method == "Bradley-Terry, clustered, few clusters"


def test_a_duel_per_cluster_has_whites_errors_with_ties_too() -> None:
    data = duels(900, position=0.4)
    ones = np.ones((len(data.first), 1))
    ranking = bradley_terry(data, covariates=ones, clusters=range(len(data.first)))
    table = np.hstack([design(data), ones])
    won, lost = data.outcome == 0, data.outcome == 1
    assert ranking.tie is not None
    assert ranking.both_bad is not None
    beta = np.append(numbers(ranking.log_strength)[1:], numbers(ranking.covariates))
    tau = log(ranking.tie + ranking.both_bad)

    at = np.append(beta, tau)

    def score(at: Array) -> Array:
        odds = table @ at[:-1]
        weights = np.stack([np.exp(odds / 2), np.exp(-odds / 2), np.full_like(odds, exp(at[-1]))])
        chance = weights / weights.sum(axis=0)
        by_odds = (won.astype(float) - lost - chance[0] + chance[1]) / 2
        by_ties = (data.outcome >= 2) - chance[2]
        return np.column_stack([table * by_odds[:, None], by_ties])

    step = 1e-5
    slope = np.stack(
        [
            (score(at + step * e).sum(0) - score(at - step * e).sum(0)) / 2 / step
            for e in np.eye(len(at))
        ]
    )
    own = score(at)
    assert own.sum(axis=0) == pytest.approx(np.zeros(len(at)), abs=1e-7)
    bread = np.linalg.inv(slope)
    expected = bread @ (own.T @ own) @ bread * len(own) / (len(own) - 1)
    assert numbers(ranking.std_error)[1:] == pytest.approx(np.sqrt(np.diag(expected))[:3], rel=1e-6)


def test_the_order_of_battles_changes_nothing_where_elo_would() -> None:
    """Note, section 10: order-dependent Elo."""
    data = duels(500)
    users = np.random.default_rng(3).integers(0, 60, 500)
    order = np.random.default_rng(4).permutation(500)
    mixed = Duels(4, data.first[order], data.second[order], data.outcome[order])
    assert bradley_terry(mixed) == bradley_terry(data)
    clustered = bradley_terry(data, clusters=users.tolist())
    again = bradley_terry(mixed, clusters=users[order].tolist())
    assert again.log_strength == clustered.log_strength
    assert again.std_error == pytest.approx(clustered.std_error, rel=1e-12)


def test_a_pair_shown_the_other_way_round_is_the_same_pair() -> None:
    data = duels(300)
    back = np.array([1, 0, 2, 3])[data.outcome]
    turned = Duels(4, data.second, data.first, back)
    ahead = bradley_terry(data, covariates=np.ones((300, 1)))
    behind = bradley_terry(turned, covariates=-np.ones((300, 1)))
    assert behind == ahead


def test_the_reference_only_moves_the_zero() -> None:
    one, other = bradley_terry(WINS, TIES), bradley_terry(WINS, TIES, reference=2)
    strength = numbers(one.log_strength)
    assert numbers(other.log_strength) == pytest.approx(strength - strength[2], abs=1e-9)
    assert numbers(other.std_error)[2] == 0
    ahead, behind = one.compare(2, 1), other.compare(2, 1)
    assert behind.estimate == pytest.approx(ahead.estimate, rel=1e-9)
    assert behind.std_error == pytest.approx(numbers(other.std_error)[1], rel=1e-9)
    assert ahead.p_value == pytest.approx(behind.p_value, rel=1e-7)
    assert other.rank == one.rank
    assert (ahead.n_control, ahead.n_treatment) == (75, 80)


def test_a_comparison_without_a_ranking_has_its_reason() -> None:
    effect = bradley_terry(np.zeros((4, 4)), TIES).compare(0, 1)
    assert (effect.estimate, effect.reason) == (None, "every duel was a tie")
    for pair in ((0, 0), (0, 4), (-1, 2)):
        with pytest.raises(BadInput):
            bradley_terry(WINS).compare(*pair)


def test_items_of_like_strength_share_their_ranks() -> None:
    level = np.full((4, 4), 5.0)
    assert bradley_terry(level).rank_interval == ((1, 4),) * 4
    level[:3, 3] = 400
    ranking = bradley_terry(level)
    assert ranking.rank_interval == ((1, 3), (1, 3), (1, 3), (4, 4))
    assert ranking.rank is not None
    assert ranking.rank[3] == 4


def test_covariates_that_explain_too_much_are_refused() -> None:
    data = decided(duels(300))
    size = np.array([1.0, 4, 2, 7])
    alike = (size[data.first] - size[data.second])[:, None]
    assert "cannot be told from the strengths" in str(bradley_terry(data, covariates=alike).reason)
    winner = np.where(data.outcome == 0, 1.0, -1.0)[:, None]
    assert "alone decides who wins" in str(bradley_terry(data, covariates=winner).reason)


def test_too_few_clusters_are_a_reason() -> None:
    data = duels(300)
    ranking = bradley_terry(data, clusters=[at % 4 for at in range(300)])
    assert ranking.reason == "4 clusters are too few for this many parameters"


def test_duels_that_cannot_be_are_refused() -> None:
    for first, second, outcome, field in (
        ([0], [1], ["win"], "outcome"),
        ([0], [1], ["tie", "tie"], "outcome"),
        ([0], [0], ["tie"], "second"),
        ([0], [5], ["tie"], "second"),
        ([-1], [1], ["tie"], "first"),
        ([0.5], [1], ["tie"], "first"),
    ):
        with pytest.raises(BadInput) as caught:
            Duels.of(first, second, outcome, items=2)  # type: ignore[arg-type]
        assert caught.value.errors[0].field == field
    rows = duels(20)
    lopsided = TIES + np.triu(TIES)
    cases: tuple[tuple[object, dict[str, object], str], ...] = (
        ([[0, 1]], {}, "wins"),
        ([[0]], {}, "wins"),
        ([[0, -1], [1, 0]], {}, "wins"),
        ([[0, inf], [1, 0]], {}, "wins"),
        (WINS, {"ties": lopsided}, "ties"),
        (WINS, {"both_bad": TIES[:3, :3]}, "both_bad"),
        (WINS, {"covariates": [[1.0]]}, "covariates"),
        (WINS, {"clusters": ["a"]}, "clusters"),
        (WINS, {"reference": 4}, "reference"),
        (WINS, {"pseudo": -1.0}, "pseudo"),
        (WINS, {"alpha": 1.0}, "alpha"),
        (rows, {"ties": TIES}, "ties"),
        (rows, {"covariates": [[1.0]]}, "covariates"),
        (rows, {"clusters": ["a"]}, "clusters"),
    )
    for wins, options, field in cases:
        with pytest.raises(BadInput) as caught:
            bradley_terry(wins, **options)  # type: ignore[arg-type]
        assert caught.value.errors[0].field == field


@pytest.mark.slow
def test_all_rank_intervals_hold_at_once_and_clusters_must_be_named() -> None:
    replicates, random = 1000, np.random.default_rng(11)
    strength = np.array([0.0, 0.0, 0.4, 0.8])
    truth = [int(1 + (strength > each).sum()) for each in strength]
    held = named = plain = 0
    for _ in range(replicates):
        # 80 judges with tastes of their own, 10 duels each, always of one pair.
        judge = np.repeat(np.arange(80), 10)
        first = np.repeat(random.integers(0, 4, 80), 10)
        second = (first + np.repeat(random.integers(1, 4, 80), 10)) % 4
        taste = np.repeat(random.normal(size=80), 10)
        odds = strength[first] - strength[second] + taste
        won = random.random(800) < 1 / (1 + np.exp(-odds))
        data = Duels(4, first, second, np.where(won, 0, 1))
        clustered = bradley_terry(data, clusters=judge.tolist())
        named += wrong(clustered)
        plain += wrong(bradley_terry(data))
        assert clustered.rank_interval is not None
        held += all(
            low <= rank + tied and rank <= high
            for (low, high), rank, tied in zip(
                clustered.rank_interval, truth, (1, 1, 0, 0), strict=True
            )
        )
    print(
        f"equal pair rejected: clustered {named / replicates:.3f}, plain {plain / replicates:.3f}"
    )
    print(f"all ranks held: {held / replicates:.3f}")
    # 80 clusters: the sandwich is a little small.
    assert named / replicates <= 0.08
    assert plain / replicates > 0.15
    assert held / replicates >= 0.95 - 3 * sqrt(0.05 * 0.95 / replicates)


def wrong(ranking: Ranking) -> bool:
    p_value = ranking.compare(0, 1).p_value
    assert p_value is not None
    return p_value < 0.05
