from math import e, exp, inf, log, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from experiments.stats import ratio_test
from experiments.stats.group_sequential import (
    Boundaries,
    classical_bounds,
    crossing_probability,
    group_sequential_bounds,
)
from experiments.stats.moments import Moments
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector

FIFTHS = [0.2, 0.4, 0.6, 0.8, 1.0]


def inside(information: list[float], upper: list[float], sides: int) -> float:
    """The chance to cross no bound, from scipy's integral of the joint normal density."""
    t = np.array(information)
    cov = np.sqrt(np.minimum.outer(t, t) / np.maximum.outer(t, t))
    high = np.minimum(upper, 12.0)
    low = -high if sides == 2 else np.full(len(t), -12.0)
    joint = multivariate_normal(cov=cov, allow_singular=True, abseps=1e-6, releps=1e-6, seed=1)
    return float(joint.cdf(high, lower_limit=low))


def test_the_published_constants_hold() -> None:
    given_ = vector("group-sequential-1")["input"]
    designs: dict[str, list[Boundaries]] = {
        design: [classical_bounds(k, design=design, alpha=given_["alpha"]) for k in given_["K"]]
        for design in ("pocock", "obrien-fleming")
    }
    agrees(
        "group-sequential-1",
        {
            "pocock": [bounds.upper[-1] for bounds in designs["pocock"]],
            "obf": [bounds.upper[-1] for bounds in designs["obrien-fleming"]],
            "obf_k5": designs["obrien-fleming"][given_["K"].index(5)].upper,
        },
    )
    for bounds in (*designs["pocock"], *designs["obrien-fleming"]):
        assert bounds.spent[-1] == pytest.approx(0.05, abs=1e-8)


def test_fixed_tests_read_again_err_as_often_as_was_published() -> None:
    given_ = vector("peeking-1")["input"]
    z = -norm.ppf(given_["nominal"] / 2)
    agrees(
        "peeking-1",
        [crossing_probability([i + 1 for i in range(k)], [z] * k)[-1] for k in given_["looks"]],
    )


def test_the_spending_bounds_are_those_of_ldbounds() -> None:
    # Reboussin, DeMets, Kim & Lan, Controlled Clinical Trials 21 (2000), and ldbounds' manual.
    two_sided = group_sequential_bounds(FIFTHS)
    assert two_sided.upper == pytest.approx((4.877, 3.357, 2.680, 2.290, 2.031), abs=6e-4)
    assert two_sided.nominal_p == pytest.approx(2 * norm.sf(two_sided.upper))
    # A one-sided test at α has the bounds of the two-sided one at 2α.
    one_sided = group_sequential_bounds(FIFTHS, alpha=0.025, sides=1)
    assert one_sided.upper == pytest.approx(two_sided.upper, abs=1e-6)
    assert one_sided.lower == (-inf,) * 5


@pytest.mark.parametrize(
    ("spending", "phi", "share"),
    [
        ("obf", 2.0, lambda t: 4 * norm.sf(norm.isf(0.0125) / sqrt(t)) / 0.05),
        ("pocock", 2.0, lambda t: log(1 + (e - 1) * t)),
        ("power", 3.0, lambda t: t**3),
        ("hsd", -4.0, lambda t: (1 - exp(4 * t)) / (1 - exp(4))),
        ("hsd", 0.0, lambda t: t),
    ],
)
def test_error_is_spent_as_the_formula_says(spending: Any, phi: float, share: Any) -> None:
    bounds = group_sequential_bounds(FIFTHS, spending=spending, phi=phi)
    assert bounds.spent == pytest.approx([0.05 * share(t) for t in FIFTHS])
    assert crossing_probability(FIFTHS, bounds.upper) == pytest.approx(bounds.spent, abs=1e-12)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize(
    ("information", "spending", "alpha"),
    [
        ([0.1, 0.9], "pocock", 0.05),
        ([0.3, 0.35, 1.0], "power", 0.1),
        ([0.25, 0.5, 0.75], "hsd", 0.2),
        ([0.4, 0.8, 1.3], "obf", 0.01),
    ],
)
def test_the_bounds_hold_against_scipys_joint_normal(
    information: list[float], spending: Any, alpha: float, sides: Any
) -> None:
    bounds = group_sequential_bounds(information, alpha=alpha, spending=spending, sides=sides)
    outside = 1 - inside(information, list(bounds.upper), sides)
    assert outside == pytest.approx(bounds.spent[-1], abs=2e-5)


def test_two_looks_a_moment_apart_are_almost_one() -> None:
    bounds = group_sequential_bounds([0.5, 0.50001, 1.0], spending="power", phi=1.0)
    apart = group_sequential_bounds([0.5, 1.0], spending="power", phi=1.0)
    assert bounds.upper[0] == apart.upper[0]
    assert bounds.upper[2] == pytest.approx(apart.upper[1], abs=1e-3)


def test_an_earlier_bound_never_depends_on_a_later_look() -> None:
    full = group_sequential_bounds([0.1, 0.35, 0.7, 1.0]).upper
    for looks in range(1, 4):
        assert group_sequential_bounds([0.1, 0.35, 0.7, 1.0][:looks]).upper == pytest.approx(
            full[:looks], abs=1e-9
        )


