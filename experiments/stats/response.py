"""Approval of all turns from the rated ones, weighted by who tends to rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import mmh3
import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from experiments.stats._asked import Asked, check_word
from experiments.stats.effect import Effect, check_alpha
from experiments.stats.moments import Moments
from experiments.stats.ratio import ratio_test
from ingest.errors import BadInput

FOLDS = 5
"""Parts of the units; each part's chances come from a model that has not seen it."""

WEIGHT_CAP = 20.0
"""No thumb stands in for more than this many times the turns of an average thumb."""

MIN_ESS = 30.0
"""Thumbs, by Kish's count, below which an arm says too little."""

MAX_UNREACHED = 0.05
"""Share of an arm's turns that may be so unlike the rated ones that the cap would bind."""

Method = Literal["ipw", "aipw"]
Column = NDArray[np.float64]

_ROUNDS = 100
_SETTLED = 1e-10
_FARTHEST = 1e100
_NOTHING_LEARNT = "an arm has too few thumbs to learn who rates"


@dataclass(frozen=True, eq=False)
class RatedTurns:
    """One arm's turns, a row each.

    `units` holds the randomised unit of each turn; `rated` whether it got a thumb; `up` 1 for a
    thumb up and 0 otherwise, read where `rated` only; `features` what may drive rating and was
    known before the thumb (columns of numbers, without an intercept).
    """

    units: Sequence[str]
    rated: Column
    up: Column
    features: Column

    @classmethod
    def of(
        cls, units: Sequence[str], rated: ArrayLike, up: ArrayLike, features: ArrayLike
    ) -> "RatedTurns":
        """The turns, checked.

        Raises: BadInput if lengths differ, `rated` is not 0 or 1, a rated turn's `up` is not 0 or
        1, or a feature is not finite.
        """
        flags, ups = np.asarray(rated, np.float64), np.asarray(up, np.float64)
        table = np.asarray(features, np.float64)
        turns = len(units)
        if flags.shape != (turns,) or not np.isin(flags, (0, 1)).all():
            raise BadInput.of("rated", f"0 or 1 for each of {turns} turns")
        if ups.shape != (turns,) or not np.isin(ups[flags == 1], (0, 1)).all():
            raise BadInput.of("up", f"0 or 1 for each rated one of {turns} turns")
        if table.ndim != 2 or len(table) != turns or not (np.abs(table) <= _FARTHEST).all():
            raise BadInput.of("features", f"{turns} rows of numbers within ±{_FARTHEST}")
        return cls(units, flags, np.where(flags == 1, ups, 0.0), table)


@dataclass(frozen=True)
class AdjustedApproval:
    """Difference in the share of satisfied turns among all turns, corrected for who rates.

    It corrects what `features` show and nothing else: users who rate only when angry, for a reason
    that no feature tells, still bend it. `ess` are Kish's effective numbers of thumbs per arm,
    `capped` the shares of thumbs whose weight was cut, `unreached` the shares of turns that the
    rated ones cannot stand in for; control first.
    """

    effect: Effect
    ess: tuple[float, float]
    capped: tuple[float, float]
    unreached: tuple[float, float]


def adjusted_approval(
    control: RatedTurns,
    treatment: RatedTurns,
    *,
    method: Method = "aipw",
    ridge: float = 1.0,
    alpha: float = 0.05,
) -> AdjustedApproval:
    """Hajek's weighted share ("ipw") or the augmented one ("aipw") of each arm, compared.

    In each arm P(rated) is a logistic regression on the features, cross-fitted over `FOLDS` parts
    by a hash of the unit, so that no turn is weighted by a model that saw its unit. "aipw" adds a
    model of the thumb, fitted on rated turns in the same way; it holds if either model does.
    Weights are cut at `WEIGHT_CAP` times turns / thumbs. The interval is the sandwich clustered by
    unit, with the chances taken as known: slightly too wide for "ipw". `ridge` is the penalty on
    coefficients of standardised features.

    The effect's `reason`, and no numbers, if an arm's thumbs are worth fewer than `MIN_ESS`, more
    than `MAX_UNREACHED` of its turns are unlike any that get rated, or there is nothing to learn
    the chances from.

    Raises: BadInput if `alpha` is not in (0, 1), `method` unknown, `ridge` negative, or the arms'
    features differ in number.
    Sources: J. M. Robins, A. Rotnitzky & L. P. Zhao, JASA 89 (1994) 846-866; V. Chernozhukov et
    al., Econometrics Journal 21 (2018) C1-C68; L. Kish, Survey Sampling (1965).
    """
    check_alpha(alpha)
    check_word("method", method, get_args(Method))
    if not (np.isfinite(ridge) and ridge >= 0):
        raise BadInput.of("ridge", f"must be finite and 0 or more, not {ridge}")
    if control.features.shape[1] != treatment.features.shape[1]:
        raise BadInput.of("features", "the arms must have the same columns")
    arms = _weigh(control, method, ridge), _weigh(treatment, method, ridge)
    return _compared(*arms, method, alpha)


