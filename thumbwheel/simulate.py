"""`thumbwheel simulate`: what a planned test would do, played on the histories of real units."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.error_rates import ErrorRate
from experiments.simulate import ALPHA, POWER, Design, Finding, MetricSimulation, simulate
from experiments.stats import BURN_IN_UNITS
from experiments.tables import DataTable
from ingest.errors import BadInput
from thumbwheel.door import OUT, Verbs


def add_simulate(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "simulate",
        help="error rates and power of a planned test, on histories in a CSV or Parquet file",
        description="Randomises the units of one file into arms, again and again, and counts how "
        "often the tests see a difference: without one, and with one put in. Asks no server. "
        "Nothing it prints is about an experiment that took place.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="CSV (plain, gzip) or Parquet")
    parser.add_argument("--unit", required=True, help="the column of who would be randomised")
    parser.add_argument(
        "--metric",
        required=True,
        action="append",
        metavar="COLUMN[/COLUMN]",
        help="mean of a column, or ratio of two; repeat for several",
    )
    parser.add_argument("--arms", type=int, default=2, help="of the same weight; default 2")
    parser.add_argument(
        "--weight",
        type=float,
        action="append",
        help="of each arm in turn, the control first, in place of --arms",
    )
    parser.add_argument("--replicates", type=int, default=2000, help="experiments; default 2000")
    parser.add_argument("--looks", type=int, default=14, help="daily looks; default 14")
    parser.add_argument(
        "--effect", type=float, default=0.05, help="relative, of the treatment; default 0.05"
    )
    parser.add_argument(
        "--units",
        type=int,
        help="in all arms, drawn with replacement; default each of the file once",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=simulate_file)


def simulate_file(arguments: Namespace) -> int:
    if arguments.weight is None and not 2 <= arguments.arms <= 50:
        raise BadInput.of("arms", f"2 to 50 can be compared, not {arguments.arms}")
    design = Design(
        weights=tuple(arguments.weight or [1.0] * arguments.arms),
        units=arguments.units,
        looks=arguments.looks,
        replicates=arguments.replicates,
        effect=arguments.effect,
        seed=arguments.seed,
    )
    table = DataTable.read(arguments.file)
    with Console(stderr=True).status("Simulating …"):
        found = [simulate(table, arguments.unit, name, design) for name in arguments.metric]
    if arguments.json:
        body = {"simulated": True, "alpha": ALPHA, "target_power": POWER, "design": asdict(design)}
        print(json.dumps(body | {"metrics": [asdict(each) for each in found]}, indent=2))
    else:
        _show(found, design, arguments.file)
    return 0


def _show(found: list[MetricSimulation], design: Design, file: Path) -> None:
    drawn = "each once" if design.units is None else f"{design.units:,} drawn with replacement"
    OUT.print(
        f"[bold]SIMULATED[/]: {design.replicates:,} experiments with the units of {file.name}, "
        f"{drawn} (seed {design.seed})"
    )
    for each in found:
        _show_metric(each, design)
    notes = [
        "Every experiment is a new randomisation. ± is a standard error; verdicts allow three.",
        f"sequential: the confidence sequence, from {BURN_IN_UNITS} units an arm on, at 5 %.",
        "A fixed test is read once: who looks every day needs the sequential one.",
        "Units come in random order, evenly over the looks: no trend over time is played.",
    ]
    if len(design.weights) > 2:
        notes.append("Every arm is compared with the first; nothing is corrected for several arms.")
    OUT.print()
    for note in notes:
        OUT.print(note, style="dim")


def _show_metric(found: MetricSimulation, design: Design) -> None:
    split = " v ".join(f"{count:,}" for count in found.arms)
    value = "undefined" if found.value is None else f"{found.value:.6g}"
    OUT.print()
    OUT.print(f"[bold]{found.metric}[/]: {value} over {found.units:,} units; arms of {split}")
    if found.left_out_rows:
        OUT.print(f"  {found.left_out_rows:,} rows without a unit or a value are left out")
    _show_errors(found)
    if found.fixed.unanswered:
        OUT.print(f"  {found.fixed.unanswered:,} experiments had no answer at the end")
    if not all(rate.within for rate in found.fixed.rates):
        OUT.print("  The fixed test is not what it says on these units. Often a few units hold")
        OUT.print("  most of the sum: cap the metric, or plan for more units.")
    _show_findings(found, design)


def _show_errors(found: MetricSimulation) -> None:
    looks, table = found.fixed.looks, Table("no difference", "may err", "errs", "", box=None)
    for number, rate in enumerate(found.fixed.rates):
        table.add_row("" if number else "fixed, one look", *_row(rate, _fixed_verdict(rate)))
    if found.sequential is None:
        reason = f"never {BURN_IN_UNITS} units in every arm: no answer"
        table.add_row(f"sequential, {looks} looks", f"{ALPHA:.0%}", "–", reason)
    else:
        verdict = "as promised" if found.sequential.at_most else "ERRS TOO OFTEN"
        table.add_row(f"sequential, {looks} looks", *_row(found.sequential, verdict))
    if looks > 1:
        [rate] = [each for each in found.fixed.any_look if each.alpha == ALPHA]
        times = rate.observed / ALPHA
        warning = f"WARNING: {times:.1f} times that"
        table.add_row(f"fixed, {looks} looks", *_row(rate, "" if rate.at_most else warning))
    OUT.print(table)


def _row(rate: ErrorRate, verdict: str) -> tuple[str, str, str]:
    return f"{rate.alpha:.0%}", f"{rate.observed:.2%} ± {rate.std_error:.2%}", verdict


def _fixed_verdict(rate: ErrorRate) -> str:
    if rate.within:
        return "as promised"
    return "less than it may: power is lost" if rate.at_most else "ERRS TOO OFTEN"


def _show_findings(found: MetricSimulation, design: Design) -> None:
    table = Table(f"{design.effect:+.4g} × the value", "finds it", f"{POWER:.0%} from", box=None)
    table.add_row("fixed, one look", *_found(found.fixed_finding))
    if found.sequential_finding is not None:
        name = f"sequential, {found.fixed.looks} looks"
        table.add_row(name, *_found(found.sequential_finding))
    OUT.print(table)


def _found(finding: Finding) -> tuple[str, str]:
    power = f"{finding.power.share:.1%} ± {finding.power.std_error:.1%}"
    if finding.smallest is None:
        return power, "no size: more units are needed"
    return power, f"{finding.smallest:+.2%}"
