"""Bounds for a test that is looked at a planned number of times, or as often as its alpha lasts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import e, expm1, inf, isfinite, isnan, log1p, sqrt
from typing import Literal

import scipy

from experiments.stats._roots import brentq
from experiments.stats._walk import Walk, walks
from experiments.stats.effect import check_alpha
from ingest.errors import BadInput

Spending = Literal["obf", "pocock", "power", "hsd"]
Design = Literal["pocock", "obrien-fleming"]
Sides = Literal[1, 2]

CLOSEST_LOOKS = 1e-6
"""Looks must be this share of the information apart: nearer ones are one look."""

# Standard deviations beyond which a path without a bound is not followed. Upwards what is lost must
# be small against the first looks' errors (1e-35), downwards only against 1.
_REACH, _DOWN, _LEAP = 16.0, 8.0, 12.0
_STEEPEST = 1e4
_LEAST_ALPHA, _EARLIEST = 1e-50, 1e-9


@dataclass(frozen=True)
class Boundaries:
    """What the z statistic of each look must exceed.

    `information` is what each look has of the plan's (1 at the planned end), `spent` the error spent
    up to and with it, `upper` the z that rejects in favour of a positive effect. A bound of inf
    cannot be crossed: nothing is to be spent at that look. With `sides` = 2 `lower` mirrors `upper`
    and `alpha` is the error of both together.
    """

    information: tuple[float, ...]
    upper: tuple[float, ...]
    spent: tuple[float, ...]
    alpha: float
    sides: Sides
    spending: str

    @property
    def lower(self) -> tuple[float, ...]:
        return tuple(-bound if self.sides == 2 else -inf for bound in self.upper)

    @property
    def nominal_p(self) -> tuple[float, ...]:
        """The p, of as many sides, that a test of one look must be below at each look."""
        return tuple(self.sides * float(scipy.special.ndtr(-bound)) for bound in self.upper)


def group_sequential_bounds(
    information: Sequence[float],
    *,
    alpha: float = 0.05,
    spending: Spending = "obf",
    phi: float = 2.0,
    sides: Sides = 2,
) -> Boundaries:
    """Bounds that spend `alpha` by the information at each look so far, however many will follow.

    Each look's information is a share of the planned end's, (planned standard error / standard
    error)², for one comparison: groups are never added up. Spent by a share t:

    - "obf": 4(1 - Φ(z(1 - α/4)/√t)) with two sides, as ldbounds has it: each side spends
      2(1 - Φ(z(1 - a/2)/√t)) of its own a. The formula 2(1 - Φ(z(1 - α/2)/√t)) for both sides
      together is another one, and stricter early;
    - "pocock": α ln(1 + (e - 1)t);
    - "power": α t^`phi`, `phi` > 0;
    - "hsd" (Hwang, Shih & DeCani): α(1 - exp(-`phi` t)) / (1 - exp(-`phi`)), α t at 0.

    An earlier bound never depends on a later look. At t >= 1 everything is spent: a look that comes
    late (t = 1.1) gets the bound of its own information, and those after it inf.

    Raises: BadInput if `information` is empty, not finite, or not ascending by `CLOSEST_LOOKS` of
    its value, `alpha` is not in (0, 1), `spending` or `sides` is another, or `phi` does not fit.
    Source: K. K. G. Lan & D. L. DeMets, Biometrika 70 (1983) 659-663, by numerical recursion
    (P. Armitage, C. K. McPherson & B. C. Rowe, J. R. Statist. Soc. A 132 (1969) 235-244).
    """
    times = _checked(information, alpha, sides)
    if spending not in {"obf", "pocock", "power", "hsd"}:
        raise BadInput.of("spending", f"must be obf, pocock, power or hsd, not {spending}")
    if not isfinite(phi) or (spending == "power" and phi <= 0) or abs(phi) > 500:
        raise BadInput.of("phi", f"must be finite, and above 0 for power, not {phi}")
    return _spend(times, alpha, spending, phi, sides)


def classical_bounds(
    looks: int, *, design: Design, alpha: float = 0.05, sides: Sides = 2
) -> Boundaries:
    """The bounds of Pocock (1977: the same z at every look) or O'Brien & Fleming (1979: z/√t).

    For exactly `looks` looks at equal steps of information; if that is not sure, spend by
    `group_sequential_bounds`.

    Raises: BadInput if `looks` is not in 1..200, `design` is another, or `alpha` or `sides` do not
    fit.
    """
    if looks not in range(1, 201):
        raise BadInput.of("looks", f"must be in 1..200, not {looks}")
    if design not in {"pocock", "obrien-fleming"}:
        raise BadInput.of("design", f"must be pocock or obrien-fleming, not {design}")
    times = _checked([look / looks for look in range(1, looks + 1)], alpha, sides)
    power = 0.0 if design == "pocock" else -0.5
    return _classical(times, power, alpha, sides, design)


def crossing_probability(
    information: Sequence[float],
    upper: Sequence[float],
    *,
    drift: float = 0.0,
    sides: Sides = 2,
) -> tuple[float, ...]:
    """The chance that z has crossed `upper` (or its mirror, with two sides) by each look.

    `drift` is the expected z at information 1: 0 gives the error, z(1 - α/2) + z(power) of a test
    of one look the power. With 1.96 at each look it is the error of looking at fixed tests.

    Raises: BadInput as `group_sequential_bounds`, or if the bounds do not fit or `drift` is not
    in [-1e4, 1e4].
    """
    times = _checked(information, 0.05, sides)
    if len(upper) != len(times) or any(isnan(bound) or bound <= 0 for bound in upper):
        raise BadInput.of("upper", f"needs {len(times)} bounds above 0")
    if not abs(drift) <= _STEEPEST:
        raise BadInput.of("drift", f"must be in [-{_STEEPEST:g}, {_STEEPEST:g}], not {drift}")
    bounds = tuple(float(bound) for bound in upper)
    return _crossed(times, bounds, drift, sides)


def _checked(information: Sequence[float], alpha: float, sides: int) -> tuple[float, ...]:
    check_alpha(alpha)
    if alpha < _LEAST_ALPHA:
        raise BadInput.of("alpha", f"must be {_LEAST_ALPHA} or more, not {alpha}")
    if sides not in {1, 2}:
        raise BadInput.of("sides", f"must be 1 or 2, not {sides}")
    times = tuple(float(share) for share in information)
    if not times or not all(_EARLIEST <= share < inf for share in times):
        raise BadInput.of("information", "needs one finite share above 0 for each look")
    if any(after - before < CLOSEST_LOOKS * after for before, after in pairwise(times)):
        raise BadInput.of("information", "must grow from look to look")
    return times


@lru_cache(maxsize=1024)
def _spend(
    times: tuple[float, ...], alpha: float, spending: Spending, phi: float, sides: Sides
) -> Boundaries:
    walk, upper, spent = Walk.start(), [], [0.0]
    for index, time in enumerate(times):
        spent.append(_spent(min(time, 1.0), alpha, spending, phi, sides))
        upper.append(walk.level(time, (spent[-1] - spent[-2]) / sides))
        if index + 1 < len(times):
            high = min(upper[-1], _REACH)
            low = -high if sides == 2 else -_DOWN
            scale = sqrt(time)
            step = times[index + 1] - time
            walk = walk.on(time, low * scale, high * scale, next_step=step, leap=_LEAP)
    return Boundaries(times, tuple(upper), tuple(spent[1:]), alpha, sides, spending)


def _spent(share: float, alpha: float, spending: Spending, phi: float, sides: Sides) -> float:
    if spending == "obf":
        return (
            2
            * sides
            * float(scipy.special.ndtr(scipy.special.ndtri(alpha / sides / 2) / sqrt(share)))
        )
    if spending == "pocock":
        return alpha * log1p((e - 1) * share)
    if spending == "power":
        return float(alpha * share**phi)
    return alpha * (expm1(-phi * share) / expm1(-phi) if phi else share)


@lru_cache(maxsize=256)
def _classical(
    times: tuple[float, ...], power: float, alpha: float, sides: Sides, design: str
) -> Boundaries:
    def shaped(constant: float) -> tuple[float, ...]:
        return tuple(constant * time**power for time in times)

    def excess(constant: float) -> float:
        return _crossed(times, shaped(constant), 0.0, sides)[-1] - alpha

    one_look = max(-float(scipy.special.ndtri(alpha / sides)), 1e-9)
    union = -float(scipy.special.ndtri(alpha / sides / len(times)))
    constant = union if len(times) == 1 else brentq(excess, one_look, union + 1e-6, xtol=1e-9)
    upper = shaped(float(constant))
    return Boundaries(times, upper, _crossed(times, upper, 0.0, sides), alpha, sides, design)


def _crossed(
    times: tuple[float, ...], upper: tuple[float, ...], drift: float, sides: Sides
) -> tuple[float, ...]:
    lower = tuple(-bound if sides == 2 else -inf for bound in upper)
    reach = min(_LEAP + abs(drift) * sqrt(times[-1]), 37.0)
    total, totals = 0.0, []
    for walk, time, low, high in zip(
        walks(times, lower, upper, reach), times, lower, upper, strict=True
    ):
        total += walk.above(time, high * sqrt(time), drift)
        if sides == 2:
            total += walk.below(time, low * sqrt(time), drift)
        totals.append(total)
    return tuple(totals)
