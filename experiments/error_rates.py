"""How often a test erred in a simulation where nothing differs."""

from dataclasses import dataclass
from math import sqrt
from typing import Literal, Protocol, Self

import numpy as np
import scipy

from experiments.resampling import Floats

LEVELS = (0.01, 0.05, 0.1)


class HasP(Protocol):
    """What an estimator gives: `Effect`, `AnytimeResult`, anything with a p value."""

    @property
    def p_value(self) -> float | None: ...


@dataclass(frozen=True)
class ErrorRate:
    """How often a test at `alpha` saw a difference where there is none."""

    alpha: float
    observed: float
    std_error: float
    """Of `observed`; never less than one replicate, as none in 2,000 does not mean never."""
    within: bool
    """No more than 3 standard errors from `alpha`, as a fixed test promises; if it is true to
    `alpha`, that is how far its observed rate may lie."""
    at_most: bool
    """No more than 3 standard errors above `alpha`, as an always valid test promises."""

    @classmethod
    def of(cls, alpha: float, wrong: Floats) -> Self:
        """From the share of wrong answers in each replicate."""
        observed, spread = float(wrong.mean()), float(wrong.std())
        std_error = max(spread / sqrt(len(wrong)), 1 / len(wrong))
        expected = sqrt(alpha * (1 - alpha) / len(wrong))
        # Several comparisons in a replicate are alike in part: how far, only the answers say.
        one_each = bool(np.isin(wrong, (0, 1)).all())
        allowed = 3 * (expected if one_each else std_error)
        gap = observed - alpha
        return cls(alpha, observed, std_error, abs(gap) <= allowed, gap <= allowed)


@dataclass(frozen=True)
class ErrorRates:
    """Of an A/A simulation, so none of it is about an experiment that took place."""

    replicates: int
    looks: int
    unanswered: int
    """Replicates without a p value at the last look; they err nowhere, and are not in `ks_p`."""
    rates: tuple[ErrorRate, ...]
    """At the last look, at each of `LEVELS`."""
    any_look: tuple[ErrorRate, ...]
    """At any of the looks."""
    ks_p: float | None
    """Kolmogorov and Smirnov's p that the last look's p values are uniform."""
    simulated: Literal[True] = True

    @classmethod
    def of(cls, p_values: Floats) -> Self:
        """From (replicates, looks) or (replicates, looks, comparisons) p values; NaN is no answer."""
        each = p_values.reshape(*p_values.shape[:2], -1)
        last = each[:, -1]
        answered = ~np.isnan(last)
        return cls(
            replicates=len(each),
            looks=each.shape[1],
            unanswered=int((~answered.all(axis=1)).sum()),
            rates=tuple(ErrorRate.of(level, (last < level).mean(axis=1)) for level in LEVELS),
            any_look=tuple(
                ErrorRate.of(level, (each < level).any(axis=1).mean(axis=1)) for level in LEVELS
            ),
            # Comparisons with one control are alike, so the first of them alone.
            ks_p=_uniform_p(last[answered[:, 0], 0]),
        )


def _uniform_p(p_values: Floats) -> float | None:
    n = len(p_values)
    if not n:
        return None
    ordered = np.sort(p_values)
    steps = np.arange(n) / n
    gap = float(np.maximum(ordered - steps, steps + 1 / n - ordered).max())
    # M. A. Stephens, J. R. Statist. Soc. B 32 (1970) 115-122: the limit's distribution at any n.
    return float(scipy.special.kolmogorov((sqrt(n) + 0.12 + 0.11 / sqrt(n)) * gap))
