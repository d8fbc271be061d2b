from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from experiments.stats import Effect, Moments
from experiments.stats.effect import Scale
from experiments.stats.quantiles import (
    QuantileSummary,
    bound_levels,
    cluster_factor,
    needed_events,
    quantile_test,
)
from ingest.errors import BadInput
from tests.experiments.answers import answered
from tests.experiments.vectors import vector

Floats = NDArray[np.float64]

Z = float(norm.isf(0.025))


def latencies(random: np.random.Generator, users: int, each: int, *shape: int) -> Floats:
    """Seconds of `each` requests a user; log latencies correlate 0.5 within a user."""
    own = random.normal(0, sqrt(0.5), (*shape, users, 1))
    return np.exp(own + random.normal(0, sqrt(0.5), (*shape, users, each)))


def summary(requests: Floats, q: float, *, timeout: float | None = None) -> QuantileSummary:
    """Of one row of requests per user."""
    ids = np.repeat(np.arange(len(requests)), requests.shape[1])
    return QuantileSummary.of(requests.ravel(), ids, q, timeout=timeout)


def test_the_published_case_holds() -> None:
    given_, expected = vector("quantile-1")["input"], vector("quantile-1")["expected"]
    control, treatment = (
        QuantileSummary(given_["nu"], arm["n"], arm["n"], arm["q"], arm["lower"], arm["upper"])
        for arm in (given_["control"], given_["treatment"])
    )
    scales: tuple[Scale, Scale] = ("absolute", "relative")
    for scale, interval in zip(scales, ("ci", "rel_ci"), strict=True):
        effect = quantile_test(control, treatment, 0.9, clustered=False, scale=scale)
        estimate, std_error, _, ci = answered(effect)
        assert estimate == pytest.approx(expected[scale], rel=1e-5)
        # The source's interval is a posterior's, symmetric and normal; ours is Student's, and the
        # lift's Fieller's.
        symmetric = estimate - Z * std_error, estimate + Z * std_error
        assert symmetric == pytest.approx(expected[interval], rel=1e-5)
        assert ci == pytest.approx(expected[interval], rel=3e-3)


def test_each_arms_own_count_of_events_is_its_n() -> None:
    """growthbook/growthbook#5369: the count of events was wrong for all arms but the first."""
    random = np.random.default_rng(1)
    first, second = latencies(random, 80, 10), latencies(random, 60, 30)
    arms = summary(first, 0.9), summary(second, 0.9)
    assert [(arm.n, arm.n_units) for arm in arms] == [(800, 80), (1800, 60)]
    effect, swapped = quantile_test(*arms, 0.9), quantile_test(*arms[::-1], 0.9)
    assert (effect.n_control, effect.n_treatment) == (80, 60)
    assert (swapped.n_control, swapped.n_treatment) == (60, 80)
    estimate, std_error, p_value, (low, high) = answered(effect)
    assert answered(swapped)[:3] == pytest.approx((-estimate, std_error, p_value), rel=1e-12)
    assert answered(swapped)[3] == pytest.approx((-high, -low), rel=1e-12)
    for arm, requests in zip(arms, (first, second), strict=True):
        levels = (arm.n * 0.9 - Z * sqrt(arm.n * 0.09), arm.n * 0.9 + Z * sqrt(arm.n * 0.09))
        lower, upper = np.quantile(requests, np.array(levels) / arm.n)
        assert (arm.lower, arm.upper) == pytest.approx((lower, upper), rel=1e-12)


def test_a_bootstrap_of_units_finds_the_same_error() -> None:
    random = np.random.default_rng(2)
    requests = latencies(random, 400, 10)
    arm = summary(requests, 0.9)
    draws = random.integers(0, 400, (1000, 400))
    bootstrap = np.quantile(requests[draws].reshape(1000, -1), 0.9, axis=1).std(ddof=1)
    assert arm.lower is not None
    assert arm.upper is not None
    independent = (arm.upper - arm.lower) / 2 / Z
    assert independent * sqrt(arm.factor) == pytest.approx(bootstrap, rel=0.1)
    assert independent < 0.7 * bootstrap, "independent events would do, then"


