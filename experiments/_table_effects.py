"""Columns of a table as units and arms, and a metric of them as effects."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.findings import ArmEstimate
from experiments.stats import (
    FEW_UNITS,
    Effect,
    Moments,
    QuantileSummary,
    cr2_test,
    quantile_test,
    ratio_test,
    relative_interval,
)
from experiments.tables import DataTable, Floats
from ingest.errors import BadInput

_QUANTILE = re.compile(r"p([1-9]\d|9\d\d):(.+)")


@dataclass(frozen=True)
class Units:
    """Which unit and arm each row has; the control is the first arm."""

    arms: tuple[str, ...]
    unit: NDArray[np.int64]
    """Of each row; -1 where it does not count."""
    arm: NDArray[np.int64]
    """Of each unit; -1 where it has rows of two arms, or none that counts."""
    excluded: int
    incomplete: int

    @classmethod
    def of(cls, table: DataTable, unit: str, arm_column: str, control: str | None) -> "Units":
        """Raises: BadInput naming what does not fit the table."""
        units, arms = table.codes(unit, "unit"), table.codes(arm_column, "arm")
        names = _arms(arms.names, control)
        places = np.array([names.index(each) for each in arms.names] + [-1])
        known = (units.numbers >= 0) & (arms.numbers >= 0)
        of_row = places[arms.numbers]
        least = np.full(len(units.names), len(names))
        most = np.full(len(units.names), -1)
        np.minimum.at(least, units.numbers[known], of_row[known])
        np.maximum.at(most, units.numbers[known], of_row[known])
        mixed = least < most
        arm = np.where(mixed, -1, most)
        counts = known & (arm[units.numbers] >= 0)
        return cls(
            arms=names,
            unit=np.where(counts, units.numbers, -1),
            arm=arm,
            excluded=int(mixed.sum()),
            incomplete=int((~known).sum()),
        )


def _arms(found: Sequence[str], control: str | None) -> tuple[str, ...]:
    names = sorted(found)
    if len(names) < 2:
        raise BadInput.of("arm", f"two arms or more are compared; the column has {names}")
    if len(names) > 50:
        raise BadInput.of("arm", f"{len(names)} different values; is this the column of the arms?")
    first = names[0] if control is None else control
    if first not in names:
        raise BadInput.of("control", f"no arm {first!r}; there are {', '.join(names)}")
    return (first, *(name for name in names if name != first))


@dataclass(frozen=True)
class Values:
    """A metric as the analyst wrote it, row by row."""

    top: Floats
    bottom: Floats | None
    q: float | None

    @classmethod
    def of(cls, table: DataTable, metric: str) -> "Values":
        if found := _QUANTILE.fullmatch(metric):
            return cls(table.numbers(found[2], "metric"), None, float(f"0.{found[1]}"))
        top, slash, bottom = metric.partition("/")
        if slash and not bottom:
            raise BadInput.of("metric", f"{metric!r} names no denominator; write COLUMN/COLUMN")
        return cls(
            table.numbers(top, "metric"), table.numbers(bottom, "metric") if slash else None, None
        )

    @property
    def given(self) -> NDArray[np.bool_]:
        missing = np.isnan(self.top)
        return ~missing if self.bottom is None else ~(missing | np.isnan(self.bottom))

    def is_share(self, given: NDArray[np.bool_]) -> bool:
        simple = self.bottom is None and self.q is None
        return simple and bool(np.isin(self.top[given], (0, 1)).all())


Pair = tuple[Effect, Effect]
"""Absolute and relative."""


def ratios(
    units: Units, values: Values, given: NDArray[np.bool_], alpha: float
) -> tuple[list[ArmEstimate], list[Pair]]:
    """By sums of units; with few of them by a variance that is right for few."""
    of_row, size = units.unit[given], len(units.arm)
    tops = np.bincount(of_row, values.top[given], size)
    bottoms = np.bincount(of_row, None if values.bottom is None else values.bottom[given], size)
    has = np.bincount(of_row, minlength=size) > 0
    sums = [
        np.column_stack([tops, bottoms])[has & (units.arm == arm)] for arm in range(len(units.arms))
    ]
    moments = [Moments.of(*each.T) for each in sums]
    pairs: list[Pair] = []
    for own, arm in zip(sums[1:], moments[1:], strict=True):
        whole = all((each[:, 1] >= 0).all() for each in (sums[0], own))
        if whole and min(moments[0].n, arm.n) < FEW_UNITS:
            pairs.append(_few(sums[0], own, alpha))
        else:
            absolute = ratio_test(moments[0], arm, alpha=alpha)
            pairs.append((absolute, relative_interval(moments[0], arm, alpha=alpha)))
    return list(map(_value, units.arms, moments)), pairs


def _few(control: Floats, treatment: Floats, alpha: float) -> Pair:
    absolute = cr2_test(control, treatment, alpha=alpha)
    return absolute, cr2_test(control, treatment, scale="relative", alpha=alpha)


def quantiles(
    units: Units, values: Values, given: NDArray[np.bool_], alpha: float
) -> tuple[list[ArmEstimate], list[Pair]]:
    """Of rows, with units as clusters."""
    q = values.q or 0.5
    arm_of_row = np.where(given, units.arm[units.unit], -1)
    found = [
        QuantileSummary.of(values.top[arm_of_row == arm], units.unit[arm_of_row == arm], q)
        for arm in range(len(units.arms))
    ]
    pairs = [
        (
            quantile_test(found[0], each, q, alpha=alpha),
            quantile_test(found[0], each, q, scale="relative", alpha=alpha),
        )
        for each in found[1:]
    ]
    arms = zip(units.arms, found, strict=True)
    return [ArmEstimate(name, each.n_units, each.value) for name, each in arms], pairs


def _value(arm: str, moments: Moments) -> ArmEstimate:
    known = moments.n and moments.den_mean
    return ArmEstimate(arm, moments.n, moments.mean / moments.den_mean if known else None)
