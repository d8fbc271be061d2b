"""An experiment in a table: the same answers as a report's, from data that the analyst knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from experiments._table_effects import Units, Values, quantiles, ratios
from experiments.findings import ArmEstimate
from experiments.stats import SRM_ALARM, Effect, SRMResult, holm, srm_test
from experiments.tables import DataTable
from ingest.errors import BadInput

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
class Difference:
    """An arm against the control; `absolute` decides, `relative` is the same difference as lift."""

    variant: str
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
    arms: tuple[ArmEstimate, ...]
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
    units = Units.of(table, question.unit, question.arm, question.control)
    answers = [_answer(table, question, units, name) for name in question.metrics]
    return Analysis(
        rows=table.rows,
        control=units.arms[0],
        alpha=question.alpha,
        split=_split(units, question),
        metrics=tuple(_adjusted(answers)),
    )


def _split(units: Units, question: Question) -> Split:
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


def _answer(table: DataTable, question: Question, units: Units, metric: str) -> MetricAnswer:
    values = Values.of(table, metric)
    counted = units.unit >= 0
    given = counted & values.given
    answered = quantiles if values.q else ratios
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


def _adjusted(answers: Sequence[MetricAnswer]) -> list[MetricAnswer]:
    """With Holm's p values over all that have one, if they are several."""
    asked = [each.absolute.p_value for answer in answers for each in answer.differences]
    if sum(p is not None for p in asked) < 2:
        return list(answers)
    adjusted = iter(holm(asked))
    return [
        replace(
            answer,
            differences=tuple(
                replace(each, adjusted_p=next(adjusted)) for each in answer.differences
            ),
        )
        for answer in answers
    ]
