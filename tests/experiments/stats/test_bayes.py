from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import beta as beta_function
from statsmodels.stats.meta_analysis import combine_effects

from experiments.stats import Effect, Moments
from experiments.stats.bayes import (
    FEWEST_PAST_EFFECTS,
    ExpectedLoss,
    NormalPrior,
    Posterior,
    beta_binomial,
    posterior,
)
from experiments.stats.welch import welch_test
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector


def effect(
    estimate: float, std_error: float, *, alpha: float = 0.05, scale: str = "relative"
) -> Effect:
    z = estimate / std_error
    ci = (estimate - 2 * std_error, estimate + 2 * std_error)
    return Effect(estimate, std_error, inf, z, 0.5, ci, alpha, scale, "x", 100, 100)  # type: ignore[arg-type]


def refused(reason: str) -> Effect:
    return Effect(None, None, None, None, None, None, 0.05, "relative", "x", 1, 1, reason)


def belief(found: Posterior) -> tuple[float, float, float, ExpectedLoss, tuple[float, float]]:
    assert found.reason is None
    assert found.mean is not None
    assert found.sd is not None
    assert found.chance_to_win is not None
    assert found.expected_loss is not None
    assert found.credible_interval is not None
    return (
        found.mean,
        found.sd,
        found.chance_to_win,
        found.expected_loss,
        found.credible_interval,
    )


def test_the_published_posterior_holds() -> None:
    case = vector("bayes-normal-1")["input"]
    # The published case has the population's variance.
    arms = [Moments(n, hits / n, hits / n * (1 - hits / n)) for hits, n in (case["a"], case["b"])]
    mean, sd, chance, loss, ci = belief(posterior(welch_test(*arms, scale="relative")))
    given_ = case["posterior_for_risk"]
    second = belief(posterior(effect(given_["mean"], given_["sd"])))[3]
    agrees(
        "bayes-normal-1",
        {
            "est": mean,
            "sd": sd,
            "ctw": chance,
            "ci": ci,
            "risk_control_then_treatment": [loss.control, loss.treatment],
            "risk2": [second.control, second.treatment],
        },
    )


@settings(max_examples=25)
@given(st.floats(-1, 1), st.floats(0.01, 1), st.floats(-1, 1), st.floats(0.01, 1), st.booleans())
def test_the_normal_posterior_is_bayes_rule_integrated(
    estimate: float, error: float, centre: float, spread: float, lower: bool
) -> None:
    mean, sd, chance, loss, _ = belief(
        posterior(effect(estimate, error), NormalPrior(centre, spread), lower_is_better=lower)
    )
    grid = np.linspace(-8, 8, 40_001)
    log_mass = stats.norm.logpdf(grid, centre, spread) + stats.norm.logpdf(grid, estimate, error)
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    gain = -grid if lower else grid
    assert mean == pytest.approx(float(mass @ grid), abs=1e-8)
    assert sd == pytest.approx(sqrt(float(mass @ (grid - mean) ** 2)), rel=1e-6)
    assert chance == pytest.approx(float(mass @ (gain > 0) + mass[20_000] / 2), abs=1e-4)
    assert loss.control == pytest.approx(float(mass @ np.maximum(gain, 0)), abs=1e-6)
    assert loss.treatment == pytest.approx(float(mass @ np.maximum(-gain, 0)), abs=1e-6)


def test_a_flat_prior_leaves_the_estimate_and_a_strong_one_the_prior() -> None:
    found = belief(posterior(effect(0.1, 0.05)))
    assert found[:2] == (0.1, 0.05)
    strong = belief(posterior(effect(0.1, 0.05), NormalPrior(0.0, 1e-6)))
    assert strong[0] == pytest.approx(0, abs=1e-8)
    assert strong[1] == pytest.approx(1e-6)


def test_effects_ten_thousand_errors_large_have_a_loss() -> None:
    # Truncated-normal libraries overflow here.
    _, _, chance, loss, _ = belief(posterior(effect(1e5, 1.0)))
    assert chance == 1.0
    assert loss == ExpectedLoss(control=1e5, treatment=0.0)
    _, _, _, small, _ = belief(posterior(effect(10.0, 1.0)))
    # E max(-X, 0) of a normal 10 errors above 0, by quadrature.
    expected, _ = integrate.quad(lambda x: -x * stats.norm.pdf(x, 10), -12, 0, epsabs=0)
    assert small.treatment == pytest.approx(expected, rel=1e-9)


