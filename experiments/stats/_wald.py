"""Several differences tested at once."""

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

# What is left of a direction's variance below this share of the largest is rounding.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class WaldTest:
    """Chi-square of a vector that is 0 under the null; no numbers where `reason` is not None."""

    statistic: float | None
    df: int | None
    p_value: float | None
    reason: str | None = None


def wald_test(vector: NDArray[np.float64], covariance: NDArray[np.float64]) -> WaldTest:
    """The quadratic form d' V⁻ d, with one df per direction that varies.

    An outcome that never happened, or that is what the others leave over, takes a direction away
    as an empty column takes one from a contingency table.
    """
    if not (np.isfinite(vector).all() and np.isfinite(covariance).all()):
        return WaldTest(None, None, None, "a moment is not finite")
    scale = np.sqrt(np.diag(covariance))
    varies = scale > 0
    if not varies.any():
        return WaldTest(None, None, None, "nothing varies")
    unit = vector[varies] / scale[varies]
    sizes, directions = np.linalg.eigh(
        covariance[np.ix_(varies, varies)] / np.outer(scale[varies], scale[varies])
    )
    kept = sizes > _ROUNDING * sizes[-1]
    statistic = float(((directions[:, kept].T @ unit) ** 2 / sizes[kept]).sum())
    if not np.isfinite(statistic):
        return WaldTest(None, None, None, "a moment is not finite")
    df = int(kept.sum())
    return WaldTest(statistic, df, float(scipy.special.chdtrc(df, statistic)))
