from math import ceil, inf, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import norm
from statsmodels.stats.power import TTestIndPower

from experiments.stats import Effect, Moments
from experiments.stats.group_sequential import classical_bounds, group_sequential_bounds
from experiments.stats.power import (
    Plan,
    minimum_detectable_effect,
    proportion_n,
    proportion_power,
    sample_size,
    t_test_n,
    t_test_power,
)
from experiments.stats.sequential import confidence_sequence
from experiments.stats.welch import noninferiority_test, welch_test
from tests.experiments.vectors import agrees, vector

K2 = (norm.isf(0.025) + norm.isf(0.2)) ** 2
REVENUE = Moments(10_000, 3.75, 900.0)


def units(plan: Plan) -> int:
    assert plan.reason is None
    assert plan.n_control is not None
    return plan.n_control


def mde(plan: Plan) -> float:
    assert plan.reason is None
    assert plan.mde is not None
    return plan.mde


def share_moments(rate: float) -> Moments:
    return Moments(10_000, rate, rate * (1 - rate))


def test_the_published_plans_hold() -> None:
    case = vector("power-1")["input"]
    rules = [
        (
            share_moments(rule["baseline"])
            if "baseline" in rule
            else Moments(10_000, rule["mean"], rule["sd"] ** 2),
            rule["relative_mde"],
        )
        for rule in case["rule_of_thumb"]
    ]
    planned = [units(sample_size(base, part * base.mean, scale="absolute")) for base, part in rules]
    agrees(
        "power-1",
        {
            "t_test_n": t_test_n(
                case["t_test"]["effect_size"],
                power=case["t_test"]["power"],
                alpha=case["t_test"]["alpha"],
            ),
            "prop_n": proportion_n(**as_shares(case["prop_n"])),
            "prop_power": proportion_power(**as_shares(case["prop_power"])),
            # The rule's 16 is 2 (z + z)² = 15.7 rounded up; plans are whole units.
            "rule_of_thumb_n": [8 / K2 * n for n in planned],
        },
    )


def as_shares(case: dict[str, float]) -> dict[str, Any]:
    rest = {key: value for key, value in case.items() if key not in {"p1", "p2"}}
    return {"p_control": case["p1"], "p_treatment": case["p2"], **rest}


@given(
    st.floats(0.05, 2), st.floats(0.5, 0.99), st.floats(0.001, 0.2), st.sampled_from([0.25, 1, 3])
)
def test_the_t_tests_units_are_statsmodels(
    effect_size: float, power: float, alpha: float, ratio: float
) -> None:
    n = t_test_n(effect_size, power=power, alpha=alpha, ratio=ratio)
    theirs = TTestIndPower().power(effect_size, n, alpha, ratio=ratio)
    assume(np.isfinite(theirs))
    assert t_test_power(effect_size, n, alpha=alpha, ratio=ratio) == pytest.approx(theirs, rel=1e-8)
    if n > max(2, 2 / ratio):
        assert theirs == pytest.approx(power, rel=1e-8)
    if ratio == 1:
        # Student's share in closed form: within a unit or two even where ten are enough.
        planned = sample_size(
            Moments(100, 0.0, 1.0), effect_size, scale="absolute", power=power, alpha=alpha
        )
        assert abs(units(planned) - ceil(n)) <= max(2, 0.01 * n)


def test_a_mean_needs_k_squared_times_both_variances() -> None:
    n = units(sample_size(REVENUE, 0.2, scale="absolute"))
    assert n == pytest.approx(K2 * 2 * 900 / 0.04, abs=2)
    unequal = sample_size(REVENUE, 0.2, scale="absolute", ratio=0.25)
    assert units(unequal) == pytest.approx(K2 * 900 * 5 / 0.04, abs=6)
    assert unequal.n_treatment == pytest.approx(units(unequal) / 4, abs=1)
    assert unequal.total == units(unequal) + (unequal.n_treatment or 0)


