"""Plans that no number of units fulfils, or that make no sense."""

from math import ceil, inf

import pytest

from experiments.stats import Moments
from experiments.stats.group_sequential import group_sequential_bounds
from experiments.stats.power import (
    minimum_detectable_effect,
    proportion_n,
    sample_size,
    t_test_n,
    t_test_power,
)
from ingest.errors import BadInput
from tests.experiments.stats.test_power import K2, REVENUE, mde


def test_what_no_number_of_units_can_show_is_unreachable() -> None:
    # n < k² v / m²: the lift's error grows faster than the lift.
    least = K2 * 900 / 3.75**2
    assert mde(minimum_detectable_effect(REVENUE, ceil(least) + 3)) > 10
    for plan in (
        minimum_detectable_effect(REVENUE, int(least)),
        minimum_detectable_effect(0.9, 10),
        sample_size(0.6, 1.0),
        sample_size(0.6, -1.2),
        minimum_detectable_effect(REVENUE, 2, alpha=1e-6, power=0.5, scale="absolute"),
        sample_size(REVENUE, 1e200),
    ):
        assert plan.reason is not None
        assert plan.reason.startswith("unreachable")
        assert plan.n_control is plan.n_treatment is plan.total is plan.mde is plan.days is None


@pytest.mark.parametrize(
    ("baseline", "reason"),
    [
        (Moments(1, 1.0, 0.0), "an arm has fewer than 2 units"),
        (Moments(100, 1.0, 0.0), "the baseline does not vary"),
        (Moments(100, 0.0, 1.0), "the baseline is 0, so its lift is undefined"),
    ],
)
def test_no_honest_plan_is_a_reason_without_numbers(baseline: Moments, reason: str) -> None:
    for plan in (sample_size(baseline, 0.1), minimum_detectable_effect(baseline, 1000)):
        assert plan.reason == reason
        assert plan.n_control is plan.mde is None


def test_bad_plans_are_refused_with_their_field() -> None:
    bounds = group_sequential_bounds([0.5, 1.0], alpha=0.01)
    for baseline, change, design, field in (
        (0.05, 0.0, {}, "mde"),
        (0.05, float("nan"), {}, "mde"),
        (1.0, 0.1, {}, "baseline"),
        (0.05, 0.1, {"alpha": 1.5}, "alpha"),
        (0.05, 0.1, {"alpha": 0.6, "sides": 1}, "alpha"),
        (0.05, 0.1, {"power": 0.04}, "power"),
        (0.05, 0.1, {"power": 1.0}, "power"),
        (0.05, 0.1, {"rho": 1.0}, "rho"),
        (0.05, 0.1, {"ratio": 0.0}, "ratio"),
        (0.05, 0.1, {"design_effect": inf}, "design_effect"),
        (0.05, 0.1, {"sides": 3}, "sides"),
        (0.05, 0.1, {"looks": 0}, "looks"),
        (0.05, 0.1, {"guardrails": -1}, "guardrails"),
        (0.05, 0.1, {"units_per_day": -5.0}, "units_per_day"),
        (0.05, 0.1, {"units_per_day": 0.0}, "units_per_day"),
        (0.05, 0.1, {"scale": "log"}, "scale"),
        (0.05, 0.1, {"sequential": "hsd"}, "sequential"),
        (0.05, 0.1, {"sequential": bounds}, "sequential"),
    ):
        with pytest.raises(BadInput, match=field):
            sample_size(baseline, change, **design)
    with pytest.raises(BadInput, match="n_control"):
        minimum_detectable_effect(0.05, 1)
    with pytest.raises(BadInput, match="n"):
        t_test_power(0.5, 1)
    with pytest.raises(BadInput, match="effect_size"):
        t_test_n(0.0)
    with pytest.raises(BadInput, match="p_treatment"):
        proportion_n(0.5, 0.5)
