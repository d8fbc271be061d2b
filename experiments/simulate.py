"""How often a test errs where nothing differs, and how often it finds what does: by simulation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite, sqrt
from typing import Literal, Self, TypeVar

import numpy as np

from experiments.error_rates import ErrorRate, ErrorRates, HasP
from experiments.resampling import Floats, Histories, ManyEffects, ManyMoments, draw, ratio_effects
from experiments.tables import DataTable
from ingest.errors import BadInput

ALPHA = 0.05
POWER = 0.8
_FARTHEST = 10.0
"""No effect beyond + 1,000 % is looked for."""

_Data = TypeVar("_Data")


def simulate_aa(
    generator: Callable[[np.random.Generator], Iterable[_Data]],
    estimator: Callable[[_Data], HasP],
    *,
    replicates: int = 2000,
    looks: int = 1,
    seed: int = 0,
) -> ErrorRates:
    """Error rates of an estimator on data in which, by construction, nothing differs.

    The generator gives the data known at each of `looks` looks, in order. Each replicate has a
    random stream of its own, spawned from `seed`: the same seed gives the same rates, whatever runs
    beside it. An estimator that gives no p value (None) has not answered, and not erred.

    Raises: BadInput if `replicates` or `looks` is below 1, or the generator ends before `looks`.
    """
    for field, number in (("replicates", replicates), ("looks", looks)):
        if number < 1:
            raise BadInput.of(field, f"must be 1 or more, not {number}")
    p_values = np.full((replicates, looks), np.nan)
    for row, stream in zip(p_values, np.random.SeedSequence(seed).spawn(replicates), strict=True):
        known = list(islice(generator(np.random.default_rng(stream)), looks))
        if len(known) < looks:
            raise BadInput.of("generator", f"gave data for {len(known)} of {looks} looks")
        answers = [estimator(data).p_value for data in known]
        row[:] = [np.nan if p_value is None else p_value for p_value in answers]
    return ErrorRates.of(p_values)


@dataclass(frozen=True)
class Design:
    """A planned test: its first arm is the control, the others are compared with it."""

    weights: Sequence[float] = (1.0, 1.0)
    units: int | None = None
    """In all arms together; None is every unit of the histories, once."""
    looks: int = 14
    replicates: int = 2000
    effect: float = 0.05
    """Relative change of every unit's numerator in the treatment arms."""
    seed: int = 0

    def arms(self, histories: Histories) -> list[int]:
        """Units of each arm. Raises: BadInput."""
        units = histories.units if self.units is None else self.units
        if len(self.weights) < 2 or not all(isfinite(w) and w > 0 for w in self.weights):
            raise BadInput.of("weight", f"two or more numbers above 0, not {list(self.weights)}")
        if units < 4:
            raise BadInput.of("units", f"{units} units are too few to compare")
        if not (isfinite(self.effect) and self.effect >= -1 and self.effect):
            raise BadInput.of("effect", f"a change such as 0.05, -1 or more, not {self.effect}")
        ends = np.cumsum(self.weights) / np.sum(self.weights) * units
        return [int(count) for count in np.diff(np.round(ends), prepend=0)]


@dataclass(frozen=True)
class Share:
    """A simulated frequency."""

    share: float
    std_error: float


@dataclass(frozen=True)
class Finding:
    """What one reading finds. `smallest` is found with 80 % power; None: not up to + 1,000 %."""

    power: Share
    """Of finding `Design.effect`, with its sign."""
    smallest: float | None


@dataclass(frozen=True)
class MetricSimulation:
    """One metric's history replayed. `sequential` is None where no look is past the burn-in."""

    metric: str
    units: int
    left_out_rows: int
    value: float | None
    arms: tuple[int, ...]
    fixed: ErrorRates
    """Of the fixed test: `rates` if read once, `any_look` if wrongly read at every look."""
    sequential: ErrorRate | None
    """Of the confidence sequence, at any look."""
    fixed_finding: Finding
    sequential_finding: Finding | None
    simulated: Literal[True] = True


def read_histories(table: DataTable, unit: str, metric: str) -> tuple[Histories, int]:
    """Each unit's sums of a `COLUMN` over its rows, or of two, `COLUMN/COLUMN`; and rows left out.

    A row without a unit or without a value is left out, and so is a unit that has no other.
    Raises: BadInput naming what of the two does not fit the table.
    """
    top_name, _, bottom_name = metric.partition("/")
    units, top = table.codes(unit, "unit"), table.numbers(top_name, "metric")
    bottom = table.numbers(bottom_name, "metric") if bottom_name else np.ones_like(top)
    given = (units.numbers >= 0) & ~np.isnan(top) & ~np.isnan(bottom)
    of_row = units.numbers[given]
    has = np.bincount(of_row, minlength=len(units.names)) > 0
    sums = [np.bincount(of_row, each[given], len(has))[has] for each in (top, bottom)]
    return Histories.of(*sums), int((~given).sum())


