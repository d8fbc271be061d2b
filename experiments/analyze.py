"""An experiment in a table: the same answers as a report's, from data that the analyst knows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from experiments.stats import (
    FEW_UNITS,
    SRM_ALARM,
    Effect,
    Moments,
    QuantileSummary,
    SRMResult,
    adjust_pvalues,
    cr2_test,
    quantile_test,
    ratio_test,
    relative_interval,
    srm_test,
)
from experiments.tables import DataTable, Floats
from ingest.errors import BadInput

_QUANTILE = re.compile(r"p([1-9]\d|9\d\d):(.+)")
_UNUSUAL = 0.05
"""A split less likely than this is worth a look, though it stops nothing."""


@dataclass(frozen=True)
class Question:
    """What is asked of a table.

    `metrics` are columns, `numerator/denominator` of two, or `p95:column` for a quantile of rows.
    Arms without a planned weight have 1.
    """

    unit: str
    arm: str
    metrics: tuple[str, ...]
    control: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    alpha: float = 0.05


@dataclass(frozen=True)
class Split:
    """How units came to the arms, and whether that is what was planned."""

    units: Mapping[str, int]
    weights: Mapping[str, float]
    srm: SRMResult
    alarm: bool
    excluded_units: int
    """Units that are in two arms; they count in none."""
    incomplete_rows: int
    """Rows without a unit or an arm; they count nowhere."""

    @property
    def meaning(self) -> str:
        """What the split says, in a sentence or two."""
        p_value = self.srm.p_value
        if p_value is None:
            return f"not checked: {self.srm.reason}"
        if self.alarm:
            return (
                f"MISMATCH (p = {p_value:.2g}): something decides who is counted. Find out what "
                "before you believe any difference below."
            )
        if p_value < _UNUSUAL:
            return (
                f"possible mismatch (p = {p_value:.2g}): a fair split is this uneven in 1 of "
                f"{1 / p_value:,.0f} experiments. Shown, not blocking: every experiment is asked, "
                f"so the alarm is at p < {SRM_ALARM}, or one sound experiment in twenty would be "
                "stopped. Look for what may lose units of one arm before they are counted."
            )
        return f"as planned (p = {p_value:.2g})"


@dataclass(frozen=True)
class ArmValue:
    arm: str
    units: int
    value: float | None


@dataclass(frozen=True)
class Difference:
    """An arm against the control; `absolute` decides, `relative` is the same difference as lift."""

    arm: str
    absolute: Effect
    relative: Effect
    adjusted_p: float | None
    """Holm's, over all comparisons of the analysis; None where there is but one."""


