from math import inf, sqrt

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

from experiments.stats import Moments, ratio_test
from experiments.stats.response import (
    MAX_UNREACHED,
    MIN_ESS,
    RatedTurns,
    adjusted_approval,
    logistic,
)
from ingest.errors import BadInput

Array = NDArray[np.float64]


def sigmoid(odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-odds)))


def turns(
    random: np.random.Generator, users: int, *, level: float, rate: float = -1.5, pull: float = 1.0
) -> tuple[RatedTurns, float]:
    """Turns whose feature drives both rating and liking, and the true share of liked turns."""
    owner = np.repeat(np.arange(users), random.poisson(8, users) + 1)
    feature = random.normal(size=len(owner)) + 0.5 * random.normal(size=users)[owner]
    liked = (random.random(len(owner)) < sigmoid(level + feature)).astype(float)
    rated = (random.random(len(owner)) < sigmoid(rate + pull * feature)).astype(float)
    features = np.column_stack([feature, random.normal(size=len(owner))])
    return RatedTurns.of([f"u{user}" for user in owner], rated, liked, features), liked.mean()


def moved(arm: RatedTurns, order: NDArray[np.intp]) -> RatedTurns:
    units = [arm.units[at] for at in order]
    return RatedTurns.of(units, arm.rated[order], arm.up[order], arm.features[order])


def number(value: float | None) -> float:
    assert value is not None
    return value


def test_the_logistic_fit_is_that_of_statsmodels() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(3000, 3)) * [1, 10, 0.1]
    outcome = (random.random(3000) < sigmoid(features @ [0.5, 0.1, -2] - 3)).astype(float)
    fit = sm.GLM(outcome, sm.add_constant(features), family=sm.families.Binomial()).fit(tol=1e-14)
    beta = logistic(features, outcome)
    assert beta is not None
    assert beta == pytest.approx(fit.params, rel=1e-8)


def test_the_ridge_pulls_everything_but_the_intercept() -> None:
    random = np.random.default_rng(2)
    features = random.normal(size=(400, 2))
    outcome = (random.random(400) < sigmoid(features @ [1, -1] - 1)).astype(float)
    beta = logistic(features, outcome, ridge=5.0)
    assert beta is not None
    residual = outcome - sigmoid(beta[0] + features @ beta[1:])
    assert residual.sum() == pytest.approx(0, abs=1e-8)
    assert features.T @ residual == pytest.approx(5 * beta[1:], rel=1e-8)


def test_a_feature_that_separates_has_no_fit_without_a_ridge() -> None:
    feature = np.arange(40.0)[:, None] - 19.5
    outcome = (feature[:, 0] > 0).astype(float)
    assert logistic(feature, outcome) is None
    assert logistic(feature, outcome, ridge=1.0) is not None


def test_who_rates_and_who_likes_for_the_same_reason_bends_approval_until_it_is_weighted() -> None:
    random = np.random.default_rng(3)
    # The treatment pleases more, but in the control only the pleased rate.
    control, base = turns(random, 3000, level=0.0, pull=1.0)
    treatment, other = turns(random, 3000, level=0.3, pull=0.0)
    truth = other - base
    naive = treatment.up.sum() / treatment.rated.sum() - control.up.sum() / control.rated.sum()
    assert naive < -0.05
    assert truth > 0.04
    for method in ("ipw", "aipw"):
        found = adjusted_approval(control, treatment, method=method)
        effect = found.effect
        assert effect.reason is None
        assert effect.method == method
        assert abs(number(effect.estimate) - truth) < 3 * number(effect.std_error)
        assert found.ess[0] < control.rated.sum()
        assert found.ess[1] == pytest.approx(treatment.rated.sum(), rel=0.01)


def test_when_every_turn_is_rated_it_is_the_plain_ratio_test() -> None:
    random = np.random.default_rng(4)
    arms = [turns(random, 80, level=level, rate=60.0)[0] for level in (0.0, 0.4)]
    found = adjusted_approval(*arms, method="ipw")

    def moments(arm: RatedTurns) -> Moments:
        _, owner = np.unique(np.asarray(arm.units), return_inverse=True)
        return Moments.of(np.bincount(owner, arm.up), np.bincount(owner))

    expected = ratio_test(moments(arms[0]), moments(arms[1]))
    assert found.effect.estimate == pytest.approx(expected.estimate, rel=1e-10)
    assert found.effect.std_error == pytest.approx(expected.std_error, rel=1e-10)
    assert found.ess == pytest.approx([arm.rated.sum() for arm in arms])