def test_the_factor_is_the_delta_methods_variance_over_the_binomials() -> None:
    random = np.random.default_rng(3)
    sizes = random.poisson(5, 300) + 1
    values = random.normal(np.repeat(random.normal(0, 1, 300), sizes), 1)
    ids = np.repeat(np.arange(300), sizes)
    arm = QuantileSummary.of(values, ids, 0.75)
    assert arm.value is not None
    below = np.array([(values[ids == unit] <= arm.value).sum() for unit in range(300)])
    share = below.sum() / sizes.sum()
    residuals = below - share * sizes
    variance = residuals @ residuals / 299 / 300 / sizes.mean() ** 2
    expected = variance / (0.75 * 0.25 / len(values))
    assert arm.factor == pytest.approx(expected, rel=1e-10)
    assert cluster_factor(Moments.of(below, sizes), 0.75) == pytest.approx(expected, rel=1e-10)


def test_one_event_a_unit_has_a_factor_near_1_and_ids_may_be_text() -> None:
    values = np.random.default_rng(4).lognormal(0, 1, 2000)
    ids = np.array([f"user {i}" for i in range(2000)])
    arm = QuantileSummary.of(values, ids, 0.5)
    assert arm.n == arm.n_units == 2000
    assert arm.factor == pytest.approx(1, rel=1e-3)
    pair = quantile_test(arm, arm, 0.5), quantile_test(arm, arm, 0.5, clustered=False)
    assert pair[0].std_error == pytest.approx(pair[1].std_error, rel=1e-3)


@given(seed=st.integers(0, 2**32 - 1), q=st.sampled_from([0.1, 0.5, 0.9]), c=st.floats(0.01, 100))
def test_another_unit_of_time_scales_the_effect_and_keeps_p_and_lift(
    seed: int, q: float, c: float
) -> None:
    random = np.random.default_rng(seed)
    control, treatment = latencies(random, 60, 4), latencies(random, 70, 4)

    def tested(scale: float) -> tuple[Effect, Effect]:
        arms = summary(scale * control, q), summary(scale * treatment, q)
        return quantile_test(*arms, q), quantile_test(*arms, q, scale="relative")

    (absolute, lift), (scaled, scaled_lift) = tested(1.0), tested(c)
    assert answered(scaled)[:2] == pytest.approx(
        (c * answered(absolute)[0], c * answered(absolute)[1]), rel=1e-9
    )
    assert scaled.p_value == pytest.approx(absolute.p_value, rel=1e-6)
    if lift.ci is not None and absolute.ci is not None:
        assert scaled_lift.ci == pytest.approx(lift.ci, rel=1e-6)
        assert (lift.ci[0] > 0, lift.ci[1] < 0) == (absolute.ci[0] > 0, absolute.ci[1] < 0)


def test_the_order_of_events_does_not_matter() -> None:
    random = np.random.default_rng(5)
    values, ids = random.lognormal(0, 1, 900), random.integers(0, 90, 900)
    order = random.permutation(900)
    assert QuantileSummary.of(values, ids, 0.9) == QuantileSummary.of(
        values[order], ids[order], 0.9
    )


@pytest.mark.parametrize(
    ("q", "needed"), [(0.5, 4), (0.9, 35), (0.95, 73), (0.99, 381), (0.01, 381)]
)
def test_a_quantile_with_too_few_events_for_its_bounds_has_a_reason(q: float, needed: int) -> None:
    assert needed_events(q) == needed
    assert needed - 1 <= Z**2 * max(q / (1 - q), (1 - q) / q) < needed
    values = np.random.default_rng(6).normal(size=needed)
    few, enough = (QuantileSummary.of(values[:n], np.arange(n), q) for n in (needed - 1, needed))
    assert (few.lower, few.upper) == (None, None)
    assert few.value is not None
    effect = quantile_test(few, enough, q)
    assert effect.reason == (f"an arm has {needed - 1} events, and this quantile needs {needed}")
    assert effect.std_error is None
    assert quantile_test(enough, enough, q).reason is None
    low, high = bound_levels(q, needed)
    assert 0 < low < q < high < 1
    with pytest.raises(BadInput, match="n:"):
        bound_levels(q, needed - 1)


@pytest.mark.parametrize("step", [10.0, 1.0, 0.5])
def test_a_bound_that_collapses_on_discrete_data_means_no_interval(step: float) -> None:
    requests = latencies(np.random.default_rng(7), 200, 5)
    rounded = summary(np.round(requests / step) * step, 0.5)
    effect = quantile_test(summary(requests, 0.5), rounded, 0.5)
    assert effect.reason == "a bound is equal to the quantile: too many events share one value"
    assert effect.std_error is None


