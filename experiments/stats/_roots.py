"""Roots by bracketing, from scipy."""

from collections.abc import Callable

import scipy


def brentq(
    f: Callable[[float], float], a: float, b: float, *, xtol: float = 2e-12, rtol: float = 1e-15
) -> float:
    """Where `f` changes its sign between `a` and `b`. Raises: ValueError if it has one sign there.

    Source: R. P. Brent, Algorithms for Minimization Without Derivatives (1973), chapter 4.
    """
    return float(scipy.optimize.brentq(f, a, b, xtol=xtol, rtol=rtol))