@dataclass(frozen=True)
class MetricAnswer:
    metric: str
    is_share: bool
    """Every value is 0 or 1, so that differences are percentage points."""
    left_out_rows: int
    """Rows of counted units in which the metric is empty."""
    arms: tuple[ArmValue, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Analysis:
    rows: int
    control: str
    alpha: float
    split: Split
    metrics: tuple[MetricAnswer, ...]


def analyze(table: DataTable, question: Question) -> Analysis:
    """Health of the split, then every arm against the control in every metric.

    A unit may have many rows: a metric is the sum of its column over the unit's rows, divided by
    the number of rows (or by the sum of the denominator), and units are what is independent.

    Raises: BadInput naming what of the question does not fit the table.
    """
    units = _Units.of(table, question)
    answers = [_answer(table, question, units, name) for name in question.metrics]
    return Analysis(
        rows=table.rows,
        control=units.arms[0],
        alpha=question.alpha,
        split=_split(units, question),
        metrics=tuple(_adjusted(answers)),
    )


@dataclass(frozen=True)
class _Units:
    """Which unit and arm each row has; the control is the first arm."""

    arms: tuple[str, ...]
    unit: NDArray[np.int64]
    """Of each row; -1 where it does not count."""
    arm: NDArray[np.int64]
    """Of each unit; -1 where it has rows of two arms, or none that counts."""
    excluded: int
    incomplete: int

    @classmethod
    def of(cls, table: DataTable, question: Question) -> "_Units":
        units, arms = table.codes(question.unit, "unit"), table.codes(question.arm, "arm")
        names = _arms(arms.names, question.control)
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


def _split(units: _Units, question: Question) -> Split:
    if unknown := sorted(set(question.weights) - set(units.arms)):
        raise BadInput.of("weights", f"no arm {unknown[0]!r}; there are {', '.join(units.arms)}")
    weights = {name: question.weights.get(name, 1.0) for name in units.arms}
    counted = np.bincount(units.arm[units.arm >= 0], minlength=len(units.arms))
    srm = srm_test([int(each) for each in counted], list(weights.values()))
    return Split(
        units=dict(zip(units.arms, map(int, counted), strict=True)),
        weights=weights,
        srm=srm,
        alarm=srm.p_value is not None and srm.p_value < SRM_ALARM,
        excluded_units=units.excluded,
        incomplete_rows=units.incomplete,
    )


def _answer(table: DataTable, question: Question, units: _Units, metric: str) -> MetricAnswer:
    values = _Values.of(table, metric)
    counted = units.unit >= 0
    given = counted & values.given
    answered = _quantiles if values.q else _ratios
    arms, effects = answered(units, values, given, question.alpha)
    return MetricAnswer(
        metric=metric,
        is_share=values.is_share(given),
        left_out_rows=int((counted & ~given).sum()),
        arms=tuple(arms),
        differences=tuple(
            Difference(name, *pair, None)
            for name, pair in zip(units.arms[1:], effects, strict=True)
        ),
    )


@dataclass(frozen=True)
class _Values:
    """A metric as the analyst wrote it, row by row."""

    top: Floats
    bottom: Floats | None
    q: float | None

    @classmethod
    def of(cls, table: DataTable, metric: str) -> "_Values":
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


_Pair = tuple[Effect, Effect]
"""Absolute and relative."""


def _ratios(
    units: _Units, values: _Values, given: NDArray[np.bool_], alpha: float
) -> tuple[list[ArmValue], list[_Pair]]:
    """By sums of units; with few of them by a variance that is right for few."""
    of_row, size = units.unit[given], len(units.arm)
    tops = np.bincount(of_row, values.top[given], size)
    bottoms = np.bincount(of_row, None if values.bottom is None else values.bottom[given], size)
    has = np.bincount(of_row, minlength=size) > 0
    sums = [
        np.column_stack([tops, bottoms])[has & (units.arm == arm)] for arm in range(len(units.arms))
    ]
    moments = [Moments.of(*each.T) for each in sums]
    pairs: list[_Pair] = []
    for own, arm in zip(sums[1:], moments[1:], strict=True):
        whole = all((each[:, 1] >= 0).all() for each in (sums[0], own))
        if whole and min(moments[0].n, arm.n) < FEW_UNITS:
            pairs.append(_few(sums[0], own, alpha))
        else:
            absolute = ratio_test(moments[0], arm, alpha=alpha)
            pairs.append((absolute, relative_interval(moments[0], arm, alpha=alpha)))
    return list(map(_value, units.arms, moments)), pairs


def _few(control: Floats, treatment: Floats, alpha: float) -> _Pair:
    absolute = cr2_test(control, treatment, alpha=alpha)
    return absolute, cr2_test(control, treatment, scale="relative", alpha=alpha)


def _quantiles(
    units: _Units, values: _Values, given: NDArray[np.bool_], alpha: float
) -> tuple[list[ArmValue], list[_Pair]]:
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
    return [ArmValue(name, each.n_units, each.value) for name, each in arms], pairs


def _value(arm: str, moments: Moments) -> ArmValue:
    known = moments.n and moments.den_mean
    return ArmValue(arm, moments.n, moments.mean / moments.den_mean if known else None)


def _adjusted(answers: Sequence[MetricAnswer]) -> list[MetricAnswer]:
    """With Holm's p values over all that have one, if they are several."""
    p_values = [
        each.absolute.p_value
        for answer in answers
        for each in answer.differences
        if each.absolute.p_value is not None
    ]
    if len(p_values) < 2:
        return list(answers)
    adjusted = iter(adjust_pvalues(p_values, method="holm"))
    return [
        MetricAnswer(
            answer.metric,
            answer.is_share,
            answer.left_out_rows,
            answer.arms,
            tuple(
                Difference(
                    each.arm,
                    each.absolute,
                    each.relative,
                    None if each.absolute.p_value is None else float(next(adjusted)),
                )
                for each in answer.differences
            ),
        )
        for answer in answers
    ]
