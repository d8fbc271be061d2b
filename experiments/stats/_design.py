"""What a test is planned with, apart from the metric and the effect."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import Literal, TypedDict, get_args

import scipy

from experiments.stats._asked import check_word
from experiments.stats._roots import brentq
from experiments.stats.effect import Scale, check_alpha, is_count
from experiments.stats.group_sequential import (
    Boundaries,
    crossing_probability,
    group_sequential_bounds,
)
from experiments.stats.sequential import BURN_IN_UNITS, NormalMixture
from ingest.errors import BadInput

Looks = Literal["obf", "pocock", "always-valid"]


class Design(TypedDict, total=False):
    """How a test is planned; each has a default.

    power: chance to see the effect if it is there (0.8), per metric before `guardrails`.
    alpha: error rate of the test (0.05), on `sides` (2) sides together.
    ratio: treatment units per control unit (1).
    rho: correlation with the covariate that CUPED will use (0); variance falls by rho².
    design_effect: variance over that of independent units (1): 1 + (m - 1) ICC for m turns a unit.
        Not for moments per unit, which hold it already.
    sequential: "obf" or "pocock" spending at `looks` (5) even looks, or the boundaries themselves,
        or "always-valid" for a confidence sequence tuned at the end.
    guardrails: how many non-inferiority tests must pass besides (0); each test then misses with
        (1 - power) / (guardrails + 1).
    units_per_day: new units of both arms together, for `days`.
    """

    scale: Scale
    power: float
    alpha: float
    sides: Literal[1, 2]
    ratio: float
    rho: float
    design_effect: float
    sequential: Looks | Boundaries | None
    looks: int
    guardrails: int
    units_per_day: float | None


@dataclass(frozen=True)
class Checked:
    """A Design with its defaults.

    Raises: BadInput if a number is out of its range or a word unknown.
    """

    scale: Scale = "relative"
    power: float = 0.8
    alpha: float = 0.05
    sides: Literal[1, 2] = 2
    ratio: float = 1.0
    rho: float = 0.0
    design_effect: float = 1.0
    sequential: Looks | Boundaries | None = None
    looks: int = 5
    guardrails: int = 0
    units_per_day: float | None = None

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_word("scale", self.scale, get_args(Scale))
        if isinstance(self.sequential, str):
            check_word("sequential", self.sequential, get_args(Looks))
        bounds = self.sequential if isinstance(self.sequential, Boundaries) else None
        rate = self.units_per_day
        for field, fits, must in (
            ("sides", self.sides in {1, 2}, "be 1 or 2"),
            ("alpha", self.alpha < self.sides / 2, "be below 0.5 for one side"),
            ("power", self.alpha < self.power < 1, "be above alpha and below 1"),
            ("ratio", 1e-6 <= self.ratio <= 1e6, "be in [1e-6, 1e6]"),
            ("rho", -1 < self.rho < 1, "be in (-1, 1)"),
            ("design_effect", 1e-6 <= self.design_effect <= 1e6, "be in [1e-6, 1e6]"),
            ("looks", self.looks in range(1, 201), "be in 1..200"),
            (
                "sequential",
                not bounds
                or (bounds.alpha, bounds.sides, bounds.information[-1])
                == (self.alpha, self.sides, 1),
                "have the plan's alpha and sides and end at information 1",
            ),
            ("guardrails", is_count(self.guardrails), "be 0 or more"),
            ("units_per_day", rate is None or 1e-6 <= rate < inf, "be 1e-6 or more"),
        ):
            if not fits:
                raise BadInput.of(field, f"must {must}, not {getattr(self, field)}")

    @property
    def critical(self) -> float:
        """How many standard errors the estimate must be away from 0 at the end."""
        if self.sequential != "always-valid":
            return -float(scipy.special.ndtri(self.alpha / self.sides))
        # `confidence_sequence` at n = tuning_n.
        mixture = NormalMixture.tuned(1.0, 2 * self.alpha / self.sides)
        if self.sides == 1:
            return mixture.one_sided_bound(1.0, self.alpha)
        return mixture.bound(1.0, self.alpha)

    @property
    def reserve(self) -> float:
        """How many more the effect must be away for the power."""
        return float(scipy.special.ndtri(self.own_power))

    @property
    def own_power(self) -> float:
        return 1 - (1 - self.power) / (self.guardrails + 1)

    @property
    def factor(self) -> float:
        """Units over those of one look at independent, unadjusted units."""
        kept = self.design_effect * (1 - self.rho**2)
        if self.sequential is None or self.sequential == "always-valid":
            return kept
        bounds = self.sequential
        if isinstance(bounds, str):
            times = [look / self.looks for look in range(1, self.looks + 1)]
            bounds = group_sequential_bounds(
                times, alpha=self.alpha, spending=bounds, sides=self.sides
            )
        return kept * _inflation(bounds, self.critical + self.reserve, self.own_power)

    @property
    def fewest(self) -> int:
        """Units of an arm before anything may be said."""
        return BURN_IN_UNITS if self.sequential == "always-valid" else 2

    def days(self, units: int) -> int | None:
        return None if self.units_per_day is None else ceil(units / self.units_per_day)


@lru_cache(maxsize=256)
def _inflation(bounds: Boundaries, single: float, power: float) -> float:
    """The largest sample over that of one look, whose expected z is `single`, at equal power."""

    def short(drift: float) -> float:
        crossed = crossing_probability(
            bounds.information, bounds.upper, drift=drift, sides=bounds.sides
        )
        return power - crossed[-1]

    most = 2 * single
    while short(most) > 0:
        most *= 2
    return float(brentq(short, single * (1 - 1e-3), most, xtol=1e-9) / single) ** 2
