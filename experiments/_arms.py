"""From units to arms: the columns of exact moments, and how to read the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from experiments._exact import Exact, quantile_sample
from experiments._measures import Metric, Term
from experiments._plan import MICRO, Phase, Plan, scale_of
from experiments._reading import Sample
from experiments.stats.quantiles import needed_events
from experiments.stats.ratio import FEW_UNITS

_COUNTED = "drawn AND NOT mixed"
_BOUNDS_Z = sqrt(needed_events(0.5))
"""Of the interval between a quantile's bounds."""


@dataclass(frozen=True)
class MetricColumns:
    """One metric in the last two levels of the statement."""

    metric: Metric
    name: str
    of_units: tuple[str, ...]
    of_arms: tuple[str, ...]
    scales: tuple[int, ...] = ()
    """How many units of each number of a unit are one of the metric's."""
    further: tuple[tuple[str, ...], ...] = ()
    """Of an arm, from what came before, one level after the other."""
    hidden: tuple[str, ...] = ()
    """Large columns that nobody needs in the end."""

    def sample(self, row: Mapping[str, Any]) -> Sample:
        """From the answer for one arm."""
        prefix = f"{self.name}_"
        found = {key.removeprefix(prefix): row[key] for key in row if key.startswith(prefix)}
        if self.metric.quantile is not None:
            return quantile_sample(self.metric.quantile, found)
        exact = Exact(int(found["n"]), found["sums"], found["products"], self.scales)
        few = found["few"] if exact.n < FEW_UNITS else ()
        cap = self.metric.cap
        return Sample(
            moments=exact.moments(0, 1),
            pre=exact.pre(int(found["new"])),
            feedback=exact.feedback() if self.metric.score else None,
            uncapped=exact.moments(4, 1) if cap else None,
            cap=int(found["cap"]) / self.scales[0] if cap else None,
            capped=int(found["capped"]) if cap else 0,
            sums=tuple((int(a) / self.scales[0], int(b) / self.scales[1]) for a, b in few),
        )


def metric_columns(
    plan: Plan, metric: Metric, number: int, *, matured_at: int | None
) -> MetricColumns:
    """The columns of a metric.

    With `matured_at`, in microseconds since 1970, only units count whose window is over by then.
    """
    counted = _COUNTED
    if matured_at is not None and metric.window_s is not None:
        limit = plan.bound(matured_at - metric.window_s * MICRO, "Int64")
        counted += f" AND first <= {limit}"
    if metric.quantile is not None:
        return _of_quantile(plan, metric, f"x{number}", counted)
    return _of_sums(plan, metric, f"x{number}", counted)


def _of_sums(plan: Plan, metric: Metric, name: str, counted: str) -> MetricColumns:
    """A unit's numbers are its numerator and denominator, both again from before exposure, then
    what the metric's kind adds.
    """
    scale = MICRO if metric.cap else max(map(scale_of, metric.top))
    bottom_scale = max(map(scale_of, metric.bottom), default=1)
    numbers: list[str] = []
    phases: tuple[Phase, Phase] = ("post", "NOT post")
    for phase in phases:
        numbers.append(_top(plan, metric, phase, scale))
        numbers.append(_total(plan, metric, metric.bottom, phase, bottom_scale) or "toInt256(1)")
    if metric.kind == "conversion":
        scale = 1
    scales = [scale, bottom_scale, scale, bottom_scale]
    units: list[str] = []
    if metric.cap:
        units = [f"{numbers[0]} AS {name}raw", f"{_cap(plan, metric, name, counted)} AS {name}most"]
        numbers = [f"least({name}raw, {name}most)", *numbers[1:], f"{name}raw"]
        scales.append(scale)
    if metric.score:
        up, down = (_total(plan, metric, (term,), "post", 1) for term in metric.top)
        numbers += [up, down, f"greatest({numbers[1]}, {up} + {down})"]
        scales += [1, 1, 1]
    missing = f"{name}[4] = 0" if metric.bottom else "NOT past"
    arms = [*_moments(name, counted), f"countIf({counted} AND {missing}) AS {name}_new"]
    if metric.cap:
        arms.append(f"max({name}most) AS {name}_cap")
        arms.append(f"countIf({counted} AND {name}raw > {name}most) AS {name}_capped")
    units.append(f"[{', '.join(numbers)}] AS {name}")
    return MetricColumns(metric, name, tuple(units), tuple(arms), tuple(scales))


