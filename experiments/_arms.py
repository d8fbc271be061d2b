"""From units to arms: what each unit counts for, and how to read the moments of an arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments._exact import Exact, quantile_sample
from experiments._measures import Cap, Metric, Term
from experiments._plan import Phase, Plan, scale_of
from experiments._reading import Sample
from experiments._row import MICRO
from experiments.stats.quantiles import bound_levels
from experiments.stats.ratio import FEW_UNITS

_BOUNDS_Z = 4 * (bound_levels(0.5, 4)[1] - 0.5)
"""How many standard errors a quantile's bounds are from it."""
_PHASES: tuple[Phase, Phase] = ("post", "NOT post")


@dataclass(frozen=True)
class UnitColumns:
    """One metric of a unit, as SQL.

    `numbers` are the numerator and denominator, both again from before exposure, then the numerator
    without its cap, or thumbs up, thumbs down and completions.
    """

    metric: Metric
    numbers: tuple[str, ...]
    scales: tuple[int, ...]
    """How many units of each number are one of the metric's."""
    counts: str
    """Whether the unit counts: its window may have to be over."""
    is_new: str
    """Whether it has no past."""
    before: tuple[str, ...] = ()
    """Columns that the others use."""
    cap: str = "0"
    is_above: str = "false"
    events: str = ""
    """The array of a quantile's numbers."""

    def sample(self, row: Mapping[str, Any], number: int, start: int, products: int) -> Sample:
        """From an arm's row: of the metric of that number, whose sums and products start there."""
        if self.metric.quantile is not None:
            return quantile_sample(self.metric.quantile, self.scales[0], row, f"q{number}")
        size = len(self.scales)
        exact = Exact(
            int(row["counted"][number]),
            row["sums"][start : start + size],
            row["products"][products : products + size * (size + 1) // 2],
            self.scales,
        )
        few = [numbers[start : start + 2] for counts, numbers in row["few"] if counts[number]]
        has_cap = self.metric.cap is not None
        return Sample(
            moments=exact.moments(0, 1),
            pre=exact.pre(int(row["fresh"][number])),
            feedback=exact.feedback() if self.metric.score else None,
            uncapped=exact.moments(4, 1) if has_cap else None,
            cap=int(row["caps"][number]) / self.scales[0] if has_cap else None,
            capped=int(row["above"][number]),
            sums=tuple(
                (int(each[0]) / self.scales[0], int(each[1]) / self.scales[1])
                for each in (few if exact.n < FEW_UNITS else ())
            ),
        )


def unit_columns(plan: Plan, metric: Metric, number: int, *, matured_at: int | None) -> UnitColumns:
    """The columns of a metric.

    With `matured_at`, in microseconds since 1970, only units count whose window is over by then.
    """
    counts = _counts(plan, metric, matured_at)
    if metric.quantile is not None:
        (term,) = metric.top
        events = plan.events(term, metric.window_s)
        return UnitColumns(metric, (), (scale_of(term),), counts, "false", events=events)
    scale = MICRO if metric.cap else max(map(scale_of, metric.top))
    bottom_scale = max(map(scale_of, metric.bottom), default=1)
    numbers: list[str] = []
    for phase in _PHASES:
        numbers.append(_top(plan, metric, phase, scale))
        numbers.append(_total(plan, metric, metric.bottom, phase, bottom_scale) or "toInt64(1)")
    if metric.kind == "conversion":
        scale = 1
    scales = [scale, bottom_scale, scale, bottom_scale]
    before: list[str] = []
    cap = "0"
    if metric.cap:
        raw, cap = f"raw{number}", f"cap{number}"
        before = [f"{numbers[0]} AS {raw}", f"{_cap(plan, metric.cap, raw, counts)} AS {cap}"]
        numbers = [f"least({raw}, {cap})", *numbers[1:], raw]
        scales.append(scale)
    if metric.score:
        up, down = (_total(plan, metric, (term,), "post", 1) for term in metric.top)
        numbers += [up, down, f"greatest({numbers[1]}, {up} + {down})"]
        scales += [1, 1, 1]
    return UnitColumns(
        metric,
        tuple(numbers),
        tuple(scales),
        counts,
        is_new=f"{counts} AND {f'({numbers[3]}) = 0' if metric.bottom else 'NOT past'}",
        before=tuple(before),
        cap=cap,
        is_above=f"{counts} AND {numbers[-1]} > {cap}" if metric.cap else "false",
    )


def _counts(plan: Plan, metric: Metric, matured_at: int | None) -> str:
    if matured_at is None or metric.window_s is None:
        return "true"
    return f"first <= {plan.bound(matured_at - metric.window_s * MICRO, 'Int64')}"


def _top(plan: Plan, metric: Metric, phase: Phase, scale: int) -> str:
    if metric.score:
        up, down = (_total(plan, metric, (term,), phase, 1) for term in metric.top)
        both = {"net": f"{up} - {down}", "up": up, "down": down, "response": f"{up} + {down}"}
        return both[metric.score]
    total = _total(plan, metric, metric.top, phase, scale)
    if metric.kind == "conversion":
        return f"toInt64({total} >= {plan.bound(metric.at_least * scale, 'Int64')})"
    return total


def _total(plan: Plan, metric: Metric, terms: Sequence[Term], phase: Phase, scale: int) -> str:
    """A sum of a unit, in parts of `scale`; "" without terms."""
    return " + ".join(
        f"{plan.total(term, metric.window_s, phase)} * {term.sign * scale // scale_of(term)}"
        for term in terms
    )


def _cap(plan: Plan, cap: Cap, raw: str, counts: str) -> str:
    """The same for every arm, or the better one would be capped more."""
    if cap.at is not None:
        return f"toInt64({plan.bound(round(cap.at * MICRO), 'Int64')})"
    level = plan.bound(cap.quantile, "Float64")
    pooled = f"quantileExactInclusiveIf({level})(toFloat64({raw}), measured AND {counts}) OVER ()"
    return f"toInt64(round(if(isFinite({pooled}), {pooled}, 0)))"


def quantile_steps(plan: Plan, columns: UnitColumns, name: str) -> tuple[tuple[str, ...], ...]:
    """Columns of an arm, from `NAMEunits`, the arrays of its units, one step after the other: all
    numbers in order, their quantile between its bounds, and by unit how many of its numbers are at
    or below it. Those whose names end in `units`, `all` and `of` are large.
    """
    metric = columns.metric
    z, q = plan.bound(_BOUNDS_Z, "Float64"), plan.bound(metric.quantile, "Float64")
    limit = plan.bound(round((metric.timeout or 2e9) * columns.scales[0]), "Int64")
    reach = f"{z} * sqrt({q} * (1 - {q}) / greatest({name}n, 1))"
    at = f"floor(greatest(0, least(1, level)) * ({name}n - 1))"
    pair = f"({name}all[toUInt64(at) + 1], {name}all[least(toUInt64(at) + 2, {name}n)])"
    below = f"arrayCount(number -> number <= {name}around[2].1, numbers)"
    squares = "[of[1] * of[1], of[1] * of[2], of[2] * of[2]]"
    return (
        (f"arraySort(arrayFlatten({name}units)) AS {name}all",),
        (
            f"length({name}all) AS {name}n",
            f"arrayCount(number -> number >= {limit}, {name}all) AS {name}late",
        ),
        (f"[{q} - {reach}, {q}, {q} + {reach}] AS {name}levels",),
        (f"arrayMap(at -> {pair}, arrayMap(level -> {at}, {name}levels)) AS {name}around",),
        (f"arrayMap(numbers -> [{below}, length(numbers)], {name}units) AS {name}of",),
        (
            f"length({name}of) AS {name}size",
            f"arrayReduce('sumForEach', {name}of) AS {name}sums",
            f"arrayReduce('sumForEach', arrayMap(of -> {squares}, {name}of)) AS {name}products",
        ),
    )
