"""Sample ratio mismatch: did the arms get the units their weights promised?"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

import numpy as np
import scipy

from experiments.stats.effect import is_count
from experiments.stats.sequential import EValue
from ingest.errors import BadInput

SRM_ALARM = 0.001
"""A p below this blocks a verdict (Fabijan et al., KDD 2019). At one look, not at thirty."""

MIN_EXPECTED = 5
"""Units an arm must expect before the chi-square approximation holds."""

_SINGULAR = 1e-11
_LEAST_SHARE = 1e-12


@dataclass(frozen=True)
class SRMResult:
    """Chi-square of counted against promised units; no numbers where `reason` is not None."""

    statistic: float | None
    df: int | None
    p_value: float | None
    reason: str | None = None


def srm_test(observed: Sequence[int], expected: Sequence[float]) -> SRMResult:
    """Pearson's chi-square of units per arm against weights, which may have any sum.

    An arm of weight 0 leaves both the total and the df; a weighted arm without a unit stays in,
    being the worst mismatch there is. `p_value` is a survival function: it does not underflow
    where 1 - cdf would. `reason` if fewer than two arms have weight, or one expects fewer than
    `MIN_EXPECTED` units.

    Raises: BadInput if the two differ in length, a count or weight is negative or not finite, or
    no arm has weight.
    Source: A. Fabijan et al., KDD 2019.
    """
    _check(observed, expected)
    counts = [count for count, weight in zip(observed, expected, strict=True) if weight > 0]
    weights = [weight for weight in expected if weight > 0]
    if len(weights) < 2:
        return SRMResult(None, None, None, "fewer than two arms have weight")
    promised = [sum(counts) * weight / sum(weights) for weight in weights]
    if min(promised) < MIN_EXPECTED:
        return SRMResult(None, None, None, f"an arm expects fewer than {MIN_EXPECTED} units")
    pairs = zip(counts, promised, strict=True)
    statistic = sum((count - units) ** 2 / units for count, units in pairs)
    df = len(weights) - 1
    return SRMResult(statistic, df, float(scipy.special.chdtrc(df, statistic)))


def srm_batches(
    observed: Sequence[Sequence[int]], expected: Sequence[Sequence[float]]
) -> SRMResult:
    """Units per batch and arm against each batch's own weights, where these moved with the data.

    Against the latest weights, or the mean ones, a bandit that works looks like a mismatch. The
    statistic is that of the summed differences, whose covariance is the sum of the batches' own:
    with constant weights it is Pearson's. An arm of weight 0 leaves the batch's total, as in
    `srm_test`. `reason` if fewer than two arms have weight, or one expects fewer than
    `MIN_EXPECTED` units over all batches.

    Raises: BadInput as `srm_test`, if batches have different arms, or if there is none.
    """
    if len(observed) != len(expected) or not observed:
        raise BadInput.of("expected", f"weights of {len(expected)} batches for {len(observed)}")
    arms = len(observed[0])
    excess, promised, spread = np.zeros(arms), np.zeros(arms), np.zeros((arms, arms))
    for counted, weights in zip(observed, expected, strict=True):
        _check(counted, weights)
        if len(counted) != arms:
            raise BadInput.of("observed", "every batch needs the same arms")
        shares = np.asarray(weights, dtype=float) / sum(weights)
        counts = np.where(shares > 0, counted, 0)
        total = counts.sum()
        excess += counts - total * shares
        promised += total * shares
        spread += total * (np.diag(shares) - np.outer(shares, shares))
    weighted = np.any(np.asarray(expected, dtype=float) > 0, axis=0)
    if weighted.sum() < 2:
        return SRMResult(None, None, None, "fewer than two arms have weight")
    if promised[weighted].min() < MIN_EXPECTED:
        return SRMResult(None, None, None, f"an arm expects fewer than {MIN_EXPECTED} units")
    # The differences of arms that share batches sum to 0: one of these says nothing new.
    df = int(np.linalg.matrix_rank(spread, hermitian=True, rtol=_SINGULAR))
    statistic = float(excess @ np.linalg.pinv(spread, hermitian=True, rtol=_SINGULAR) @ excess)
    return SRMResult(statistic, df, float(scipy.special.chdtrc(df, statistic)))


def srm_sequential(
    observed: Sequence[int], expected: Sequence[float], *, concentration: float = 100.0
) -> EValue:
    """The evidence of a mismatch that holds at every look: stop where `p` < `SRM_ALARM`.

    A Dirichlet mixture of `concentration` × weights bets against the weights, which may have any
    sum; a larger concentration bets on smaller mismatches. Only the counts matter, not the units'
    order. Arms without weight, and units outside the experiment such as a holdout, are left out as
    in `srm_test`; a weighted arm without a unit stays in. Exact at any count, so there is no least
    one. `reason` if fewer than two arms have weight.

    Raises: BadInput as `srm_test`, or if `concentration` is not in [1e-9, 1e9].
    Source: M. Lindon & A. Malek, NeurIPS 2022, arXiv 2011.03567.
    """
    _check(observed, expected)
    if not 1e-9 <= concentration <= 1e9:
        raise BadInput.of("concentration", f"must be in [1e-9, 1e9], not {concentration}")
    total = sum(expected)
    arms = [
        (count, weight / total) for count, weight in zip(observed, expected, strict=True) if weight
    ]
    if len(arms) < 2:
        return EValue(None, None, "fewer than two arms have weight")
    units = sum(count for count, _ in arms)
    log_e = float(
        scipy.special.gammaln(concentration) - scipy.special.gammaln(concentration + units)
    )
    for count, share in arms:
        prior = concentration * share
        log_e += float(
            scipy.special.gammaln(prior + count) - scipy.special.gammaln(prior)
        ) - count * log(share)
    return EValue.of(log_e)


def _check(observed: Sequence[int], expected: Sequence[float]) -> None:
    if len(observed) != len(expected):
        raise BadInput.of("expected", f"{len(expected)} weights for {len(observed)} arms")
    if not all(map(is_count, observed)):
        raise BadInput.of("observed", f"counts must be whole and 0 or more: {list(observed)}")
    if not all(isfinite(weight) and weight >= 0 for weight in expected):
        raise BadInput.of("expected", f"weights must be finite and 0 or more: {list(expected)}")
    total = sum(expected)
    if not 0 < total < inf:
        raise BadInput.of("expected", "no arm has weight, or their sum is not finite")
    if any(weight and weight / total < _LEAST_SHARE for weight in expected):
        raise BadInput.of("expected", f"a weight is below {_LEAST_SHARE} of all: {list(expected)}")