def _top(plan: Plan, metric: Metric, phase: Phase, scale: int) -> str:
    if metric.score:
        up, down = (_total(plan, metric, (term,), phase, 1) for term in metric.top)
        return {"net": f"{up} - {down}", "up": up, "down": down, "response": f"{up} + {down}"}[
            metric.score
        ]
    total = _total(plan, metric, metric.top, phase, scale)
    if metric.kind == "conversion":
        return f"toInt256({total} >= {plan.bound(metric.at_least * scale, 'Int64')})"
    return total


def _total(
    plan: Plan, metric: Metric, terms: Sequence[Term], phase: Phase, scale: int
) -> str:  # fmt: skip
    """A sum of a unit, in parts of `scale`."""
    parts = (
        f"toInt256({plan.total(term, metric.window_s, phase)}) * {term.sign * scale // scale_of(term)}"
        for term in terms
    )
    return " + ".join(parts)


def _cap(plan: Plan, metric: Metric, name: str, counted: str) -> str:
    """The same for every arm, or the better one would be capped more."""
    assert metric.cap
    if metric.cap.at is not None:
        return f"toInt256({plan.bound(round(metric.cap.at * MICRO), 'Int64')})"
    level = plan.bound(metric.cap.quantile, "Float64")
    pooled = f"quantileExactInclusiveIf({level})(toFloat64({name}raw), {counted}) OVER ()"
    return f"toInt256(round(if(isFinite({pooled}), {pooled}, 0)))"


def _moments(name: str, counted: str) -> tuple[str, ...]:
    """Whole-number sums: exact, so no order of rows or threads changes a digit of the report."""
    products = f"arrayFlatten(arrayMap(a -> arrayMap(b -> a * b, {name}), {name}))"
    return (
        f"countIf({counted}) AS {name}_n",
        f"sumForEachIf({name}, {counted}) AS {name}_sums",
        f"sumForEachIf({products}, {counted}) AS {name}_products",
        f"arraySort(groupArrayIf({FEW_UNITS})(({name}[1], {name}[2]), {counted})) AS {name}_few",
    )


def _of_quantile(plan: Plan, metric: Metric, name: str, counted: str) -> MetricColumns:
    """All numbers of an arm in order, their quantile between its bounds, and by unit how many of
    its numbers are at or below it.
    """
    (term,) = metric.top
    scale = scale_of(term)
    z, q = plan.bound(_BOUNDS_Z, "Float64"), plan.bound(metric.quantile, "Float64")
    limit = plan.bound(round((metric.timeout or 2e9) * scale), "Int64")
    reach = f"{z} * sqrt({q} * (1 - {q}) / greatest({name}_n, 1))"
    at = f"floor(greatest(0, least(1, level)) * ({name}_n - 1))"
    pair = f"({name}all[toUInt64(at) + 1], {name}all[least(toUInt64(at) + 2, {name}_n)])"
    below = f"arrayCount(number -> number <= {name}_around[2].1, numbers)"
    return MetricColumns(
        metric,
        name,
        of_units=(f"{plan.events(term, metric.window_s)} AS {name}",),
        of_arms=(f"groupArrayIf({name}, {counted} AND notEmpty({name})) AS {name}each",),
        further=(
            (f"arraySort(arrayFlatten({name}each)) AS {name}all",),
            (
                f"length({name}all) AS {name}_n",
                f"arrayCount(number -> number >= {limit}, {name}all) AS {name}_late",
            ),
            (f"[{q} - {reach}, {q}, {q} + {reach}] AS {name}_levels",),
            (
                f"arrayMap(at -> {pair}, arrayMap(level -> {at}, {name}_levels)) AS {name}_around",
                f"{scale} AS {name}_scale",
            ),
            (f"arrayMap(numbers -> [{below}, length(numbers)], {name}each) AS {name}of",),
            (
                f"length({name}of) AS {name}_units",
                f"arrayReduce('sumForEach', {name}of) AS {name}_sums",
                f"arrayReduce('sumForEach', arrayMap(of -> [of[1] * of[1], of[1] * of[2], "
                f"of[2] * of[1], of[2] * of[2]], {name}of)) AS {name}_products",
            ),
        ),
        hidden=(f"{name}each", f"{name}all", f"{name}of"),
    )