def test_timeouts_are_counted_and_reach_no_interval() -> None:
    requests = latencies(np.random.default_rng(8), 200, 10)
    free = summary(requests, 0.9)
    assert free.value is not None
    assert free.upper is not None
    far, near = free.upper * 1.5, (free.upper + free.value) / 2
    late = summary(np.minimum(requests, far), 0.9, timeout=far)
    assert late.censored == np.count_nonzero(requests >= far)
    assert late.censored_share == pytest.approx(late.censored / 2000)
    assert quantile_test(free, late, 0.9).estimate == pytest.approx(0.0, abs=1e-12)
    cut = summary(np.minimum(requests, near), 0.9, timeout=near)
    assert quantile_test(free, cut, 0.9).reason == "timeouts reach the quantile's upper bound"


def test_arms_without_units_have_a_reason() -> None:
    nothing = QuantileSummary.of([], [], 0.9)
    one = summary(latencies(np.random.default_rng(9), 1, 100), 0.9)
    assert (nothing.value, nothing.censored_share) == (None, 0.0)
    for arm in (nothing, one):
        assert quantile_test(arm, arm, 0.9).reason == "an arm has fewer than 2 units"


def test_under_50_units_the_method_says_so() -> None:
    arm = summary(latencies(np.random.default_rng(10), 49, 10), 0.9)
    assert quantile_test(arm, arm, 0.9).method == "clustered quantile, few units"
    assert quantile_test(arm, arm, 0.9, clustered=False).method == "quantile of independent events"


def test_summaries_of_another_quantile_are_refused() -> None:
    arm = summary(latencies(np.random.default_rng(11), 50, 10), 0.9)
    with pytest.raises(BadInput, match="q:"):
        quantile_test(arm, arm, 0.95)
    with pytest.raises(BadInput, match="alpha"):
        quantile_test(arm, arm, 0.9, alpha=1.5)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"q": 1.0}, "q"),
        ({"q": float("nan")}, "q"),
        ({"n_units": 101}, "n_units"),
        ({"censored": 101}, "censored"),
        ({"factor": float("nan")}, "factor"),
        ({"factor": -1.0}, "factor"),
        ({"lower": 6.0}, "value"),
        ({"upper": float("inf")}, "value"),
    ],
)
def test_a_summary_that_cannot_be_is_refused(fields: dict[str, float], field: str) -> None:
    sound = {"q": 0.5, "n": 100, "n_units": 50, "value": 5.0, "lower": 4.0, "upper": 6.0}
    with pytest.raises(BadInput) as caught:
        QuantileSummary(**{**sound, **fields})  # type: ignore[arg-type]
    assert caught.value.errors[0].field == field


def test_a_summary_without_bounds_that_needs_them_is_refused() -> None:
    arm = QuantileSummary(0.5, 100, 50, 5.0, None, None)
    with pytest.raises(BadInput, match="lower"):
        quantile_test(arm, arm, 0.5)


@pytest.mark.parametrize("values", [[1.0, float("inf")], [1.0, float("nan")], [1.0], [[1.0, 2.0]]])
def test_values_that_are_no_column_beside_their_units_are_refused(values: ArrayLike) -> None:
    with pytest.raises(BadInput):
        QuantileSummary.of(values, ["a", "b"], 0.5)


@pytest.mark.slow
def test_a_p95_of_10_requests_per_user_errs_at_5_percent_and_without_clusters_at_24() -> None:
    replicates, users = 2000, 400
    random = np.random.default_rng(20_261_130)
    errors = {True: 0, False: 0}
    for _ in range(replicates):
        control, treatment = (summary(each, 0.95) for each in latencies(random, users, 10, 2))
        for clustered in errors:
            effect = quantile_test(control, treatment, 0.95, clustered=clustered)
            errors[clustered] += answered(effect)[2] < 0.05
    rates = {clustered: count / replicates for clustered, count in errors.items()}
    print(f"\nclustered {rates[True]:.1%}, independent events {rates[False]:.1%}")
    assert abs(rates[True] - 0.05) < 3 * sqrt(0.05 * 0.95 / replicates)
    assert rates[False] > 0.18
