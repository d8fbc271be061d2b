"""Student's t of several arms against one control: the chance that any of them is far out."""

from functools import lru_cache
from math import log, sqrt

import numpy as np
import scipy

from experiments.stats._chi import FADED, STEP, scales
from experiments.stats._roots import brentq

_FINEST = 20_000
_CERTAIN = 1e-200


def any_beyond(t: float, loadings: tuple[float, ...], df: float) -> float:
    """P(|T_i| > t for any i) where T_i and T_j correlate by loadings[i] * loadings[j].

    `df` is that of the variance which all T share. The integrals over the control's deviation and
    over that variance are sums on fixed grids: the same in every run, and exact to about 1e-9 of
    the probability however small. Below 1e-200 it is the sum of the arms' own, a bound.

    Source: C. W. Dunnett, J. Am. Statist. Assoc. 50 (1955) 1096-1121.
    """
    single = 2 * float(scipy.special.stdtr(df, -t))
    if single < _CERTAIN:
        return single * len(loadings)
    weights = np.array(loadings)[:, None, None]
    own = np.sqrt(1 - weights**2)
    edge = sqrt(2 * (FADED - log(single)))
    step = max(STEP * float(own.min()), edge / _FINEST)
    # The integrand is even in z.
    z = np.arange(0, edge + step, step)
    density = 2 * step / sqrt(2 * np.pi) * np.exp(-(z**2) / 2)
    density[0] /= 2
    errors, mass = scales(t, df)
    limits, shift = (t * errors)[None, :, None], weights * z[None, None, :]
    beyond = scipy.special.ndtr((shift - limits) / own) + scipy.special.ndtr(
        (-shift - limits) / own
    )
    with np.errstate(divide="ignore"):
        any_arm = -np.expm1(np.log1p(-np.minimum(beyond, 1.0)).sum(axis=0))
    return min(float(mass @ any_arm @ density), 1.0)


@lru_cache(maxsize=256)
def critical(loadings: tuple[float, ...], df: float, alpha: float) -> float:
    """The t for which `any_beyond` is `alpha`."""

    def excess(t: float) -> float:
        return log(any_beyond(t, loadings, df) / alpha)

    # Between one arm's t and Bonferroni's.
    low, high = (
        -scipy.special.stdtrit(df, alpha / 2),
        -scipy.special.stdtrit(df, alpha / 2 / len(loadings)),
    )
    return float(brentq(excess, max(low - 1e-6, 0.0), high + 1e-6, xtol=1e-11, rtol=1e-11))
