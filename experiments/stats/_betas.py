"""The difference of two independent beta variables, by sums on fixed grids."""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import scipy
from numpy.typing import NDArray

# A beta's density over its logit fades exponentially on both sides: out to here nothing is left.
_FADED = 80.0


@dataclass(frozen=True)
class Beta:
    """Posterior of a rate: `hits` and `misses` are counts with the prior's added, above 0."""

    hits: float
    misses: float

    @property
    def mean(self) -> float:
        return self.hits / (self.hits + self.misses)

    @property
    def variance(self) -> float:
        total = self.hits + self.misses
        return self.hits * self.misses / total**2 / (total + 1)

    def below(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(scipy.special.betainc(self.hits, self.misses, np.clip(x, 0.0, 1.0)))

    def above(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(scipy.special.betaincc(self.hits, self.misses, np.clip(x, 0.0, 1.0)))

    def grid(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rates and the probability that each stands for, on an even grid of logits."""
        deviation = sqrt(1 / self.hits + 1 / self.misses)
        step = min(0.02, deviation / 6)
        # Left of the mode the log density falls by at least hits (-x - log 2) or as a normal's.
        left = sqrt(2 * _FADED) * deviation + _FADED / self.hits
        right = sqrt(2 * _FADED) * deviation + _FADED / self.misses
        centre = log(self.hits / self.misses)
        logits = np.arange(centre - left, centre + right + step, step)
        log_rate, log_rest = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
        # Scaled by the sum, not by betaln, which loses nine digits at a million counts.
        log_mass = self.hits * log_rate + self.misses * log_rest
        mass = np.exp(log_mass - log_mass.max())
        return np.exp(log_rate), mass / mass.sum()


def exceeds(upper: Beta, lower: Beta, gap: float = 0.0) -> float:
    """P(upper - lower > gap), to 1e-12; to 1e-5 with a gap between arms of two or three units."""
    # The narrower density carries the grid: the other's distribution is smooth beside it.
    if upper.variance < lower.variance:
        rates, mass = upper.grid()
        return min(float(mass @ lower.below(rates - gap)), 1.0)
    rates, mass = lower.grid()
    return min(float(mass @ upper.above(rates + gap)), 1.0)
