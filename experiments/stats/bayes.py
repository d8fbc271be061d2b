"""What to believe of an effect: normal and beta-binomial posteriors, closed forms, no draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, isfinite, pi, sqrt
from typing import Self

import numpy as np
import scipy

from experiments.stats._betas import Beta, exceeds
from experiments.stats._roots import brentq
from experiments.stats.effect import (
    MOST,
    TOO_LARGE,
    Effect,
    Scale,
    check_alpha,
    is_count,
    known,
)
from ingest.errors import BadInput

_FARTHEST = 1e100

FEWEST_PAST_EFFECTS = 10
"""Below this many past effects their spread says too little of the next one's."""


@dataclass(frozen=True)
class NormalPrior:
    """A belief about the effect before the data: normal, in the units of `scale`.

    An infinite `sd` is the flat prior, which fits any scale.
    Raises: BadInput if `mean` is not finite or `sd` not above 0.
    """

    mean: float = 0.0
    sd: float = inf
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        if not isfinite(self.mean):
            raise BadInput.of("mean", f"must be finite, not {self.mean}")
        if not self.sd > 0:
            raise BadInput.of("sd", f"must be above 0, not {self.sd}")

    def absolute(self, control_mean: float) -> "NormalPrior":
        """The same belief in the metric's units: both numbers times |control_mean|.

        Raises: BadInput if `control_mean` is 0 or not finite: a lift over 0 is undefined.
        """
        if not isfinite(control_mean) or control_mean == 0:
            raise BadInput.of("control_mean", f"must be a number other than 0, not {control_mean}")
        if self.scale == "absolute":
            return self
        size = abs(control_mean)
        return NormalPrior(self.mean * size, self.sd * size, "absolute")

    @classmethod
    def fit(cls, past: Sequence[Effect]) -> Self:
        """The prior that past effects of the same metric were drawn from (empirical Bayes).

        Mean and sd of the true effects, the noise of each estimate taken off, by Paule and
        Mandel's moments. Give every experiment that was run, losers too: chosen winners make a
        prior that believes in winners. Effects with a reason are left out.

        Raises: BadInput if fewer than `FEWEST_PAST_EFFECTS` have numbers, their scales differ, or
        they differ no more than their noise does: then there is no spread to learn.
        Source: R. C. Paule & J. Mandel, J. Res. Nat. Bur. Standards 87 (1982) 377-385.
        """
        told = {at: numbers for at, each in enumerate(past) if (numbers := known(each))}
        scales = {past[at].scale for at in told}
        if len(told) < FEWEST_PAST_EFFECTS:
            raise BadInput.of("past", f"{len(told)} effects: give {FEWEST_PAST_EFFECTS} or more")
        if len(scales) > 1:
            raise BadInput.of("past", "all effects must be of one scale")
        estimates, errors = np.array(list(told.values())).T
        if max(np.abs(estimates).max(), errors.max()) > _FARTHEST or errors.min() < 1 / _FARTHEST:
            raise BadInput.of("past", TOO_LARGE)
        noise = errors**2

        def centre(spread: float) -> float:
            return float(np.average(estimates, weights=1 / (noise + spread)))

        def excess(spread: float) -> float:
            off = (estimates - centre(spread)) ** 2 / (noise + spread)
            return float(off.sum()) - (len(told) - 1)

        if excess(0.0) <= 0:
            raise BadInput.of(
                "past", "the effects differ no more than their noise: use a set prior"
            )
        most = float(((estimates - estimates.mean()) ** 2).sum()) * 4
        spread = float(brentq(excess, 0.0, most, xtol=1e-300, rtol=1e-12))
        return cls(centre(spread), sqrt(spread), scales.pop())


@dataclass(frozen=True)
class ExpectedLoss:
    """What is lost on average, in the effect's units, if that arm is chosen and it is the worse."""

    control: float
    treatment: float


@dataclass(frozen=True)
class Posterior:
    """Belief about the effect after the data; every number is None where `reason` is not.

    `mean`, `sd` and `credible_interval` are of treatment - control in the units of `scale`; the
    interval leaves `alpha` / 2 on each side. `chance_to_win` is the probability that the treatment
    is the better one. Read daily with a flat prior, these err as often as a fixed test read daily.
    """

    mean: float | None
    sd: float | None
    chance_to_win: float | None
    expected_loss: ExpectedLoss | None
    credible_interval: tuple[float, float] | None
    alpha: float
    scale: Scale
    reason: str | None = None


