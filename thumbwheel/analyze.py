"""`thumbwheel analyze`: an experiment in a file, read as a report would be."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from experiments.analyze import Analysis, Difference, MetricAnswer, Question, analyze
from experiments.tables import DataTable
from ingest.errors import BadInput
from thumbwheel.door import OUT, Verbs


def add_analyze(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "analyze",
        help="compare the arms of an experiment in a CSV or Parquet file",
        description="Reads one file, asks no server: the health of the split first, then each arm "
        "against the control. Rows of one unit belong together.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="CSV (plain, gzip) or Parquet")
    parser.add_argument("--unit", required=True, help="the column of who was randomised")
    parser.add_argument("--arm", required=True, help="the column of which arm they got")
    parser.add_argument(
        "--metric",
        required=True,
        action="append",
        metavar="METRIC",
        help="COLUMN (its mean), COLUMN/COLUMN (a ratio) or p95:COLUMN; repeat for several",
    )
    parser.add_argument("--control", metavar="ARM", help="default the first by name")
    parser.add_argument(
        "--weight",
        action="append",
        default=[],
        metavar="ARM=WEIGHT",
        help="of the planned split; default the same for each",
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="error rate; default 0.05")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=analyze_file)


def analyze_file(arguments: Namespace) -> int:
    question = Question(
        unit=arguments.unit,
        arm=arguments.arm,
        metrics=tuple(arguments.metric),
        control=arguments.control,
        weights=dict(map(_weight, arguments.weight)),
        alpha=arguments.alpha,
    )
    found = analyze(DataTable.read(arguments.file), question)
    if arguments.json:
        print(json.dumps(asdict(found) | {"meaning": found.split.meaning}, indent=2))
    else:
        _show(found, question)
    return 0


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError as error:
        raise BadInput.of("weight", f"{text!r} is not ARM=NUMBER") from error


def _show(found: Analysis, question: Question) -> None:
    split = found.split
    counts = " v ".join(f"{name} {count:,}" for name, count in split.units.items())
    planned = ":".join(f"{weight:g}" for weight in split.weights.values())
    OUT.print(f"[bold]{sum(split.units.values()):,} units[/] in {found.rows:,} rows: {counts}")
    OUT.print(f"  split, planned {planned}: {split.meaning}")
    if split.excluded_units:
        OUT.print(f"  {split.excluded_units:,} units are in two arms and count in none")
    if split.incomplete_rows:
        OUT.print(f"  {split.incomplete_rows:,} rows have no unit or no arm and count nowhere")
    for answer in found.metrics:
        _show_metric(answer, found)
    OUT.print()
    OUT.print(
        f"{1 - found.alpha:.0%} intervals, {question.unit} as the unit, delta method with Welch's "
        "degrees of freedom; lift by Fieller, so both say the same. One planned look: who looks "
        "every day needs an experiment's report.",
        style="dim",
    )


def _show_metric(answer: MetricAnswer, found: Analysis) -> None:
    OUT.print()
    OUT.print(f"[bold]{answer.metric}[/]")
    difference = "points" if answer.is_share else "difference"
    table = Table("arm", "units", "value", difference, "interval", "p", "lift", box=None)
    several = sum(len(each.differences) for each in found.metrics) > 1
    if several:
        table.add_column("p, Holm")
    control, *arms = answer.arms
    table.add_row(
        control.variant, f"{control.units:,}", _number(control.estimate, answer), "control"
    )
    for arm, each in zip(arms, answer.differences, strict=True):
        shown = [
            arm.variant,
            f"{arm.units:,}",
            _number(arm.estimate, answer),
            _signed(each.absolute.estimate, answer),
            _interval(each, answer),
            _p(each.absolute.p_value),
            _lift(each),
        ]
        table.add_row(*shown, *([_p(each.adjusted_p)] if several else []))
    OUT.print(table)
    for each in answer.differences:
        if each.absolute.reason:
            OUT.print(f"  {each.variant}: no answer, {each.absolute.reason}")
        elif each.absolute.method == "CR2":
            OUT.print(f"  {each.variant}: few units, so by CR2 with {each.absolute.df:.1f} df")
    if answer.left_out_rows:
        OUT.print(f"  {answer.left_out_rows:,} rows without a value are left out")


def _number(value: float | None, answer: MetricAnswer) -> str:
    if value is None:
        return "–"
    return f"{value:.2%}" if answer.is_share else f"{value:.6g}"


def _signed(value: float | None, answer: MetricAnswer) -> str:
    if value is None:
        return "–"
    return f"{100 * value:+.3f}" if answer.is_share else f"{value:+.4g}"


def _interval(each: Difference, answer: MetricAnswer) -> str:
    if each.absolute.ci is None:
        return "–"
    low, high = each.absolute.ci
    if answer.is_share:
        return f"{100 * low:+.3f} … {100 * high:+.3f}"
    return f"{low:+.4g} … {high:+.4g}"


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _lift(each: Difference) -> str:
    if each.relative.estimate is None or each.relative.ci is None:
        return "–"
    low, high = each.relative.ci
    return f"{each.relative.estimate:+.1%} ({100 * low:+.1f} … {100 * high:+.1f})"
