"""The simulator against the tests it stands for, and against what is known of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import kstest, norm

from experiments.error_rates import ErrorRate, ErrorRates
from experiments.resampling import Histories, ManyMoments, draw, ratio_effects
from experiments.simulate import Design, read_histories, simulate, simulate_aa
from experiments.stats import Effect, Moments, confidence_sequence, ratio_test
from experiments.tables import DataTable
from ingest.errors import BadInput


def histories(seed: int = 1, units: int = 900) -> Histories:
    """Thumbs up and turns of made-up users."""
    random = np.random.default_rng(seed)
    turns = random.poisson(8, units)
    return Histories.of(random.binomial(turns, random.beta(1, 5, units)), turns)


def drawn(*, looks: int = 4, replicates: int = 30, repeat: bool = False) -> ManyMoments:
    random = np.random.default_rng(3)
    arms = [420, 250, 230]
    [moments] = draw(
        [histories()], arms, looks=looks, replicates=replicates, random=random, repeat=repeat
    )
    return moments


@dataclass(frozen=True)
class Chance:
    p_value: float | None


def a_day_at_a_time(random: np.random.Generator) -> Iterator[list[Moments]]:
    arms = [Moments.of([]), Moments.of([])]
    while True:
        arms = [arm + Moments.of(random.standard_normal(50)) for arm in arms]
        yield arms


def by_ratio(arms: list[Moments]) -> Effect:
    return ratio_test(*arms)


def test_simulated_tests_are_the_tests_of_the_engine() -> None:
    moments = drawn()
    effects = ratio_effects(moments.arm(0), moments.arms(1))
    anytime = effects.anytime_p(900, 0.05)
    for place in np.ndindex(effects.estimate.shape):
        replicate, look, arm = place
        arms = moments.one(replicate, look, 0), moments.one(replicate, look, arm + 1)
        effect = ratio_test(*arms)
        sequence = confidence_sequence(effect, arms[0].n + arms[1].n, tuning_n=900)
        assert (effect.estimate, effect.std_error, effect.df) == pytest.approx(
            (effects.estimate[place], effects.std_error[place], effects.df[place]), rel=1e-10
        )
        assert effect.p_value == pytest.approx(effects.p_value[place], rel=1e-9)
        assert effect.ci is not None
        half = (effect.ci[1] - effect.ci[0]) / 2
        assert half == pytest.approx(effects.half_width(0.05)[place], rel=1e-10)
        acted = sequence.p_value if sequence.reason is None else 1.0
        assert acted == pytest.approx(anytime[place], rel=1e-9)


def test_every_unit_is_in_one_arm_once() -> None:
    moments, whole = drawn(), histories().moments
    for replicate in range(30):
        merged = sum((moments.one(replicate, -1, arm) for arm in range(3)), Moments.of([]))
        assert merged.n == 900
        assert merged.mean == pytest.approx(whole.mean, rel=1e-12)
        assert merged.var == pytest.approx(whole.var, rel=1e-12)
        assert merged.cov == pytest.approx(whole.cov, rel=1e-12)


def test_units_drawn_again_are_as_the_histories_on_average() -> None:
    moments, whole = drawn(repeat=True, replicates=2000), histories().moments
    means = moments.mean[:, -1, 0]
    assert abs(means.mean() - whole.mean) < 4 * sqrt(whole.var / 420 / 2000)
    assert means.std() == pytest.approx(sqrt(whole.var / 420), rel=0.06)


def test_units_arrive_in_even_numbers_between_looks() -> None:
    assert drawn().n[0].tolist() == [
        [105, 62, 57],
        [210, 125, 115],
        [315, 187, 172],
        [420, 250, 230],
    ]


def test_an_arm_that_does_not_vary_has_no_answer_rather_than_a_rounding_error() -> None:
    rare = Histories.of([0.0] * 4000 + [1.0])
    random = np.random.default_rng(0)
    [moments] = draw([rare], [4, 4], looks=1, replicates=50, random=random)
    effects = ratio_effects(moments.arm(0), moments.arms(1))
    assert np.isnan(effects.p_value).sum() >= 48
    assert ErrorRates.of(effects.p_value).unanswered >= 48


def test_an_effect_multiplies_every_numerator_of_the_treatment() -> None:
    units = histories()
    random = np.random.default_rng(3)
    grown = Histories.of(1.3 * units.numerators, units.denominators)
    moments, changed = draw([units, grown], [450, 450], looks=1, replicates=3, random=random)
    injected = moments.changed(0.3)
    for column in ("mean", "var", "den_mean", "cov"):
        np.testing.assert_allclose(getattr(injected, column), getattr(changed, column), rtol=1e-12)


def test_the_same_seed_simulates_the_same() -> None:
    runs = [
        simulate_aa(a_day_at_a_time, by_ratio, replicates=40, looks=5, seed=seed)
        for seed in (7, 7, 8)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_fixed_test_errs_as_it_says_once_and_more_at_each_look() -> None:
    found = simulate_aa(a_day_at_a_time, by_ratio, replicates=400, looks=5, seed=11)
    assert all(rate.within for rate in found.rates)
    # Armitage, McPherson & Rowe 1969, Table 2: 14.2 % at 5 equal looks.
    assert abs(found.any_look[1].observed - 0.142) < 3 * sqrt(0.142 * 0.858 / 400)
    assert not found.any_look[1].at_most


def test_a_wrong_test_is_seen_to_be_wrong() -> None:
    def too_sure(random: np.random.Generator) -> Iterator[float]:
        yield 2 * float(norm.sf(abs(1.3 * random.standard_normal())))

    found = simulate_aa(too_sure, Chance, replicates=1000, seed=1)
    assert not any(rate.within for rate in found.rates)
    assert found.ks_p is not None
    assert found.ks_p < 0.001


def test_uniformity_is_judged_as_scipy_judges_it() -> None:
    p_values = np.random.default_rng(5).random(500) ** 1.06
    expected = float(kstest(p_values, "uniform").pvalue)
    assert ErrorRates.of(p_values[:, np.newaxis]).ks_p == pytest.approx(expected, rel=0.02)


def test_a_test_without_an_answer_does_not_err_and_is_counted() -> None:
    def sometimes(random: np.random.Generator) -> Iterator[float | None]:
        chance = random.random()
        yield None if chance < 0.5 else chance

    found = simulate_aa(sometimes, Chance, replicates=300, seed=2)
    assert 100 < found.unanswered < 200
    assert found.rates[2].observed == 0


def test_none_wrong_in_many_is_not_an_error_of_nothing() -> None:
    assert ErrorRate.of(0.05, np.zeros(2000)).std_error == 1 / 2000


def test_a_standard_error_is_right_for_several_comparisons_with_one_control() -> None:
    """Three comparisons of a replicate that always agree are worth one."""
    coins = np.random.default_rng(1).random(1000) < 0.05
    one = ErrorRate.of(0.05, coins[:, np.newaxis].mean(axis=1))
    three = ErrorRate.of(0.05, np.repeat(coins[:, np.newaxis], 3, axis=1).mean(axis=1))
    assert three == one


def test_power_and_smallest_effect_are_those_of_theory() -> None:
    random = np.random.default_rng(4)
    table = DataTable(pa.table({"user": np.arange(4000), "y": random.normal(10, 5, 4000)}))
    whole = read_histories(table, "user", "y")[0].moments
    found = simulate(table, "user", "y", Design(effect=0.04, looks=3, replicates=1000))
    error = sqrt(whole.var * (1 / 2000 + 1.04**2 / 2000))
    expected = float(norm.cdf(0.04 * whole.mean / error - 1.96))
    assert abs(found.fixed_finding.power.share - expected) < 4 * found.fixed_finding.power.std_error
    assert found.fixed_finding.smallest is not None
    assert found.fixed_finding.smallest == pytest.approx(2.8 * error / whole.mean, rel=0.06)
    assert found.sequential_finding is not None
    assert found.sequential_finding.smallest is not None
    assert found.sequential_finding.smallest > found.fixed_finding.smallest
    assert all(rate.within for rate in found.fixed.rates)
    assert found.sequential is not None
    assert found.sequential.at_most


def test_an_effect_downwards_is_looked_for_downwards() -> None:
    units = histories(units=3000)
    rows = {"user": np.arange(3000), "up": units.numerators, "turns": units.denominators}
    design = Design(effect=-0.2, looks=1, replicates=300)
    found = simulate(DataTable(pa.table(rows)), "user", "up/turns", design)
    assert found.fixed_finding.smallest is not None
    assert -1 < found.fixed_finding.smallest < 0
    assert found.fixed_finding.power.share > 0.2


def test_an_effect_that_no_size_makes_visible_has_no_smallest() -> None:
    table = DataTable(pa.table({"user": range(40), "y": [0.0] * 36 + [1.0] * 4}))
    found = simulate(table, "user", "y", Design(effect=-0.5, looks=1, replicates=200))
    assert found.fixed_finding.smallest is None
    assert found.sequential is None, "never 200 units in an arm"
    assert found.sequential_finding is None


def test_rows_of_a_unit_are_one_history_and_rows_without_a_value_are_left_out() -> None:
    rows = {"user": ["a", "b", "a", None, "b", "c"], "up": [1, 0, 2, 5, None, None]}
    units, left_out = read_histories(DataTable(pa.table(rows)), "user", "up")
    assert units.numerators.tolist() == [3, 0]
    assert units.denominators.tolist() == [2, 1]
    assert left_out == 3


@pytest.mark.parametrize(
    ("design", "field"),
    [
        (Design(weights=(1.0,)), "weight"),
        (Design(weights=(1.0, 0.0)), "weight"),
        (Design(weights=(1.0, float("nan"))), "weight"),
        (Design(units=3), "units"),
        (Design(effect=0), "effect"),
        (Design(effect=-1.5), "effect"),
        (Design(effect=float("inf")), "effect"),
        (Design(looks=0), "looks"),
        (Design(looks=21), "looks"),
        (Design(replicates=0), "replicates"),
        (Design(replicates=10**7), "replicates"),
    ],
)
def test_a_design_that_cannot_be_played_is_refused_with_its_field(
    design: Design, field: str
) -> None:
    table = DataTable(pa.table({"user": range(80), "y": range(80)}))
    with pytest.raises(BadInput, match=field):
        simulate(table, "user", "y", design)


def test_a_generator_that_ends_early_is_refused() -> None:
    with pytest.raises(BadInput, match="1 of 2 looks"):
        simulate_aa(lambda random: [random.random()], Chance, looks=2)