def simulate(table: DataTable, unit: str, metric: str, design: Design) -> MetricSimulation:
    """The design's A/A error rates and power on the histories of the table's units.

    Without `Design.units` the same units are randomised into arms anew, each once: whatever those
    people are like, nothing but chance can differ. With it units are drawn with replacement. Their
    order is random: a trend over time is not simulated. The effect multiplies every unit's
    numerator in the treatment arms; a share's variance so grows a little faster than it would,
    which makes its power a little too low, never too high.

    Raises: BadInput naming what of the design does not fit the table.
    """
    histories, left_out = read_histories(table, unit, metric)
    arms = design.arms(histories)
    drawn = _Drawn.of(histories, arms, design)
    whole = histories.moments
    return MetricSimulation(
        metric=metric,
        units=histories.units,
        left_out_rows=left_out,
        value=whole.mean / whole.den_mean if whole.den_mean else None,
        arms=tuple(arms),
        fixed=ErrorRates.of(drawn.effects(0.0).p_value),
        sequential=drawn.sequential_error(),
        fixed_finding=_finding(drawn.found_fixed, design.effect),
        sequential_finding=_finding(drawn.found_anytime, design.effect) if drawn.warm else None,
    )


@dataclass(frozen=True)
class _Drawn:
    """Simulated experiments without an effect; one is put in afterwards, into the same draws."""

    moments: ManyMoments
    units: int
    sign: float
    """Of the metric's value: a positive effect moves the metric this way."""

    @classmethod
    def of(cls, histories: Histories, arms: Sequence[int], design: Design) -> Self:
        [moments] = draw(
            [histories],
            arms,
            looks=design.looks,
            replicates=design.replicates,
            random=np.random.default_rng(design.seed),
            repeat=design.units is not None,
        )
        whole = histories.moments
        return cls(moments, sum(arms), float(np.sign(whole.mean * whole.den_mean)))

    @property
    def warm(self) -> bool:
        return bool(self.effects(0.0).warm.any())

    def effects(self, effect: float) -> ManyEffects:
        return ratio_effects(self.moments.arm(0), self.moments.arms(1).changed(effect))

    def sequential_error(self) -> ErrorRate | None:
        if not self.warm:
            return None
        wrong = self._anytime(self.effects(0.0)) < ALPHA
        return ErrorRate.of(ALPHA, wrong.any(axis=1).mean(axis=1))

    def found_fixed(self, effect: float) -> Floats:
        """Share of the treatment arms of each replicate in which the last look finds the effect."""
        last = self.moments.look(-1)
        effects = ratio_effects(last.arm(0), last.arms(1).changed(effect))
        return self._found(effects, effects.p_value, effect)

    def found_anytime(self, effect: float) -> Floats:
        """The same of any look of the confidence sequence."""
        effects = self.effects(effect)
        return self._found(effects, self._anytime(effects), effect)

    def _found(self, effects: ManyEffects, p_values: Floats, effect: float) -> Floats:
        rightly = effects.estimate * effect * self.sign > 0
        found: Floats = ((p_values < ALPHA) & rightly).any(axis=1).mean(axis=1)
        return found

    def _anytime(self, effects: ManyEffects) -> Floats:
        return effects.anytime_p(self.units, ALPHA)


def _finding(found: Callable[[float], Floats], effect: float) -> Finding:
    shares = found(effect)
    power = Share(float(shares.mean()), float(shares.std() / sqrt(len(shares))))
    return Finding(power, _smallest(lambda size: float(found(size).mean()), effect))


def _smallest(power: Callable[[float], float], effect: float) -> float | None:
    """The effect of that sign, to 3 digits, from which on the draws give 80 % power."""
    sign, farthest = (1.0, _FARTHEST) if effect > 0 else (-1.0, 1.0)
    low, high = 0.0, 0.001
    while power(sign * high) < POWER:
        if high == farthest:
            return None
        low, high = high, min(2 * high, farthest)
    while high - low > 0.001 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(sign * middle) >= POWER else (middle, high)
    return sign * high
