from math import sqrt

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.multitest import multipletests

from experiments.stats import Moments, ratio_test
from experiments.stats.interaction import Interaction, interaction_test
from ingest.errors import BadInput

Segments = dict[str, tuple[Moments, Moments]]


def arm(random: np.random.Generator, units: int, level: float) -> Moments:
    turns = random.poisson(10, units) + 1
    return Moments.of(
        random.binomial(turns, np.clip(random.normal(level, 0.1, units), 0, 1)), turns
    )


def segments(effects: list[float], units: int = 400, seed: int = 1) -> Segments:
    random = np.random.default_rng(seed)
    return {
        f"s{at}": (arm(random, units + 50 * at, 0.4), arm(random, units, 0.4 + effect))
        for at, effect in enumerate(effects)
    }


def shares(passed: int, units: int) -> Moments:
    return Moments.of([1] * passed + [0] * (units - passed))


def number(value: float | None) -> float:
    assert value is not None
    return value


def test_the_test_and_the_shrinkage_are_those_of_a_meta_analysis() -> None:
    given = segments([0.0, 0.05, -0.03, 0.08])
    found = interaction_test(given)
    effects = [ratio_test(*arms) for arms in given.values()]
    sizes = np.array([number(effect.estimate) for effect in effects])
    variances = np.array([number(effect.std_error) ** 2 for effect in effects])
    meta = combine_effects(sizes, variances, method_re="dl")
    assert found.test.df == 3
    assert found.test.statistic == pytest.approx(meta.q, rel=1e-10)
    assert found.test.p_value == pytest.approx(stats.chi2.sf(meta.q, 3), rel=1e-10)
    assert found.differ
    trust = meta.tau2 / (meta.tau2 + variances)
    expected = meta.mean_effect_re + trust * (sizes - meta.mean_effect_re)
    assert [each.shrunk for each in found.segments] == pytest.approx(expected, rel=1e-10)
    assert [each.trust for each in found.segments] == pytest.approx(trust, rel=1e-10)
    # The test again, as a quadratic form of differences from the first segment.
    contrast = np.column_stack([-np.ones(3), np.eye(3)])
    form = contrast @ np.diag(variances) @ contrast.T
    gaps = contrast @ sizes
    assert found.test.statistic == pytest.approx(gaps @ np.linalg.solve(form, gaps), rel=1e-8)


def test_ps_inside_the_family_are_holms() -> None:
    found = interaction_test(segments([0.0, 0.05, -0.03, 0.08]))
    raw = [number(each.effect.p_value) for each in found.segments]
    expected = multipletests(raw, method="holm")[1]
    assert [each.p_holm for each in found.segments] == pytest.approx(expected, rel=1e-12)


def test_alike_segments_are_shrunk_to_one_effect() -> None:
    same = shares(40, 100), shares(50, 100)
    found = interaction_test({"go": same, "rust": same, "c": same})
    assert found.test.statistic == pytest.approx(0)
    assert not found.differ
    for each in found.segments:
        assert each.shrunk == pytest.approx(0.1)
        assert each.trust == 0


def test_a_pot_that_says_the_opposite_of_its_segments_is_told() -> None:
    """Simpson's paradox: the arms' mixes differ, so segments are weighted by the control's."""
    found = interaction_test(
        {
            "easy": (shares(810, 900), shares(95, 100)),
            "hard": (shares(30, 100), shares(315, 900)),
        }
    )
    assert number(found.crude.estimate) == pytest.approx(0.41 - 0.84)
    assert number(found.standardised.estimate) == pytest.approx(0.9 * 0.05 + 0.1 * 0.05)
    assert found.reversed
    assert (found.standardised.n_control, found.standardised.n_treatment) == (1000, 1000)


def test_the_standardised_effect_of_a_ratio_holds_the_controls_turns_still() -> None:
    given = segments([0.02, 0.06])
    found = interaction_test(given)
    turns = np.array([arms[0].n * arms[0].den_mean for arms in given.values()])
    weights = turns / turns.sum()
    rates = np.array([[side.mean / side.den_mean for side in arms] for arms in given.values()])
    assert found.standardised.estimate == pytest.approx(weights @ (rates[:, 1] - rates[:, 0]))
    errors = [number(each.effect.std_error) for each in found.segments]
    assert found.standardised.std_error == pytest.approx(sqrt(((weights * errors) ** 2).sum()))
    # The control's part of it is its own plain rate.
    whole = sum((arms[0] for arms in given.values()), Moments.of([]))
    assert weights @ rates[:, 0] == pytest.approx(whole.mean / whole.den_mean)
    assert not found.reversed


def test_one_segment_is_its_own_standard() -> None:
    only = segments([0.05])
    found = interaction_test(only)
    assert found.test.reason == "fewer than two segments have an effect"
    assert not found.differ
    alone = ratio_test(*only["s0"])
    assert found.standardised.estimate == alone.estimate
    assert found.standardised.df == pytest.approx(alone.df)
    assert found.segments[0].p_holm == alone.p_value
    assert (found.segments[0].shrunk, found.segments[0].trust) == (alone.estimate, 1)


def test_a_segment_without_an_effect_is_named_and_not_made_up() -> None:
    found = interaction_test(segments([0.0, 0.1]) | {"zig": (shares(0, 1), shares(1, 5))})
    assert found.left_out == ("zig",)
    assert found.test.df == 1
    last = found.segments[-1]
    assert (last.p_holm, last.shrunk, last.trust) == (None, None, None)
    assert last.effect.reason == "an arm has fewer than 2 units"
    assert found.crude.n_control == found.standardised.n_control + 1


def test_nothing_to_compare_gives_reasons() -> None:
    found: Interaction = interaction_test({})
    assert found.segments == ()
    assert found.test.reason == "fewer than two segments have an effect"
    assert found.standardised.reason == "no segment has an effect"
    assert found.crude.reason == "an arm has fewer than 2 units"
    assert not found.reversed
    few = interaction_test({"a": (shares(3, 9), shares(4, 9)), "b": (shares(2, 9), shares(4, 9))})
    assert few.standardised.method == "standardised to control, few units"


def test_an_alpha_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        interaction_test(segments([0.0, 0.1]), alpha=1.5)
    assert caught.value.errors[0].field == "alpha"


@pytest.mark.slow
def test_segments_that_do_not_differ_are_said_to_at_5_percent() -> None:
    replicates = 1000
    errors = sum(
        interaction_test(segments([0.05] * 6, units=200, seed=seed)).differ
        for seed in range(replicates)
    )
    print(f"interaction test {errors / replicates:.3f}")
    assert abs(errors / replicates - 0.05) <= 3 * sqrt(0.05 * 0.95 / replicates)