def test_the_interval_follows_the_configured_level() -> None:
    """PostHog/posthog#62236: 95 % shown for a configured 90 %."""
    found = posterior(effect(0.1, 0.05, alpha=0.1))
    assert found.alpha == 0.1
    half = stats.norm.isf(0.05) * 0.05
    assert found.credible_interval == pytest.approx((0.1 - half, 0.1 + half))


def test_a_relative_prior_is_rescaled_for_an_absolute_effect() -> None:
    # gbstats compares the wrong object and never rescales; here scales that differ are refused.
    prior = NormalPrior(0.01, 0.3)
    with pytest.raises(BadInput, match="prior"):
        posterior(effect(0.5, 0.2, scale="absolute"), prior)
    lift = belief(posterior(effect(0.1, 0.04), prior))
    for control_mean in (5.0, -5.0):
        whole = belief(posterior(effect(0.5, 0.2, scale="absolute"), prior.absolute(control_mean)))
        assert whole[0] == pytest.approx(5 * lift[0])
        assert whole[1] == pytest.approx(5 * lift[1])
        assert whole[2] == pytest.approx(lift[2])
    assert prior.absolute(2.0).absolute(3.0) == prior.absolute(2.0)
    for control_mean in (0.0, inf):
        with pytest.raises(BadInput, match="control_mean"):
            prior.absolute(control_mean)


def test_an_effect_with_a_reason_has_no_posterior() -> None:
    for prior in (None, NormalPrior(0, 0.3)):
        found = posterior(refused("an arm has fewer than 2 units"), prior)
        assert found.reason == "an arm has fewer than 2 units"
        assert found.mean is found.chance_to_win is None
        assert found.expected_loss is None


def past(spread: float, *, seed: int = 1, units: int = 60) -> list[Effect]:
    random = np.random.default_rng(seed)
    errors = random.uniform(0.01, 0.03, units)
    truths = random.normal(0.005, spread, units)
    return [
        effect(float(one), float(error))
        for one, error in zip(random.normal(truths, errors), errors, strict=True)
    ]


def test_the_fitted_prior_is_paule_and_mandels() -> None:
    effects = past(0.02)
    # Theirs stops at a tolerance of 1e-5, which suits effects in thousands only.
    theirs = combine_effects(
        1e3 * np.array([one.estimate for one in effects]),
        1e6 * np.array([one.std_error or 0 for one in effects]) ** 2,
        method_re="iterated",
    )
    fitted = NormalPrior.fit([*effects, refused("no units")])
    assert fitted.sd * 1e3 == pytest.approx(sqrt(theirs.tau2), rel=1e-5)
    assert fitted.mean * 1e3 == pytest.approx(theirs.mean_effect_re, rel=1e-5)
    assert fitted.scale == "relative"
    assert fitted.sd == pytest.approx(0.02, rel=0.3)


def test_a_prior_cannot_be_learnt_from_too_little() -> None:
    with pytest.raises(BadInput, match="past"):
        NormalPrior.fit(past(0.02)[: FEWEST_PAST_EFFECTS - 1])
    with pytest.raises(BadInput, match="noise"):
        NormalPrior.fit([effect(0.001 * (-1) ** n, 0.02) for n in range(20)])
    with pytest.raises(BadInput, match="scale"):
        NormalPrior.fit([*past(0.02), effect(0.1, 0.1, scale="absolute")])


@settings(max_examples=30)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_the_chance_of_the_better_rate_is_millers_sum(a: int, b: int, c: int, d: int) -> None:
    # E. Miller (2014), with uniform priors: beta(a + 1, b + 1) and beta(c + 1, d + 1).
    expected = sum(
        beta_function(a + 1 + i, b + d + 2)
        / (d + 1 + i)
        / beta_function(1 + i, d + 1)
        / beta_function(a + 1, b + 1)
        for i in range(c + 1)
    )
    found = belief(beta_binomial((a, a + b), (c, c + d)))
    assert found[2] == pytest.approx(expected, rel=1e-9)
    worse = belief(beta_binomial((a, a + b), (c, c + d), lower_is_better=True))
    assert worse[2] == pytest.approx(1 - expected, rel=1e-9, abs=1e-12)
    assert (worse[3].control, worse[3].treatment) == (found[3].treatment, found[3].control)