def test_the_order_of_turns_and_the_names_of_other_arms_change_nothing() -> None:
    random = np.random.default_rng(5)
    control, _ = turns(random, 300, level=0.0)
    treatment, _ = turns(random, 300, level=0.2)
    found = adjusted_approval(control, treatment)
    mixed = adjusted_approval(moved(control, random.permutation(len(control.units))), treatment)
    assert mixed.effect.estimate == pytest.approx(found.effect.estimate, rel=1e-9)
    assert mixed.effect.std_error == pytest.approx(found.effect.std_error, rel=1e-9)


def test_turns_that_nobody_like_them_rates_are_a_reason_not_a_weight() -> None:
    random = np.random.default_rng(6)
    control, _ = turns(random, 400, level=0.0)
    silent = control.features[:, 1] > 0.8  # a fifth of the turns: say, from a client without thumbs
    features = np.column_stack([control.features, silent])
    muted = RatedTurns.of(control.units, control.rated * ~silent, control.up, features)
    fair = RatedTurns.of(control.units, control.rated, control.up, features)
    found = adjusted_approval(fair, muted, ridge=0.01)
    assert found.unreached[0] < 0.01
    assert found.unreached[1] > MAX_UNREACHED
    assert found.effect.estimate is None
    assert found.effect.reason == "21% of an arm's turns are unlike any that get rated"


def test_few_thumbs_are_a_reason() -> None:
    random = np.random.default_rng(7)
    control, _ = turns(random, 300, level=0.0)
    rare, _ = turns(random, 300, level=0.0, rate=-5.0)
    found = adjusted_approval(control, rare)
    assert found.ess[1] < MIN_ESS
    assert "fewer than 30" in str(found.effect.reason)
    none = RatedTurns.of(rare.units, np.zeros(len(rare.units)), rare.up, rare.features)
    silent = adjusted_approval(control, none).effect
    assert silent.reason == "an arm has too few thumbs to learn who rates"
    assert silent.n_treatment == 300


def test_weights_are_cut_at_twenty_times_the_average_and_the_cut_is_told() -> None:
    random = np.random.default_rng(8)
    control, _ = turns(random, 4000, level=0.0, rate=-3.0, pull=1.1)
    found = adjusted_approval(control, control)
    assert 0 < found.capped[0] < 0.05
    assert found.ess[0] < 0.7 * control.rated.sum()
    assert found.effect.estimate == 0


def test_turns_that_cannot_be_are_refused() -> None:
    good = (["a", "b"], [1, 0], [1, 0], [[0.5], [1.0]])
    for at, bad, field in (
        (1, [1, 2], "rated"),
        (1, [1], "rated"),
        (2, [0.5, 0], "up"),
        (3, [[0.5], [inf]], "features"),
        (3, [0.5, 1.0], "features"),
    ):
        with pytest.raises(BadInput) as caught:
            RatedTurns.of(*(bad if at == place else each for place, each in enumerate(good)))  # type: ignore[arg-type]
        assert caught.value.errors[0].field == field
    arm = RatedTurns.of(*good)
    wide = RatedTurns.of(["a"], [1], [1], [[1.0, 2.0]])
    for other, options, field in (
        (arm, {"alpha": 0.0}, "alpha"),
        (arm, {"method": "magic"}, "method"),
        (arm, {"ridge": -1.0}, "ridge"),
        (wide, {}, "features"),
    ):
        with pytest.raises(BadInput) as caught:
            adjusted_approval(arm, other, **options)
        assert caught.value.errors[0].field == field


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ipw", "aipw"])
def test_intervals_cover_the_truth_where_raters_are_unlike_the_rest(method: str) -> None:
    replicates, random = 200, np.random.default_rng(9)
    # The share of liked turns by a large draw of its own.
    big = np.random.default_rng(10).normal(size=2_000_000) * sqrt(1.25)
    truth = (sigmoid(0.3 + big) - sigmoid(big)).mean()
    covered = 0
    for _ in range(replicates):
        control, _ = turns(random, 300, level=0.0, pull=1.0)
        treatment, _ = turns(random, 300, level=0.3, pull=-0.5)
        effect = adjusted_approval(control, treatment, method=method).effect  # type: ignore[arg-type]
        assert effect.ci is not None
        covered += effect.ci[0] <= truth <= effect.ci[1]
    print(f"{method}: coverage {covered / replicates:.3f}")
    assert covered / replicates >= 0.95 - 3 * sqrt(0.05 * 0.95 / replicates)