def posterior(
    effect: Effect, prior: NormalPrior | None = None, *, lower_is_better: bool = False
) -> Posterior:
    """The effect's estimate and the prior, each weighted by its precision; no prior is a flat one.

    The interval has the effect's `alpha`. `reason` where the effect has one, or its standard error
    is 0.

    Raises: BadInput if a prior that is not flat has another scale than the effect: rescale it with
    `NormalPrior.absolute`; or if the effect's numbers are not finite.
    """
    given = prior or NormalPrior()
    if given.sd < inf and given.scale != effect.scale:
        raise BadInput.of("prior", f"is {given.scale}, the effect {effect.scale}: rescale one")
    if effect.estimate is None or not effect.std_error:
        return _no_belief(effect, effect.reason or "the effect has no error")
    known(effect)
    check_alpha(effect.alpha)
    # By the ratio of errors: a precision of 1 / 1e-320 would be infinite.
    ratio = effect.std_error / given.sd
    weight = 1 / (1 + ratio * ratio)
    mean = effect.estimate * weight + given.mean * (1 - weight)
    sd = effect.std_error / hypot(1, ratio)
    half = -float(scipy.special.ndtri(effect.alpha / 2)) * sd
    gain = -mean if lower_is_better else mean
    if not (sd > 0 and isfinite(mean / sd)):
        return _no_belief(effect, TOO_LARGE)
    return Posterior(
        mean=mean,
        sd=sd,
        chance_to_win=float(scipy.special.ndtr(gain / sd)),
        expected_loss=ExpectedLoss(control=_above_0(gain, sd), treatment=_above_0(-gain, sd)),
        credible_interval=(mean - half, mean + half),
        alpha=effect.alpha,
        scale=effect.scale,
    )


def _no_belief(effect: Effect, reason: str) -> Posterior:
    return Posterior(None, None, None, None, None, effect.alpha, effect.scale, reason)


def beta_binomial(
    control: tuple[int, int],
    treatment: tuple[int, int],
    prior: tuple[float, float] = (1.0, 1.0),
    *,
    lower_is_better: bool = False,
    alpha: float = 0.05,
) -> Posterior:
    """Difference of two rates, each arm (successes, units) with the same beta prior.

    Exact for any counts, 0 included: sums on fixed grids, to about 1e-12 (the limits of two or
    three units to 1e-5); losses by x Beta(x; a, b) = a / (a + b) Beta(x; a + 1, b). Units are
    independent.

    Raises: BadInput if a count is no whole number in [0, units], a count of the prior is
    below 0.01, or `alpha` is not in (0, 1).
    Source: E. Miller, Formulas for Bayesian A/B Testing (2014).
    """
    check_alpha(alpha)
    if not all(0.01 <= count <= MOST for count in prior):
        raise BadInput.of("prior", f"must be two counts in [0.01, {MOST}], not {prior}")
    base, other = _updated("control", control, prior), _updated("treatment", treatment, prior)
    keeping, shipping = _mean_excess(other, base), _mean_excess(base, other)
    chance = exceeds(other, base)
    if lower_is_better:
        keeping, shipping, chance = shipping, keeping, exceeds(base, other)
    return Posterior(
        mean=other.mean - base.mean,
        sd=sqrt(base.variance + other.variance),
        chance_to_win=chance,
        expected_loss=ExpectedLoss(control=keeping, treatment=shipping),
        credible_interval=(
            -_upper_limit(base, other, alpha / 2),
            _upper_limit(other, base, alpha / 2),
        ),
        alpha=alpha,
        scale="absolute",
    )


def _above_0(mean: float, sd: float) -> float:
    """E max(X, 0) of a normal X."""
    z = mean / sd
    # Far below 0 the two terms cancel to rounding, which may be negative.
    return max(sd * exp(-z * z / 2) / sqrt(2 * pi) + mean * float(scipy.special.ndtr(z)), 0.0)


def _mean_excess(upper: Beta, lower: Beta) -> float:
    """E max(upper - lower, 0)."""
    more = replace(upper, hits=upper.hits + 1), replace(lower, hits=lower.hits + 1)
    return max(upper.mean * exceeds(more[0], lower) - lower.mean * exceeds(upper, more[1]), 0.0)


def _upper_limit(upper: Beta, lower: Beta, tail: float) -> float:
    """The gap that upper - lower exceeds with probability `tail`."""
    return float(brentq(lambda gap: exceeds(upper, lower, gap) - tail, -1.0, 1.0, xtol=1e-13))


def _updated(field: str, arm: tuple[int, int], prior: tuple[float, float]) -> Beta:
    successes, units = arm
    if not (is_count(successes) and is_count(units)):
        raise BadInput.of(field, f"must be whole counts, not {successes} of {units}")
    if not 0 <= successes <= units:
        raise BadInput.of(field, f"must have 0 to {units} successes, not {successes}")
    return Beta(prior[0] + successes, prior[1] + units - successes)