def test_a_late_look_keeps_its_own_bound_and_ends_the_spending() -> None:
    late = group_sequential_bounds([0.5, 0.9, 1.2, 1.5])
    assert late.spent[2:] == pytest.approx((0.05, 0.05), abs=1e-15)
    assert late.upper[3] == inf
    assert late.upper[:2] == group_sequential_bounds([0.5, 0.9]).upper
    # The late look is less correlated with the earlier ones than one at 1 would be.
    assert late.upper[2] > group_sequential_bounds([0.5, 0.9, 1.0]).upper[2]
    total = crossing_probability([0.5, 0.9, 1.2], late.upper[:3])[-1]
    assert total == pytest.approx(0.05, abs=1e-10)


def test_the_third_arm_has_bounds_of_its_own_information() -> None:
    """(c) 23, spotify/confidence#77: its limits were the first's, and groups were added up."""
    control = Moments(9000, 1.0, 4.0)
    arms = {"b": Moments(9000, 1.0, 4.0), "c": Moments(4000, 1.0, 4.0), "d": Moments(900, 1.0, 4.0)}
    planned = sqrt(4 / 10_000 + 4 / 10_000)  # each comparison's standard error at its end
    shares = {}
    for name, arm in arms.items():
        error = ratio_test(control, arm).std_error
        assert error is not None
        shares[name] = (planned / error) ** 2
    together = {name: group_sequential_bounds([share]) for name, share in shares.items()}
    assert together["b"].upper < together["c"].upper < together["d"].upper
    for name, share in shares.items():
        assert together[name].spent[0] == pytest.approx(
            4 * norm.sf(norm.isf(0.0125) / sqrt(share)), rel=1e-9
        )
        assert together[name].information == (share,)


@pytest.mark.parametrize(
    ("design", "inflation"), [("pocock", (1.229, 1.207)), ("obrien-fleming", (1.028, 1.026))]
)
def test_power_is_kept_by_the_published_inflation_of_the_sample(
    design: Any, inflation: tuple[float, float]
) -> None:
    # Jennison & Turnbull 2000, Tables 2.2 and 2.4, 5 looks, α = 0.05.
    bounds = classical_bounds(5, design=design)
    for power, factor in zip((0.8, 0.9), inflation, strict=True):
        drift = (norm.isf(0.025) + norm.ppf(power)) * sqrt(factor)
        reached = crossing_probability(FIFTHS, bounds.upper, drift=drift)[-1]
        assert reached == pytest.approx(power, abs=5e-4)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"information": []}, "information"),
        ({"information": [0.0, 1.0]}, "information"),
        ({"information": [0.5, 0.5]}, "information"),
        ({"information": [0.5, float("nan")]}, "information"),
        ({"information": [0.5, inf]}, "information"),
        ({"information": [1.0], "alpha": 1.5}, "alpha"),
        ({"information": [1.0], "spending": "linear"}, "spending"),
        ({"information": [1.0], "spending": "power", "phi": 0.0}, "phi"),
        ({"information": [1.0], "spending": "hsd", "phi": float("nan")}, "phi"),
        ({"information": [1.0], "sides": 3}, "sides"),
    ],
)
def test_plans_that_make_no_sense_are_refused_by_name(
    arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        group_sequential_bounds(**arguments)
    assert [error.field for error in refused.value.errors] == [field]


def test_other_questions_that_make_no_sense_are_refused() -> None:
    for looks, design in ((0, "pocock"), (5, "haybittle")):
        with pytest.raises(BadInput):
            classical_bounds(looks, design=design)  # type: ignore[arg-type]
    for upper, drift in (([1.96], 0.0), ([0.0, 1.0], 0.0), ([1.0, 2.0], inf)):
        with pytest.raises(BadInput):
            crossing_probability([0.5, 1.0], upper, drift=drift)


@pytest.mark.slow
def test_thirty_looks_err_at_alpha_where_a_daily_fixed_test_errs_at_28_percent() -> None:
    replicates, looks = 20_000, 30
    shares = [look / looks for look in range(1, looks + 1)]
    random = np.random.default_rng(20_261_205)
    z = []
    for _ in range(replicates // 1000):
        outcomes = random.lognormal(0, 1.0, (2, 1000, looks, 100))
        n = 100 * np.arange(1, looks + 1)
        mean = outcomes.sum(axis=-1).cumsum(axis=-1) / n
        square = (outcomes**2).sum(axis=-1).cumsum(axis=-1) / n
        variance = (square - mean**2) / (n - 1)
        z.append((mean[1] - mean[0]) / np.sqrt(variance.sum(axis=0)))
    scores = np.abs(np.concatenate(z))
    fixed = float((scores > 1.959964).any(axis=1).mean())
    print(f"\n30 looks at 5 %: a fixed test {fixed:.3f}", end="")
    for spending in ("obf", "pocock", "power", "hsd"):
        bounds = group_sequential_bounds(shares, spending=spending)
        rate = float((scores > np.array(bounds.upper)).any(axis=1).mean())
        print(f", {spending} {rate:.4f}", end="")
        assert rate <= 0.05 + 3 * sqrt(0.05 * 0.95 / replicates)
    print()
    assert fixed > 0.25
