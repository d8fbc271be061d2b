"""Sample ratio mismatch: did the arms get the units their weights promised?"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from scipy.special import chdtrc

from ingest.errors import BadInput

SRM_ALARM = 0.001
"""A p below this blocks a verdict (Fabijan et al., KDD 2019). At one look, not at thirty."""

MIN_EXPECTED = 5
"""Units an arm must expect before the chi-square approximation holds."""


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
    return SRMResult(statistic, df, float(chdtrc(df, statistic)))


def _check(observed: Sequence[int], expected: Sequence[float]) -> None:
    if len(observed) != len(expected):
        raise BadInput.of("expected", f"{len(expected)} weights for {len(observed)} arms")
    if any(count < 0 for count in observed):
        raise BadInput.of("observed", f"counts cannot be negative: {list(observed)}")
    if not all(isfinite(weight) and weight >= 0 for weight in expected):
        raise BadInput.of("expected", f"weights must be finite and 0 or more: {list(expected)}")
    if not any(expected):
        raise BadInput.of("expected", "no arm has weight")