@pytest.mark.parametrize(
    ("control", "treatment", "prior"),
    [
        ((3, 20), (7, 20), (1.0, 1.0)),
        ((0, 5), (2, 4), (0.5, 0.5)),
        ((30, 1000), (500, 20_000), (2.0, 50.0)),
        ((0, 0), (9, 9), (1.0, 1.0)),
    ],
)
def test_the_difference_of_two_rates_is_integrated_exactly(
    control: tuple[int, int], treatment: tuple[int, int], prior: tuple[float, float]
) -> None:
    base, other = (
        stats.beta(prior[0] + hits, prior[1] + n - hits) for hits, n in (control, treatment)
    )
    mean, sd, _, loss, (low, high) = belief(beta_binomial(control, treatment, prior, alpha=0.1))
    assert mean == pytest.approx(other.mean() - base.mean())
    assert sd == pytest.approx(sqrt(base.var() + other.var()))

    # Over quantiles of the control: the sum is even where the density is not bounded.
    quantiles = base.ppf((np.arange(100_000) + 0.5) / 100_000)
    assert np.mean(other.cdf(quantiles + low)) == pytest.approx(0.05, abs=1e-6)
    assert np.mean(other.cdf(quantiles + high)) == pytest.approx(0.95, abs=1e-6)
    # E max(D, 0) is the integral of P(control < x) P(treatment > x).
    keeping, _ = integrate.quad(lambda x: base.cdf(x) * other.sf(x), 0, 1, epsabs=1e-11, limit=200)
    assert loss.control == pytest.approx(keeping, abs=1e-9)
    assert loss.control - loss.treatment == pytest.approx(mean, abs=1e-10)


def test_a_million_users_agree_with_the_normal_posterior() -> None:
    exact = belief(beta_binomial((50_000, 1_000_000), (50_400, 1_000_000)))
    arms = [Moments(1_000_000, p, p * (1 - p)) for p in (0.05, 0.0504)]
    normal = belief(posterior(welch_test(*arms)))
    assert exact[:3] == pytest.approx(normal[:3], rel=2e-3)
    assert exact[3].treatment == pytest.approx(normal[3].treatment, rel=2e-2)
    assert exact[4] == pytest.approx(normal[4], abs=2e-6)


def test_arms_without_units_say_what_the_prior_says() -> None:
    _, _, chance, loss, (low, high) = belief(beta_binomial((0, 0), (0, 0)))
    assert chance == pytest.approx(0.5)
    # The triangular density of two uniforms' difference.
    assert -low == pytest.approx(high)
    assert high == pytest.approx(1 - sqrt(0.05), abs=1e-5)
    assert loss.control == pytest.approx(1 / 6)
    assert loss.treatment == pytest.approx(1 / 6)


def test_bad_questions_are_refused_with_their_field() -> None:
    for sd in (0.0, -1.0, float("nan")):
        with pytest.raises(BadInput, match="sd"):
            NormalPrior(0, sd)
    with pytest.raises(BadInput, match="mean"):
        NormalPrior(inf, 1)
    for control, treatment, options, field in (
        ((5, 4), (1, 2), {}, "control"),
        ((1, 2), (0.5, 2), {}, "treatment"),
        ((1, 2), (1, 2), {"alpha": 1.0}, "alpha"),
        ((1, 2), (1, 2), {"prior": (0.0, 1.0)}, "prior"),
        ((1, 2), (1, 2), {"prior": (1.0, inf)}, "prior"),
    ):
        with pytest.raises(BadInput, match=field):
            beta_binomial(control, treatment, **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_posterior_under_the_right_prior_is_calibrated() -> None:
    random, replicates = np.random.default_rng(11), 20_000
    truths = random.normal(0.0, 0.02, replicates)
    prior, covered, won = NormalPrior(0.0, 0.02), 0, []
    for truth, estimate in zip(truths, random.normal(truths, 0.03), strict=True):
        _, _, chance, _, (low, high) = belief(posterior(effect(float(estimate), 0.03), prior))
        covered += low <= truth <= high
        won.append((chance, truth > 0))
    assert abs(covered / replicates - 0.95) < 3 * sqrt(0.95 * 0.05 / replicates)
    sure = [better for chance, better in won if 0.8 < chance < 0.9]
    assert abs(np.mean(sure) - 0.85) < 3 * 0.36 / sqrt(len(sure)) + 0.01