def logistic(
    features: Column, outcome: Column, *, ridge: float = 0.0, start: Column | None = None
) -> Column | None:
    """Coefficients, intercept first, of a logistic regression; None if there is no maximum.

    Iteratively reweighted least squares. The penalty is ridge / 2 times the squared coefficients
    on the scale given; the intercept is free. `start` is where to look first.
    """
    design = np.column_stack([np.ones(len(features)), features])
    penalty = np.diag([0.0, *[ridge] * features.shape[1]])
    beta = np.zeros(design.shape[1]) if start is None else start
    for _ in range(_ROUNDS):
        chance = scipy.special.expit(design @ beta)
        gradient = design.T @ (outcome - chance) - penalty @ beta
        information = (design.T * (chance * (1 - chance))) @ design + penalty
        try:
            step = np.linalg.solve(information, gradient)
        except np.linalg.LinAlgError:
            return None
        # A full step from a rare outcome's start overshoots; the fit moves by 4 logits at most.
        reach = float(np.abs(design @ step).max(initial=0.0))
        beta = beta + step * min(1.0, 4 / reach) if reach else beta
        if reach < _SETTLED:
            return beta
    return None


@dataclass(frozen=True)
class _Weighed:
    """An arm's ratio over units, and what its weights are worth."""

    moments: Moments
    ess: float
    capped: float
    unreached: float
    reason: str | None


def _compared(
    control: _Weighed, treatment: _Weighed, method: Method, alpha: float
) -> AdjustedApproval:
    effect = ratio_test(control.moments, treatment.moments, alpha=alpha)
    title = effect.method.replace("delta", method)
    effect = replace(effect, method=title)
    if reason := control.reason or treatment.reason:
        effect = Asked(title, (effect.n_control, effect.n_treatment), alpha).refuse(reason)
    return AdjustedApproval(
        effect,
        ess=(control.ess, treatment.ess),
        capped=(control.capped, treatment.capped),
        unreached=(control.unreached, treatment.unreached),
    )


def _weigh(arm: RatedTurns, method: Method, ridge: float) -> _Weighed:
    names, owner = np.unique(np.asarray(arm.units, dtype=str), return_inverse=True)
    parts = np.array([mmh3.hash(name, signed=False) % FOLDS for name in names], dtype=np.intp)
    fold = parts[owner]
    rated = arm.rated == 1
    thumbs = int(rated.sum())
    if not thumbs:
        return _Weighed(Moments(len(names), 0.0, 0.0), 0.0, 0.0, 0.0, _NOTHING_LEARNT)
    chance = _crossfit(arm.features, arm.rated, fold, np.ones(len(rated), bool), ridge)
    liking = _crossfit(arm.features, arm.up, fold, rated, ridge) if method == "aipw" else chance
    if chance is None or liking is None:
        return _Weighed(Moments(len(names), 0.0, 0.0), 0.0, 0.0, 0.0, _NOTHING_LEARNT)
    floor = thumbs / len(rated) / WEIGHT_CAP
    weight = arm.rated / np.maximum(chance, floor)
    ess = float(weight.sum() ** 2 / (weight @ weight))
    unreached = float((chance < floor).mean())
    if method == "ipw":
        sums = weight * arm.up, weight
    else:
        sums = liking + weight * (arm.up - liking), np.ones(len(rated))
    per_unit = [np.bincount(owner, column, minlength=len(names)) for column in sums]
    return _Weighed(
        moments=Moments.of(*per_unit),
        ess=ess,
        capped=float((chance[rated] < floor).mean()),
        unreached=unreached,
        reason=_positivity(ess, unreached),
    )


def _positivity(ess: float, unreached: float) -> str | None:
    if unreached > MAX_UNREACHED:
        return f"{unreached:.0%} of an arm's turns are unlike any that get rated"
    if ess < MIN_ESS:
        return f"an arm's thumbs are worth {ess:.0f}, fewer than {MIN_ESS:.0f}"
    return None


def _crossfit(
    features: Column,
    outcome: Column,
    fold: NDArray[np.intp],
    taught: NDArray[np.bool_],
    ridge: float,
) -> Column | None:
    """P(outcome) of every turn, by a model of the `taught` turns of the other folds."""
    chance = np.empty(len(outcome))
    scale = features.std(axis=0)
    standard = (features - features.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    beta = None
    for part in np.unique(fold):
        learn = taught & (fold != part)
        own = fold == part
        if not learn.any():
            return None
        if np.ptp(outcome[learn]) == 0:
            chance[own] = outcome[learn][0]
            continue
        beta = logistic(standard[learn], outcome[learn], ridge=ridge, start=beta)
        if beta is None:
            return None
        chance[own] = scipy.special.expit(beta[0] + standard[own] @ beta[1:])
    return chance