def test_a_lifts_own_error_grows_with_it() -> None:
    # Both arms' relative errors, by the delta method: v / m² (1 + (1 + r)²) = r² n / k².
    n = units(sample_size(REVENUE, 0.5))
    assert n == pytest.approx(K2 * 900 / 3.75**2 * (1 + 1.5**2) / 0.25, abs=2)
    treatment = Moments(n, 3.75 * 1.5, 900.0)
    planned = welch_test(Moments(n, 3.75, 900.0), treatment, scale="relative")
    assert planned.std_error is not None
    assert 0.5 / planned.std_error == pytest.approx(sqrt(K2), rel=2e-3)


@given(
    st.floats(0.5, 100),
    st.floats(0.1, 100),
    st.floats(0.01, 1),
    st.sampled_from(["absolute", "relative"]),
    st.sampled_from([0.2, 1.0, 4.0]),
)
def test_the_smallest_effect_of_a_plans_units_is_the_plans(
    mean: float, variance: float, change: float, scale: Any, ratio: float
) -> None:
    baseline, design = Moments(100, mean, variance), {"scale": scale, "ratio": ratio}
    n = units(sample_size(baseline, change, **design))
    assume(n > 50)
    found = mde(minimum_detectable_effect(baseline, n, **design))
    fewer = mde(minimum_detectable_effect(baseline, n - 1, **design))
    assert found <= change * (1 + 1e-9) <= fewer * (1 + 2e-9)


@given(st.floats(0.001, 0.9), st.integers(20, 10**7), st.sampled_from(["absolute", "relative"]))
def test_the_smallest_change_of_a_share_is_its_plans(rate: float, n: int, scale: Any) -> None:
    plan = minimum_detectable_effect(rate, n, scale=scale)
    assume(plan.reason is None)
    assert units(sample_size(rate, mde(plan), scale=scale)) in {n, n + 1}


def test_a_fall_is_planned_with_no_less_than_the_absolute_tests_units() -> None:
    fall, absolute = sample_size(REVENUE, -0.2), sample_size(REVENUE, -0.75, scale="absolute")
    assert units(fall) == units(absolute)
    # A guardrail's margin moves with the control, which then counts for less.
    margin = sample_size(REVENUE, -0.2, sides=1)
    k2 = (norm.isf(0.05) + norm.isf(0.2)) ** 2
    assert units(margin) == pytest.approx(k2 * 900 * (0.8**2 + 1) / 0.75**2, abs=2)


def test_a_share_is_planned_as_r_does() -> None:
    # R 4: power.prop.test(p1 = .5, p2 = .75, power = .9) says n = 76.7.
    assert units(sample_size(0.5, 0.25, scale="absolute", power=0.9)) == 77
    assert units(sample_size(0.5, 0.5, power=0.9)) == 77
    assert units(sample_size(0.5, -0.5, power=0.9)) == 77


def test_covariates_clusters_and_days_enter_as_factors() -> None:
    plain = units(sample_size(0.05, 0.05))
    assert units(sample_size(0.05, 0.05, rho=0.6)) == pytest.approx(plain * 0.64, abs=1)
    # 20 turns a user at an intra-user correlation of 0.1.
    assert units(sample_size(0.05, 0.05, design_effect=2.9)) == pytest.approx(plain * 2.9, abs=1)
    plan = sample_size(0.05, 0.05, units_per_day=10_000)
    assert plan.days == ceil(2 * plain / 10_000)
    assert minimum_detectable_effect(0.05, plain, units_per_day=10_000).days == plan.days
    assert sample_size(0.05, 0.05).days is None


def test_a_ratio_metric_is_planned_on_users_by_the_delta_method() -> None:
    random = np.random.default_rng(4)
    turns = random.poisson(19, 5000) + 1
    thumbs = Moments.of(random.binomial(turns, random.beta(2.7, 6.3, 5000)), turns)
    change = 0.02
    n = units(sample_size(thumbs, change, scale="absolute"))
    arm = Moments(n, thumbs.mean, thumbs.var, thumbs.den_mean, thumbs.den_var, thumbs.cov)
    error = welch_test(arm, arm).std_error
    assert error is not None
    assert change / error == pytest.approx(sqrt(K2), rel=3e-3)


