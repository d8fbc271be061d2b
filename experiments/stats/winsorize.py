"""One cap for every arm, so that a handful of extreme units does not decide."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingest.errors import BadInput

_Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Winsorized:
    """Per-unit values by arm, none above its arm's cap, beside what they were.

    `caps` has the same number for every arm unless they were capped apart. `shares` are the parts
    of an arm's units, 0 to 1, that were above the cap: they belong beside the result, since a
    treatment that moves them has an effect the capped mean hides. Where `reason` is not None the
    first three are None.
    """

    values: Mapping[str, _Column] | None
    caps: Mapping[str, float] | None
    shares: Mapping[str, float] | None
    uncapped: Mapping[str, _Column]
    reason: str | None = None


def winsorize(
    values: Mapping[str, ArrayLike],
    *,
    upper: float | None = None,
    upper_quantile: float | None = None,
    pooled: bool = True,
) -> Winsorized:
    """Each arm's values, one a unit, with those above the cap set to it.

    The cap is `upper`, fixed before launch, or the `upper_quantile` (linear interpolation) of the
    units of all arms together. Cap sums of a unit, never single turns.

    `pooled=False` takes the quantile in each arm. That caps the better arm less and biases the
    effect: it is here for A/A runs that show what goes wrong.

    `reason` if there are no units, or no unit is below the cap: with 99 % zeros the 0.95 quantile
    is 0, and nothing would be left to compare.

    Raises: BadInput if not exactly one of the two caps is given, the quantile is not in (0, 1), the
    cap or a value is not finite, or an arm is not one-dimensional.
    """
    _check_cap(upper, upper_quantile)
    arms = {arm: _column(each, arm) for arm, each in values.items()}
    together = np.concatenate(list(arms.values())) if arms else np.empty(0)
    if not all(map(len, arms.values())) or not len(together):
        return Winsorized(None, None, None, arms, "an arm has no units")
    caps = {
        arm: _cap(together if pooled else column, upper, upper_quantile)
        for arm, column in arms.items()
    }
    if any(caps[arm] <= together.min() for arm in arms):
        return Winsorized(None, None, None, arms, "no unit is below the cap")
    return Winsorized(
        values={arm: np.minimum(column, caps[arm]) for arm, column in arms.items()},
        caps=caps,
        shares={arm: float((column > caps[arm]).mean()) for arm, column in arms.items()},
        uncapped=arms,
    )


def _check_cap(upper: float | None, quantile: float | None) -> None:
    if (upper is None) == (quantile is None):
        raise BadInput.of("upper", "give either upper or upper_quantile")
    if upper is not None and not np.isfinite(upper):
        raise BadInput.of("upper", "must be finite")
    if quantile is not None and not 0 < quantile < 1:
        raise BadInput.of("upper_quantile", f"must be in (0, 1), not {quantile}")


def _cap(column: _Column, upper: float | None, quantile: float | None) -> float:
    if quantile is None:
        return float(upper or 0.0)
    return float(np.quantile(column, quantile))


def _column(numbers: ArrayLike, arm: str) -> _Column:
    column = np.asarray(numbers, dtype=np.float64)
    if column.ndim != 1:
        raise BadInput.of(arm, f"one number per unit, not {column.ndim} dimensions")
    if not np.isfinite(column).all():
        raise BadInput.of(arm, "every number must be finite")
    return column
