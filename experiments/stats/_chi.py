"""How far an estimated standard error is off: chi over the root of its df, on a grid."""

from math import log, log1p, sqrt

import numpy as np
import scipy
from numpy.typing import NDArray

# The density fades like e^-x²/2: a sum over an even grid is then exact to rounding at steps of about
# two thirds of its width, out to where it has lost this many powers of e.
STEP, FADED = 0.7, 40.0


def scales(
    t: float, df: float, step: float = STEP
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard errors over their expectation, and the probability that each stands for.

    On a grid of logarithms around the one that carries most of P(T > t); for t = 0, around 1.
    `step` is in parts of the density's width.
    """
    reach = sqrt(FADED / df)
    peak = -0.5 * log1p(t * t / df)
    width = step * min(0.2, 1 / sqrt(2 * df))
    logs = np.arange(peak - reach - FADED / df, peak + reach + width, width)
    log_mass = log(2 * width) + _stirling(df / 2) + df * (logs - np.expm1(2 * logs) / 2)
    return np.exp(logs), np.exp(log_mass)


def _stirling(a: float) -> float:
    """What a log(a) - a - log(gamma(a)) is, of which little is left when a is large."""
    if a < 200:
        return a * log(a) - a - float(scipy.special.gammaln(a))
    return 0.5 * log(a / (2 * np.pi)) - 1 / (12 * a) + 1 / (360 * a**3)
