"""Many questions at once: adjusted p-values, and several arms against one control."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from experiments.stats._arm import Arm, unfit
from experiments.stats._asked import Asked, check_word
from experiments.stats._contrast import satterthwaite
from experiments.stats._dunnett import any_beyond, critical
from experiments.stats.effect import Effect
from experiments.stats.moments import Moments
from ingest.errors import BadInput

Adjustment = Literal["holm", "bh", "by", "bonferroni"]
Variances = Literal["pooled", "separate"]

# Closer to 1, an arm is all but free of error beside the control, and grids would be too fine.
_MAX_LOADING = 0.9999


def adjust_pvalues(p: Sequence[float], *, method: Adjustment = "holm") -> NDArray[np.float64]:
    """The p-values of one family, adjusted: reject those below the family's error rate.

    "holm" (the default) and "bonferroni" bound the chance of any false rejection; "bh" bounds the
    expected share of false ones if the tests are independent or positively dependent, "by" under
    any dependence. In the order given. Leave out what has no p: an effect with a reason is no test.

    Raises: BadInput if a p is not in [0, 1] or `method` is unknown.
    Sources: S. Holm, Scand. J. Statist. 6 (1979) 65-70; Y. Benjamini & Y. Hochberg,
    J. R. Statist. Soc. B 57 (1995) 289-300; Y. Benjamini & D. Yekutieli, Annals of Statistics 29
    (2001) 1165-1188.
    """
    check_word("method", method, get_args(Adjustment))
    raw = np.asarray(p, dtype=np.float64)
    if raw.ndim != 1 or not ((raw >= 0) & (raw <= 1)).all():
        raise BadInput.of("p", "must be a list of numbers in [0, 1]")
    tests = len(raw)
    order = np.argsort(raw, kind="stable")
    ranks = np.arange(1, tests + 1)
    if method == "bonferroni":
        ordered = raw[order] * tests
    elif method == "holm":
        ordered = np.maximum.accumulate(raw[order] * (tests + 1 - ranks))
    else:
        dependence = (1 / ranks).sum() if method == "by" else 1.0
        steps = raw[order] * tests * dependence / ranks
        ordered = np.minimum.accumulate(steps[::-1])[::-1]
    adjusted = np.empty(tests)
    adjusted[order] = np.minimum(ordered, 1.0)
    return adjusted


def holm(p_values: Iterable[float | None]) -> list[float | None]:
    """Holm's adjusted p-values, in the order given; what has no p is no member of the family.

    Raises: BadInput if a p is not in [0, 1].
    """
    given = list(p_values)
    adjusted = iter(adjust_pvalues([p for p in given if p is not None]).tolist())
    return [None if p is None else next(adjusted) for p in given]


def dunnett(
    control: Moments,
    arms: Sequence[Moments],
    alpha: float = 0.05,
    *,
    variances: Variances = "pooled",
) -> list[Effect]:
    """Each arm against the one control, in the order given, right for all of them at once.

    If no arm differs, some `p_value` is below `alpha` with probability `alpha`, and all intervals
    together cover 1 - `alpha`; each excludes 0 exactly when its own p is below `alpha`. Narrower
    than Bonferroni's, because the comparisons share the control. The result is computed on fixed
    grids and is the same in every run.

    "pooled" is Dunnett's test: one variance for all arms, exact for normal units. "separate" has
    each arm's own and Satterthwaite's df, as Welch's test has: for arms of unequal spread.

    An arm of fewer than 2 units, or one that cannot be compared, has a `reason` and is no member of
    the family; so have all if the control cannot be.

    Raises: BadInput if `alpha` is not in (0, 1) or `variances` is unknown.
    Sources: C. W. Dunnett, J. Am. Statist. Assoc. 50 (1955) 1096-1121; M. Hasler &
    L. A. Hothorn, Biometrical J. 50 (2008) 793-800.
    """
    check_word("variances", variances, get_args(Variances))
    method = "dunnett" if variances == "pooled" else "dunnett, separate variances"
    asked = [Asked(method, (control.n, arm.n), alpha) for arm in arms]
    spoilt = unfit(control)
    reasons = [spoilt or unfit(arm) for arm in arms]
    fit = [Arm.of(arm) for arm, reason in zip(arms, reasons, strict=True) if reason is None]
    found = iter(_compare(Arm.of(control), fit, variances) if fit else [])
    compared = [next(found) if reason is None else reason for reason in reasons]
    family = tuple(one.loading for one in compared if isinstance(one, _Comparison))
    return [
        question.refuse(one) if isinstance(one, str) else one.answer(question, family)
        for question, one in zip(asked, compared, strict=True)
    ]


@dataclass(frozen=True)
class _Comparison:
    """One arm less the control; `loading` is the control's share of the error."""

    difference: float
    std_error: float
    df: float
    loading: float

    def answer(self, asked: Asked, family: tuple[float, ...]) -> Effect:
        statistic = self.difference / self.std_error
        half = critical(family, self.df, asked.alpha) * self.std_error
        return asked.answer(
            self.difference,
            self.std_error,
            df=self.df,
            statistic=statistic,
            p_value=any_beyond(abs(statistic), family, self.df),
            ci=(self.difference - half, self.difference + half),
        )


def _compare(control: Arm, arms: Sequence[Arm], variances: Variances) -> list[_Comparison | str]:
    """Each arm's comparison, or why there is none."""
    family = [control, *arms]
    df = float(sum(arm.n - 1 for arm in family))
    pooled = sum(arm.variance * arm.n * ((arm.n - 1) / df) for arm in family)

    def compare(arm: Arm) -> _Comparison | str:
        if variances == "pooled":
            base, own, freedom = pooled / control.n, pooled / arm.n, df
        else:
            base, own = control.variance, arm.variance
        total = base + own
        if not isfinite(total):
            return "a moment is too large"
        if not total:
            return "neither arm varies" if variances == "separate" else "no arm varies"
        if variances == "separate":
            freedom = satterthwaite(((base, control.n - 1), (own, arm.n - 1)))
        loading = min(sqrt(base / total), _MAX_LOADING)
        return _Comparison(arm.value - control.value, sqrt(total), freedom, loading)

    return [compare(arm) for arm in arms]
