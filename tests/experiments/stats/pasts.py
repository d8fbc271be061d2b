"""Units with a past, for the tests of CUPED."""

import numpy as np
from numpy.typing import NDArray

from experiments.stats.cuped import PreMoments

Floats = NDArray[np.float64]


def pair(random: np.random.Generator, n: int, *, slope: float, level: float = 5.0) -> Floats:
    """(outcome, covariate) with variances slope² + 1 and 1, so ρ² = slope² / (slope² + 1)."""
    past = random.normal(2, 1, n)
    return np.stack((level + slope * (past - 2) + random.normal(0, 1, n), past))


def users(random: np.random.Generator, n: int, gain: float = 0.0) -> dict[str, Floats]:
    """Accepted suggestions and suggestions of each user, now and before."""
    liking = random.beta(3, 5, n)
    before, now = random.poisson(9, n) + 1, random.poisson(12, n) + 1
    return {
        "past": random.binomial(before, liking).astype(float),
        "past_size": before.astype(float),
        "value": random.binomial(now, np.minimum(liking + gain, 1)).astype(float),
        "size": now.astype(float),
    }


def ratios(arm: dict[str, Floats]) -> PreMoments:
    return PreMoments.of(
        arm["value"], arm["past"], denominators=arm["size"], pre_denominators=arm["past_size"]
    )


def arms_of(seed: int, n: int = 300, m: int = 200) -> tuple[dict[str, Floats], dict[str, Floats]]:
    random = np.random.default_rng(seed)
    return users(random, n), users(random, m, 0.05)
