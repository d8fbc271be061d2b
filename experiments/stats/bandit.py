"""Shares of traffic by how probably each arm is the best one."""

from collections.abc import Sequence
from math import isfinite
from typing import Literal, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from ingest.errors import BadInput

MIN_UNITS = 100
"""Units every arm needs before weights first move."""

Floats = NDArray[np.float64]

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_HOPELESS, _EXACT = 1e4, 1e-8
_GRID = np.arange(-36.0, 37.0, 2.0)


class NormalPosterior(Protocol):
    """What is believed of an arm's mean: normal, with this mean and standard deviation."""

    @property
    def mean(self) -> float: ...
    @property
    def sd(self) -> float: ...


def best_arm_probabilities(
    posteriors: Sequence[NormalPosterior], *, lower_is_better: bool = False
) -> Floats:
    """Each arm's probability of being the best, by quadrature: exact to 1e-12, and no draw in it.

    P(i) = ∫ φᵢ(x) Πⱼ Φⱼ(x) dx over panels no wider than two standard deviations of any arm nearby,
    so arms known to very different precision do not spoil it, as they do a Gauss-Hermite rule.

    Raises: BadInput if there is no posterior, or one's mean is not finite or its sd not above 0.
    """
    if not posteriors:
        raise BadInput.of("posteriors", "needs one for each arm")
    for each in posteriors:
        if not (isfinite(each.mean) and isfinite(each.sd) and each.sd > 0):
            raise BadInput.of("posteriors", "every mean must be finite and every sd above 0")
    means = np.array([each.mean for each in posteriors], dtype=float)
    sds = np.array([each.sd for each in posteriors], dtype=float)
    # Centred and scaled, so that the metric's units can neither overflow nor cancel.
    unit = sds.max()
    with np.errstate(over="ignore"):
        means = means - means.max() if not lower_is_better else means.min() - means
        # An arm so far behind has no chance, and one known so well is as if known exactly.
        means, sds = np.maximum(means / unit, -_HOPELESS), np.maximum(sds / unit, _EXACT)
    edges = np.unique((means[:, None] + sds[:, None] * _GRID).ravel())
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1, None] + half + half * _POINTS).ravel()
    z = (x - means[:, None]) / sds[:, None]
    below = scipy.special.log_ndtr(z)
    others = below.sum(axis=0) - below
    density = np.exp(others - 0.5 * z * z) / sds[:, None]
    chances: Floats = density @ (half * _WEIGHTS).ravel()
    chances /= chances.sum()
    return chances


def bandit_weights(
    posteriors: Sequence[NormalPosterior],
    *,
    policy: Literal["thompson", "top-two"] = "thompson",
    floor: float = 0.01,
    lower_is_better: bool = False,
    units: Sequence[int] | None = None,
) -> Floats:
    """The next batch's share of each arm; they sum to 1 and none is below `floor`.

    "thompson": w is the probability of being best. "top-two" sends half to a challenger, for
    finding the best arm rather than using it: wᵢ = pᵢ(1 + Σⱼ pⱼ/(1 - pⱼ), j ≠ i)/2, which is 1/2
    each for two arms. The share is f + (1 - kf)w of k arms: cutting at the floor and rescaling
    would take from the leader more than from others. Where kf >= 1 all shares are equal, as they
    are while an arm has fewer than `MIN_UNITS` of its `units`, if these are given. Only units whose
    outcome is complete belong into a posterior.

    Raises: BadInput if a posterior is none (see `best_arm_probabilities`), `floor` is not in
    [0, 1), `policy` is another, or `units` has another length than `posteriors`.
    Sources: W. R. Thompson, Biometrika 25 (1933) 285-294; D. Russo, COLT 2016, arXiv 1602.08448.
    """
    if not 0 <= floor < 1:
        raise BadInput.of("floor", f"must be in [0, 1), not {floor}")
    if policy not in {"thompson", "top-two"}:
        raise BadInput.of("policy", f"must be thompson or top-two, not {policy}")
    if units is not None and len(units) != len(posteriors):
        raise BadInput.of("units", f"{len(units)} counts for {len(posteriors)} arms")
    weights = best_arm_probabilities(posteriors, lower_is_better=lower_is_better)
    arms = len(weights)
    if arms * floor >= 1 or (units is not None and min(units) < MIN_UNITS):
        return np.full(arms, 1 / arms)
    if policy == "top-two" and arms > 1:
        weights = _top_two(weights)
    return floor + (1 - arms * floor) * weights


def _top_two(chances: Floats) -> Floats:
    # 1 - p as the sum of the others': of a leader sure to 1e-20 the plain difference is 0.
    others = np.array([np.delete(chances, arm).sum() for arm in range(len(chances))])
    if not others.all():  # all but one are hopeless beyond floats: one challenger is as good
        return np.where(others == 0, 0.5, 0.5 / (len(chances) - 1))
    # pᵢ pⱼ / (1 - pⱼ): how often i is drawn as the challenger of j.
    challenged = np.outer(chances, chances / others)
    np.fill_diagonal(challenged, 0.0)
    weights: Floats = (chances + challenged.sum(axis=1)) / 2
    return weights
