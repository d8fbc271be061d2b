"""A report and a manifest as a person reads them."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from thumbwheel.figures import Json, bounds, interval_of, lift, number, p_of, share, tell
from thumbwheel.show_parts import show_novelty, show_segments

_VERDICTS = {
    "ship": "ship {variant}",
    "rollback": "roll back {variant}",
    "continue": "go on",
    "inconclusive": "inconclusive",
    "blocked": "no verdict",
}
_SAFETY = {
    "safe": "safe: not worse by more than the margin of {margin:g}",
    "open": "not shown to be safe yet (margin {margin:g})",
    "harm": "[bold]HARM: worse by more than the margin of {margin:g}[/]",
}


def verdict_of(decision: Json) -> str:
    """In words."""
    return _VERDICTS[decision["verdict"]].format(variant=decision["variant"])


def show_report(out: Console, report: Json) -> None:
    """Health first, then effects, then the decision, then what was asked beside it."""
    experiment, health = report["experiment"], report["health"]
    simulated = "  [bold](simulated developers)[/]" if health["simulated"] else ""
    out.print(f"[bold]{experiment['key']}[/] is {experiment['status']}{simulated}")
    out.print(f"  as of {report['as_of']}, newest fact {health['newest_fact'] or 'none'}")
    out.print(f"  {health['units']:,} {experiment['unit']}s, {_srm(health)}")
    if checkpoints := _checkpoints(experiment):
        out.print(f"  {checkpoints}")
    if health["excluded_units"]:
        out.print(f"  {health['excluded_units']:,} met two arms and count in none")
    for each in report["metrics"]:
        _show_metric(out, each, experiment)
    decision = report["decision"]
    out.print(f"[bold]Decision: {verdict_of(decision)}[/] — {decision['rule']}")
    if report["segments"]:
        show_segments(out, report["segments"])
    for each in report["novelty"] or ():
        show_novelty(out, each, experiment)


def _show_metric(out: Console, each: Json, experiment: Json) -> None:
    metric, comparisons = each["metric"], each["comparisons"]
    out.print()
    out.print(f"[bold]{metric['title']}[/] ({each['role']}, {metric['good']} is good)")
    out.print(f"  {metric['definition']}", style="dim")
    out.print(_effects(each))
    tell(out, comparisons, lambda arm: arm["reason"])
    if each["margin"] is not None:
        tell(out, comparisons, lambda arm: _SAFETY[arm["safety"]].format(margin=each["margin"]))
    tell(out, comparisons, _adjusted)
    tell(out, comparisons, _imbalance)
    if any(arm["feedback"] for arm in comparisons):
        _show_raters(out, comparisons)
    methods = dict.fromkeys(arm["method"] for arm in comparisons)
    out.print(
        f"  {1 - experiment['alpha']:.0%} interval, {experiment['unit']}s as units; "
        f"{' or '.join(methods)}",
        style="dim",
    )


def _effects(each: Json) -> Table:
    """An arm a row, the control first; of several goals or arms the p that they share."""
    several = any(arm["adjusted_p"] is not None for arm in each["comparisons"])
    table = Table("variant", "units", "value", "difference", "interval", box=None)
    table.add_column("p, Holm" if several else "p")
    table.add_column("lift")
    for arm, comparison in zip(each["arms"], [None, *each["comparisons"]], strict=True):
        row = [arm["variant"], f"{arm['units']:,}", number(arm["estimate"])]
        if comparison is None:
            table.add_row(*row, "control")
            continue
        table.add_row(
            *row,
            number(comparison["effect"], signed=True),
            interval_of(comparison["interval"]),
            p_of(comparison["adjusted_p" if several else "p_value"]),
            lift(comparison),
        )
    return table


def _checkpoints(experiment: Json) -> str | None:
    """Where arms have other names."""
    variants = experiment["variants"]
    if all(each["key"] == each["checkpoint"] for each in variants):
        return None
    return ", ".join(f"{each['key']} = {escape(each['checkpoint'])}" for each in variants)


def _adjusted(arm: Json) -> str | None:
    found = arm["adjustment"]
    if not found:
        return None
    note = f"; {found['note']}" if found["note"] else ""
    return (
        f"adjusted for what units did before, which leaves {found['variance_factor']:.0%} of the "
        f"variance; as measured {number(found['effect'], signed=True)} "
        f"({interval_of(found['interval'])}){note}"
    )


def _imbalance(arm: Json) -> str | None:
    found = arm["adjustment"]
    if not found or not found["is_imbalanced"]:
        return None
    return (
        f"[bold]ARMS DIFFERED BEFORE[/] the experiment began (p = {p_of(found['imbalance_p'])}): "
        "look at the split"
    )


def _show_raters(out: Console, comparisons: Sequence[Json]) -> None:
    """Thumbs are rare: who gives them, and what those who give none may hide."""
    table = Table(
        "raters", "response", "interval", "up of rated", "pleased: Manski", "Lee", "γ", box=None
    )
    known = [arm for arm in comparisons if arm["feedback"]]
    first = known[0]["feedback"]
    table.add_row(known[0]["control"], share(first["response"][0]), "", share(first["approval"][0]))
    for arm in known:
        found = arm["feedback"]
        table.add_row(
            arm["variant"],
            share(found["response"][1]),
            interval_of(found["response_interval"]),
            share(found["approval"][1]),
            bounds(found["manski"]),
            bounds(found["lee"]),
            "–" if found["gamma"] is None else f"{found['gamma']:.2f}",
        )
    out.print(table)
    tell(
        out,
        known,
        lambda arm: (
            "[bold]RESPONSE DIFFERS[/] from the control's: raters are not alike, so do not compare "
            "what share of thumbs is up"
            if arm["feedback"]["response_differs"]
            else None
        ),
    )


def show_manifest(out: Console, manifest: Json, folder: Path) -> None:
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


def _srm(health: Json) -> str:
    srm = health["srm"]
    if srm["p_value"] is None:
        return f"split not checked: {srm['reason']}"
    verdict = "MISMATCH" if health["srm_alarm"] else "as planned"
    anytime = health["srm_sequential"]
    daily = f", at every look p = {anytime['p']:.3g}" if anytime["p"] is not None else ""
    return f"split {verdict} (p = {srm['p_value']:.3g}{daily})"
