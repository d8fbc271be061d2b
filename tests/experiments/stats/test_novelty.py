from dataclasses import replace
from math import nan, sqrt

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

from experiments.stats import Effect, Moments, ratio_test, relative_interval
from experiments.stats.novelty import Novelty, day_correlation, novelty_test
from ingest.errors import BadInput

Array = NDArray[np.float64]
DAYS = 8


def users(
    random: np.random.Generator,
    units: int,
    effect: Array,
    *,
    drift: float = 0.0,
    level: float = 1.0,
) -> Array:
    """A value per unit and day since exposure; units differ in level, and drift apart."""
    own = level * random.normal(size=(units, 1))
    slope = drift * random.normal(size=(units, 1)) * np.arange(DAYS)
    return np.asarray(own + slope + effect + random.normal(size=(units, DAYS)))


def daily(control: Array, treatment: Array) -> dict[int, Effect]:
    return {
        day: ratio_test(Moments.of(control[:, day]), Moments.of(treatment[:, day]))
        for day in range(control.shape[1])
    }


def number(value: float | None) -> float:
    assert value is not None
    return value


def tables(
    effect: Array | None = None, seed: int = 1, *, drift: float = 0.0
) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    nothing = np.zeros(DAYS)
    return (
        users(random, 300, nothing, drift=drift),
        users(random, 260, nothing if effect is None else effect, drift=drift),
    )


def test_the_slope_is_that_of_a_weighted_line() -> None:
    days = daily(*tables())
    sizes = np.array([number(effect.estimate) for effect in days.values()])
    errors = np.array([number(effect.std_error) for effect in days.values()])
    fit = sm.WLS(sizes, sm.add_constant(np.arange(DAYS)), weights=errors**-2).fit()
    slope = novelty_test(days).slope
    assert slope.estimate == pytest.approx(fit.params[1], rel=1e-10)
    assert slope.std_error == pytest.approx(fit.bse[1] / sqrt(fit.scale), rel=1e-10)
    assert slope.df == min(number(effect.df) for effect in days.values())
    assert (slope.method, slope.n_control) == ("slope, independent days", 300)


def test_with_the_days_correlation_its_error_is_that_of_each_units_own_slope() -> None:
    control, treatment = tables(drift=0.2)
    days = daily(control, treatment)
    # Equal errors make the weights equal, so that units' slopes are one contrast.
    even = {day: replace(effect, std_error=0.1) for day, effect in days.items()}
    correlation = day_correlation(control, treatment)
    contrast = (np.arange(DAYS) - 3.5) / ((np.arange(DAYS) - 3.5) ** 2).sum()
    scaled = np.stack([number(effect.std_error) for effect in days.values()])
    own = ratio_test(
        Moments.of((control / scaled * 0.1) @ contrast),
        Moments.of((treatment / scaled * 0.1) @ contrast),
    )
    slope = novelty_test(even, correlation=correlation).slope
    assert slope.std_error == pytest.approx(own.std_error, rel=1e-9)
    assert slope.method == "slope, correlated days"


def test_the_correlation_of_a_ratio_is_that_of_its_linearised_units() -> None:
    random = np.random.default_rng(3)
    turns = random.poisson(3, (2, 200, DAYS)).astype(float)
    ups = np.asarray(random.binomial(turns.astype(int), 0.3), dtype=float)
    found = day_correlation(ups[0], ups[1], denominators=(turns[0], turns[1]))
    assert np.diag(found) == pytest.approx(np.ones(DAYS))
    # Two days as one metric: the error of their difference by the delta method.
    days = {
        day: ratio_test(*(Moments.of(ups[a, :, day], turns[a, :, day]) for a in (0, 1)))
        for day in (0, 1)
    }
    errors = [number(effect.std_error) for effect in days.values()]
    covariance = 0.0
    for top, bottom in zip(ups, turns, strict=True):
        rate = top.sum(0) / bottom.sum(0)
        linear = (top - rate * bottom) / bottom.mean(0)
        covariance += (linear[:, 0] @ linear[:, 1]) / 199 / 200
    assert found[0, 1] == pytest.approx(covariance / errors[0] / errors[1], rel=1e-6)


