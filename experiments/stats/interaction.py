"""Does the effect differ between segments, and what is it when the mix is held still?"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np
import scipy
from numpy.typing import NDArray

from experiments.stats._asked import Asked
from experiments.stats._wald import WaldTest
from experiments.stats.effect import TOO_LARGE, Effect, check_alpha
from experiments.stats.moments import Moments
from experiments.stats.multiplicity import adjust_pvalues
from experiments.stats.ratio import FEW_UNITS, ratio_test

Column = NDArray[np.float64]


@dataclass(frozen=True)
class SegmentEffect:
    """One segment's effect, alone and beside the others.

    `p_holm` is adjusted for all segments of the family. `shrunk` is the effect pulled towards the
    common one, by the empirical Bayes share `trust` that is its own (1: as measured, 0: the common
    one); it is the better guess of size, and no test. None where there is no answer.
    """

    name: str
    effect: Effect
    p_holm: float | None
    shrunk: float | None
    trust: float | None


@dataclass(frozen=True)
class Interaction:
    """Whether segments differ, asked before who wins in one.

    `test` is of equal effects in all segments. `standardised` is the mean of the segments' effects
    weighted by where the control's units (for a ratio, its denominators) are, taken as given;
    `crude` puts all units in one pot. `left_out` names the segments whose effect has a reason: they
    are in `crude` and nowhere else.
    """

    test: WaldTest
    segments: tuple[SegmentEffect, ...]
    standardised: Effect
    crude: Effect
    left_out: tuple[str, ...]
    alpha: float

    @property
    def differ(self) -> bool:
        """Whether to speak of segments' winners at all; False is no proof that they are alike."""
        return self.test.p_value is not None and self.test.p_value < self.alpha

    @property
    def reversed(self) -> bool:
        """Simpson's paradox: the pot says the opposite of what the segments say on average."""
        crude, fair = self.crude.estimate, self.standardised.estimate
        return crude is not None and fair is not None and crude * fair < 0


def interaction_test(
    segments: Mapping[str, tuple[Moments, Moments]], *, alpha: float = 0.05
) -> Interaction:
    """Effects (treatment - control) by segment, given as (control, treatment) moments.

    Segments must be fixed before launch and by what was known before exposure, and a unit is in
    one. The test is Wald's chi-square with segments - 1 df. Its `reason`, and no numbers, if fewer
    than two segments have an effect; segments under `FEW_UNITS` units in an arm count, and a
    test that rests on one errs too often.

    Raises: BadInput if `alpha` is not in (0, 1).
    Sources: W. G. Cochran, Biometrics 10 (1954) 101-129; R. DerSimonian & N. Laird, Controlled
    Clinical Trials 7 (1986) 177-188 (shrinkage); S. Holm, Scand. J. Statist. 6 (1979) 65-70.
    """
    check_alpha(alpha)
    with np.errstate(all="ignore"):
        return _interaction(segments, alpha)


def _interaction(segments: Mapping[str, tuple[Moments, Moments]], alpha: float) -> Interaction:
    effects = {name: ratio_test(*arms, alpha=alpha) for name, arms in segments.items()}
    kept = [name for name, effect in effects.items() if effect.reason is None]
    sizes = np.array([effects[name].estimate for name in kept], dtype=np.float64)
    variances = np.array([effects[name].std_error for name in kept], dtype=np.float64) ** 2
    holm = adjust_pvalues([effects[name].p_value or 0.0 for name in kept])
    test = _equal(sizes, variances)
    shrunk, trust = _shrink(sizes, variances)
    beside = {
        name: (float(holm[at]), _finite(shrunk[at]), _finite(trust[at]))
        for at, name in enumerate(kept)
    }
    nothing = Moments(0, 0.0, 0.0)
    pots = [sum((arms[side] for arms in segments.values()), nothing) for side in (0, 1)]
    return Interaction(
        test=test,
        segments=tuple(
            SegmentEffect(name, effect, *beside.get(name, (None, None, None)))
            for name, effect in effects.items()
        ),
        standardised=_standardised({name: (segments[name], effects[name]) for name in kept}, alpha),
        crude=ratio_test(*pots, alpha=alpha),
        left_out=tuple(name for name in effects if name not in beside),
        alpha=alpha,
    )


def _finite(number: float) -> float | None:
    return float(number) if isfinite(number) else None


def _common(sizes: Column, variances: Column) -> float:
    weights = 1 / variances
    return float(weights @ sizes / weights.sum())


def _equal(sizes: Column, variances: Column) -> WaldTest:
    if len(sizes) < 2:
        return WaldTest(None, None, None, "fewer than two segments have an effect")
    # Cochran's Q is Wald's form of all contrasts of independent effects.
    statistic = float(((sizes - _common(sizes, variances)) ** 2 / variances).sum())
    df = len(sizes) - 1
    if not isfinite(statistic):
        return WaldTest(None, None, None, TOO_LARGE)
    return WaldTest(statistic, df, float(scipy.special.chdtrc(df, statistic)))


def _shrink(sizes: Column, variances: Column) -> tuple[Column, Column]:
    """Effects pulled to their common mean, and what share of each is its own."""
    if len(sizes) < 2:
        return sizes, np.ones_like(sizes)
    weights = 1 / variances
    excess = ((sizes - _common(sizes, variances)) ** 2 * weights).sum() - (len(sizes) - 1)
    between = max(0.0, excess / (weights.sum() - (weights**2).sum() / weights.sum()))
    trust = between / (between + variances)
    common = _common(sizes, between + variances)
    return common + trust * (sizes - common), trust


def _standardised(
    kept: Mapping[str, tuple[tuple[Moments, Moments], Effect]], alpha: float
) -> Effect:
    arms = [pair for pair, _ in kept.values()]
    units = sum(control.n for control, _ in arms), sum(treatment.n for _, treatment in arms)
    few = any(min(control.n, treatment.n) < FEW_UNITS for control, treatment in arms)
    asked = Asked("standardised to control" + (", few units" if few else ""), units, alpha)
    mass = np.array([control.n * control.den_mean for control, _ in arms])
    if not len(mass) or mass.sum() == 0:
        return asked.refuse("no segment has an effect")
    weights = mass / mass.sum()
    sizes = np.array([effect.estimate for _, effect in kept.values()], dtype=np.float64)
    parts = [
        (w * (e.std_error or 0.0)) ** 2 for w, (_, e) in zip(weights, kept.values(), strict=True)
    ]
    variance = sum(parts)
    if not 0 < variance < inf:
        return asked.refuse(TOO_LARGE if variance else "no segment varies")
    freedom = sum(
        (part / variance) ** 2 / (e.df or 1.0)
        for part, (_, e) in zip(parts, kept.values(), strict=True)
    )
    return asked.answer(float(weights @ sizes), sqrt(variance), df=1 / freedom)
