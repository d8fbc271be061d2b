"""A report and a manifest as a person reads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_VERDICTS = {
    "ship": "ship {variant}",
    "rollback": "roll back {variant}",
    "continue": "go on",
    "inconclusive": "inconclusive",
    "blocked": "no verdict",
}


def verdict_of(decision: Mapping[str, Any]) -> str:
    """In words."""
    return _VERDICTS[decision["verdict"]].format(variant=decision["variant"])


def show_report(out: Console, report: Mapping[str, Any]) -> None:
    """Health first, then effects, then the decision."""
    experiment, health = report["experiment"], report["health"]
    simulated = "  [bold](simulated developers)[/]" if health["simulated"] else ""
    out.print(f"[bold]{experiment['key']}[/] is {experiment['status']}{simulated}")
    out.print(f"  as of {report['as_of']}, newest fact {health['newest_fact'] or 'none'}")
    out.print(f"  {health['units']:,} {experiment['unit']}s, {_srm(health)}")
    if health["excluded_units"]:
        out.print(f"  {health['excluded_units']:,} met two arms and count in none")
    for each in report["metrics"]:
        _show_metric(out, each, experiment)
    decision = report["decision"]
    out.print(f"[bold]Decision: {verdict_of(decision)}[/] — {decision['rule']}")


def _show_metric(out: Console, each: Mapping[str, Any], experiment: Mapping[str, Any]) -> None:
    metric = each["metric"]
    out.print()
    out.print(f"[bold]{metric['title']}[/] ({each['role']}, {metric['good']} is good)")
    out.print(f"  {metric['definition']}", style="dim")
    table = Table("variant", "units", "value", "difference", "interval", "p", "lift", box=None)
    several = any(arm["adjusted_p"] is not None for arm in each["comparisons"])
    if several:
        table.add_column("p, Holm")
    control, *_ = each["arms"]
    table.add_row(
        control["variant"], f"{control['units']:,}", _number(control["estimate"]), "control"
    )
    for arm, comparison in zip(each["arms"][1:], each["comparisons"], strict=True):
        table.add_row(
            arm["variant"],
            f"{arm['units']:,}",
            _number(arm["estimate"]),
            _number(comparison["effect"], signed=True),
            _interval(comparison["interval"]),
            _p(comparison["p_value"]),
            _lift(comparison),
            *([_p(comparison["adjusted_p"])] if several else []),
        )
    out.print(table)
    for comparison in each["comparisons"]:
        if comparison["reason"]:
            out.print(f"  {comparison['variant']}: {comparison['reason']}")
        if comparison["harm_bound"] is not None:
            at_best = "at best" if metric["good"] == "up" else "at least"
            bound = _number(comparison["harm_bound"], signed=True)
            out.print(
                f"  {comparison['variant']}: {at_best} {bound}; the margin is {each['margin']:g}"
            )
    level = f"{1 - experiment['alpha']:.0%}"
    method = each["comparisons"][0]["method"]
    out.print(f"  {level} interval, users as units; {method}", style="dim")


def show_manifest(out: Console, manifest: Mapping[str, Any], folder: Path) -> None:
    labels = manifest["labels"]
    out.print(
        f"{manifest['rows']:,} {manifest['format']} rows in {folder}: "
        f"{labels['desirable']:,} desirable, {labels['undesirable']:,} undesirable"
    )
    if manifest["simulated_rows"]:
        out.print(f"  {manifest['simulated_rows']:,} rows come from simulated developers")
    for reason, count in manifest["skipped"].items():
        out.print(f"  left out: {count:,} answers, {reason}")
    out.print(f"  digest {manifest['digest']}")


def _srm(health: Mapping[str, Any]) -> str:
    srm = health["srm"]
    if srm["p_value"] is None:
        return f"split not checked: {srm['reason']}"
    verdict = "MISMATCH" if health["srm_alarm"] else "as planned"
    anytime = health["srm_sequential"]
    daily = f", at every look p = {anytime['p']:.3g}" if anytime["p"] is not None else ""
    return f"split {verdict} (p = {srm['p_value']:.3g}{daily})"


def _number(value: float | None, *, signed: bool = False) -> str:
    return "–" if value is None else f"{value:+.4f}" if signed else f"{value:.4f}"


def _interval(interval: list[float] | None) -> str:
    return f"{interval[0]:+.4f} … {interval[1]:+.4f}" if interval else "–"


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _lift(comparison: Mapping[str, Any]) -> str:
    if comparison["relative_effect"] is None:
        return "–"
    interval = comparison["relative_interval"]
    around = f" ({interval[0]:+.1%} … {interval[1]:+.1%})" if interval else ""
    return f"{comparison['relative_effect']:+.1%}{around}"