def test_an_effect_that_wears_off_is_novelty_and_one_that_grows_is_learning() -> None:
    fading = daily(*tables(np.linspace(1.5, 0.2, DAYS)))
    growing = daily(*tables(np.linspace(-0.2, -1.5, DAYS)))
    assert novelty_test(fading).trend == "fading"
    assert number(novelty_test(fading).slope.estimate) < 0
    assert novelty_test(growing).trend == "growing"
    assert novelty_test(daily(*tables(np.full(DAYS, 0.5)))).trend == "none seen"


def test_days_of_different_units_are_a_mix_of_cohorts_not_a_slope() -> None:
    """Note, section 9: "effect by calendar day" mixes cohorts."""
    days = daily(*tables())
    days[3] = replace(days[3], n_treatment=259)
    found = novelty_test(days)
    assert found.slope.reason == "the days differ in units, so a slope would mix cohorts"
    assert (found.slope.estimate, found.trend) == (None, None)
    assert len(found.days) == DAYS


def test_the_order_of_days_changes_nothing() -> None:
    days = daily(*tables())
    assert novelty_test(dict(reversed(days.items()))) == novelty_test(days)


def test_what_has_no_slope_gives_a_reason() -> None:
    days = daily(*tables())

    def reason(found: Novelty) -> str | None:
        assert found.trend is None
        return found.slope.reason

    assert reason(novelty_test({})) == "fewer than 3 days"
    assert reason(novelty_test({0: days[0], 1: days[1]})) == "fewer than 3 days"
    empty = ratio_test(Moments.of([]), Moments.of([]))
    assert reason(novelty_test(days | {8: empty})) == (
        "a day has no effect: an arm has fewer than 2 units"
    )
    even = {day: replace(effect, std_error=0.1) for day, effect in days.items()}
    one = np.ones((DAYS, DAYS))
    assert reason(novelty_test(even, correlation=one)) == "the slope does not vary"


def test_input_that_cannot_be_is_refused_by_name() -> None:
    days = daily(*tables())
    lift = relative_interval(Moments(100, 5.0, 1.0), Moments(100, 6.0, 1.0))
    lopsided = np.eye(DAYS)
    lopsided[0, 1] = 0.5
    for bad, options, field in (
        (days, {"alpha": 1.5}, "alpha"),
        ({-1: days[0]} | days, {}, "days"),
        (days | {2: lift}, {}, "days"),
        (days, {"correlation": np.eye(3)}, "correlation"),
        (days, {"correlation": lopsided}, "correlation"),
        (days, {"correlation": 2 * np.eye(DAYS)}, "correlation"),
        (days, {"correlation": np.full((DAYS, DAYS), nan)}, "correlation"),
        (days, {"correlation": 3 * np.eye(DAYS) - 2}, "correlation"),
    ):
        with pytest.raises(BadInput) as caught:
            novelty_test(bad, **options)
        assert caught.value.errors[0].field == field
    good = np.random.default_rng(1).normal(size=(5, 3))
    for tables_, bottoms, field in (
        ((good[:1], good), None, "control"),
        ((good, good * nan), None, "treatment"),
        ((good, good[:, :2]), None, "treatment"),
        ((good, good), (good[:4], good), "denominators"),
        ((good, good), (np.zeros((5, 3)), np.ones((5, 3))), "denominators"),
        ((np.ones((5, 3)), np.ones((5, 3))), None, "control"),
    ):
        with pytest.raises(BadInput) as caught:
            day_correlation(*tables_, denominators=bottoms)
        assert caught.value.errors[0].field == field


@pytest.mark.slow
def test_users_who_drift_apart_need_the_days_correlation() -> None:
    replicates = 1000
    apart = together = level = 0
    for seed in range(replicates):
        drifting = tables(seed=seed, drift=0.3)
        apart += number(novelty_test(daily(*drifting)).slope.p_value) < 0.05
        days, correlation = daily(*drifting), day_correlation(*drifting)
        together += number(novelty_test(days, correlation=correlation).slope.p_value) < 0.05
        level += number(novelty_test(daily(*tables(seed=seed))).slope.p_value) < 0.05
    print(f"drift: independent {apart / replicates:.3f}, correlated {together / replicates:.3f}")
    print(f"levels only: independent {level / replicates:.3f}")
    assert abs(together / replicates - 0.05) <= 3 * sqrt(0.05 * 0.95 / replicates)
    assert apart / replicates > 0.08
    assert level / replicates <= 0.05
