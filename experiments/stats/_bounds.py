"""What silent turns may hide: bounds, and the tilt that would turn a result round."""

from dataclasses import dataclass
from math import exp, isfinite, log, nan, sqrt
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from experiments.stats._roots import brentq

Method = Literal["manski", "lee"]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Bounds:
    """Shares of satisfied turns that the data allow, or the `reason` why there are none.

    `control`, `treatment` and `effect` are the estimated bounds of each arm's share and of
    treatment - control; `ci` covers the true difference, which is somewhere between the bounds,
    with probability 1 - `alpha`.
    """

    method: Method
    control: Interval | None
    treatment: Interval | None
    effect: Interval | None
    ci: Interval | None
    alpha: float
    reason: str | None = None


@dataclass(frozen=True)
class Sensitivity:
    """How unlike the raters of two arms must be to turn the difference in approval round.

    If in one arm a satisfied user is `gamma` times as likely to rate as an unsatisfied one, and in
    the other `gamma` times less likely, both arms may please alike. 1: nothing is needed.
    """

    gamma: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Rates:
    """Thumbs up and down per turn of one arm, and their covariance as estimates."""

    up: float
    down: float
    covariance: NDArray[np.float64]

    @property
    def response(self) -> float:
        return self.up + self.down


def manski(control: Rates, treatment: Rates, alpha: float) -> Bounds:
    """Every silent turn may be satisfied, or none."""
    base, other = ((arm.up, 1 - arm.down) for arm in (control, treatment))
    effect = (other[0] - base[1], other[1] - base[0])
    low = sqrt(treatment.covariance[0, 0] + control.covariance[1, 1])
    high = sqrt(treatment.covariance[1, 1] + control.covariance[0, 0])
    return Bounds("manski", base, other, effect, _cover(effect, (low, high), alpha), alpha)


def lee(control: Rates, treatment: Rates, alpha: float) -> Bounds:
    """Among turns that are rated in either arm, if an arm only adds raters or only loses some."""
    flipped = control.response > treatment.response
    least, most = (treatment, control) if flipped else (control, treatment)
    if least.response <= 0:
        return Bounds("lee", None, None, None, None, alpha, "an arm has no thumbs")
    rated = least.response
    point = least.up / rated
    # The surplus raters are trimmed from the arm that has them: all satisfied, or none of them.
    low, high = max(0.0, 1 - most.down / rated), min(1.0, most.up / rated)
    # Gradients by (up, down) of `most`, then of `least`.
    lowest = (0.0, -1 / rated) if low > 0 else (0.0, 0.0)
    highest = (1 / rated, 0.0) if high < 1 else (0.0, 0.0)
    # `least` enters through the number of raters and through its own share.
    by_rated = np.array([most.down if low > 0 else 0.0, -most.up if high < 1 else 0.0]) / rated**2
    own = np.array([least.down, -least.up]) / rated**2
    errors = tuple(
        _error(most, np.array(edge)) + _error(least, by_rated[side] - own)
        for side, edge in enumerate((lowest, highest))
    )
    effect = (low - point, high - point)
    spread = (sqrt(errors[0]), sqrt(errors[1]))
    ci = _cover(effect, spread, alpha)
    if flipped:
        effect, ci = (-effect[1], -effect[0]), (-ci[1], -ci[0])
        return Bounds("lee", (low, high), (point, point), effect, ci, alpha)
    return Bounds("lee", (point, point), (low, high), effect, ci, alpha)


def sensitivity(control: Rates, treatment: Rates) -> Sensitivity:
    """The smallest tilt, the same in size for both arms, at which they may please alike."""
    if min(control.up, control.down, treatment.up, treatment.down) <= 0:
        return Sensitivity(None, "an arm has no thumbs up, or none down")
    odds = [log(arm.up / arm.down) for arm in (control, treatment)]
    # No tilt moves an arm's share out of what its silent turns allow.
    low = max(float(scipy.special.logit(arm.up)) for arm in (control, treatment))
    high = min(float(scipy.special.logit(1 - arm.down)) for arm in (control, treatment))
    if low > high:
        return Sensitivity(None, "no tilt turns it round: too few turns are silent")
    common = min(max(sum(odds) / 2, low), high)
    return Sensitivity(exp(max(abs(each - common) for each in odds)))


def _error(arm: Rates, gradient: NDArray[np.float64]) -> float:
    # A form that no covariance has is below 0 by rounding, or is none.
    return max(float(gradient @ arm.covariance @ gradient), 0.0)


def _cover(bounds: Interval, errors: Interval, alpha: float) -> Interval:
    """An interval for what lies between two estimated bounds.

    Source: G. W. Imbens & C. F. Manski, Econometrica 72 (2004) 1845-1857.
    """
    width, widest = bounds[1] - bounds[0], max(errors)
    if widest == 0 or not isfinite(widest):
        return bounds if widest == 0 else (nan, nan)
    two_sided = -float(scipy.special.ndtri(alpha / 2))

    def surplus(quantile: float) -> float:
        return float(
            scipy.special.ndtr(quantile + width / widest) - scipy.special.ndtr(-quantile)
        ) - (1 - alpha)

    quantile = two_sided if surplus(two_sided) <= 0 else brentq(surplus, 0, two_sided)
    return bounds[0] - quantile * errors[0], bounds[1] + quantile * errors[1]