def test_guardrails_share_what_the_plan_may_miss() -> None:
    # Schultzberg et al.: each of G + 1 tests at power 1 - β / (G + 1).
    plan = sample_size(0.05, 0.05, guardrails=3)
    assert plan.power == pytest.approx(0.95)
    assert units(plan) == units(sample_size(0.05, 0.05, power=0.95))


def test_group_sequential_plans_cost_what_the_tables_say() -> None:
    # C. Jennison & B. W. Turnbull (2000), tables 2.2 and 2.4: alpha 0.05, power 0.8.
    plain = units(sample_size(REVENUE, 0.05, scale="absolute"))
    for design, costs in (
        ("pocock", {2: 1.110, 3: 1.166, 4: 1.202, 5: 1.229, 10: 1.301}),
        ("obrien-fleming", {2: 1.008, 3: 1.017, 4: 1.024, 5: 1.028, 10: 1.040}),
    ):
        for looks, cost in costs.items():
            bounds = classical_bounds(looks, design=design)  # type: ignore[arg-type]
            n = units(sample_size(REVENUE, 0.05, scale="absolute", sequential=bounds))
            assert n / plain == pytest.approx(cost, abs=1.1e-3), (design, looks)


def test_named_spending_is_the_one_of_its_bounds() -> None:
    for name in ("obf", "pocock"):
        bounds = group_sequential_bounds([0.25, 0.5, 0.75, 1.0], spending=name)
        assert sample_size(0.05, 0.05, sequential=name, looks=4) == sample_size(
            0.05, 0.05, sequential=bounds
        )
        once = sample_size(0.05, 0.05, sequential=name, looks=1)
        assert units(once) == pytest.approx(units(sample_size(0.05, 0.05)), abs=1)


@pytest.mark.parametrize("sides", [1, 2])
def test_an_always_valid_plan_clears_0_by_the_reserve_at_its_end(sides: Any) -> None:
    plan = sample_size(REVENUE, 1.0, scale="absolute", sequential="always-valid", sides=sides)
    n = units(plan)
    error = sqrt(2 * 900 / n)
    effect = Effect(1.0, error, inf, 1 / error, 0.5, (0, 1), 0.05, "absolute", "x", n, n)
    side = "two-sided" if sides == 2 else "lower"
    sequence = confidence_sequence(effect, 2 * n, tuning_n=2 * n, side=side)  # type: ignore[arg-type]
    assert sequence.ci is not None
    assert sequence.ci[0] / error == pytest.approx(norm.isf(0.2), rel=5e-3)
    few = sample_size(REVENUE, 1000.0, scale="absolute", sequential="always-valid")
    assert units(few) == 200, "the burn-in"


@pytest.mark.slow
def test_planned_power_is_met() -> None:
    random, replicates = np.random.default_rng(7), 2000

    def seen(n: int, lift: float) -> float:
        arms = random.normal([[[10.0]], [[10.0 * (1 + lift)]]], 6.0, (2, replicates, n))
        return float(
            np.mean(
                [
                    (welch_test(Moments.of(one), Moments.of(other)).p_value or 0) < 0.05
                    for one, other in zip(*arms, strict=True)
                ]
            )
        )

    baseline = Moments(100, 10.0, 36.0)
    n = units(sample_size(baseline, 1.0, scale="absolute"))
    assert abs(seen(n, 0.1) - 0.8) < 3 * sqrt(0.16 / replicates)
    # Planned as a lift, with its own error, the absolute test has a little more.
    relative = units(sample_size(baseline, 0.1))
    assert relative > n
    assert seen(relative, 0.1) > 0.8
    margin = units(sample_size(baseline, -0.05, sides=1))
    safe = [
        noninferiority_test(Moments.of(one), Moments.of(other), margin=0.05).p_value or 0
        for one, other in random.normal(10.0, 6.0, (replicates, 2, margin))
    ]
    assert np.mean(np.array(safe) < 0.05) == pytest.approx(0.8, abs=3 * sqrt(0.16 / replicates))
