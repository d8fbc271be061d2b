"""`thumbwheel draft`, `duels`, `switchback`, `bandit`, `reweigh`: other designs than a fixed split."""

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from ingest.errors import BadInput
from thumbwheel.door import OUT, Verbs, add_door, add_reading, connected
from thumbwheel.figures import effect_of, interval_of, number, p_of


def add_designs(verbs: Verbs) -> None:
    duels = verbs.add_parser("duels", help="rank checkpoints by what raters preferred side by side")
    duels.add_argument("--reference", help="strengths are relative to it; default most compared")
    duels.add_argument("--judged-by", choices=["human", "model", "code"], default="human")
    duels.add_argument("--as-of", help="ISO 8601 with zone; default now")
    duels.add_argument("--json", action="store_true")
    add_door(duels)
    duels.set_defaults(run=show_duels)
    draft = verbs.add_parser(
        "draft", help="save a plan in a JSON file as the draft of an experiment"
    )
    draft.add_argument("plan", type=Path, metavar="FILE", help="as POST /v1/experiments takes it")
    add_door(draft)
    draft.set_defaults(run=save_draft)
    add_reading(
        verbs, "switchback", show_switchback, "what a switchback says now, periods as units"
    )
    add_reading(verbs, "bandit", show_bandit, "a bandit's batches, shares and effects")
    step = verbs.add_parser("reweigh", help="begin a bandit's next batch by what is known now")
    step.add_argument("key")
    add_door(step)
    step.set_defaults(run=reweigh)


def save_draft(arguments: Namespace) -> int:
    try:
        plan = json.loads(arguments.plan.read_text())
    except (OSError, ValueError) as error:
        raise BadInput.of("FILE", f"{arguments.plan} holds no JSON: {error}") from error
    with connected(arguments) as api:
        made = api.post("/v1/experiments", plan)
    print(f"{made['key']} is a draft; `thumbwheel experiment start {made['key']}` starts it.")
    return 0


def reweigh(arguments: Namespace) -> int:
    with connected(arguments) as api:
        made = api.post(f"/v1/experiments/{arguments.key}/reweigh")
    total = sum(each["weight"] for each in made["variants"])
    shares = ", ".join(f"{e['key']} {e['weight'] / total:.1%}" for e in made["variants"])
    print(f"Batch {made['version']} of {made['key']}: {shares}")
    return 0


def show_switchback(arguments: Namespace) -> int:
    with connected(arguments) as api:
        path = f"/v1/experiments/{arguments.key}/switchback"
        found = api.get(path, as_of=arguments.as_of)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    periods = found["periods"]
    dealt = ", ".join(f"{n} {arm}" for arm, n in periods["dealt"].items())
    _head(found)
    OUT.print(f"  periods of {periods['period_s']:,} s since {periods['starts_at']}: {dealt}")
    table = Table("metric", "role", *periods["dealt"], "difference", "interval", "p", box=None)
    for each in found["metrics"]:
        values = [number(v) for v in each["means"].values()]
        table.add_row(
            each["metric"]["key"],
            each["role"],
            *values,
            number(each["effect"], signed=True),
            interval_of(each["interval"]),
            p_of(each["p_value"]),
        )
    OUT.print(table)
    for each in found["metrics"]:
        if said := each["reason"] or each["note"]:
            OUT.print(f"  {each['metric']['key']}: {said}")
        if any(each["empty"].values()):
            empty = ", ".join(f"{n} {arm}" for arm, n in each["empty"].items())
            OUT.print(f"  {each['metric']['key']}: periods without a value: {empty}")
    OUT.print(f"  {1 - found['alpha']:.0%} intervals for one look, periods as units", style="dim")
    return 0


def show_bandit(arguments: Namespace) -> int:
    with connected(arguments) as api:
        found = api.get(f"/v1/experiments/{arguments.key}/bandit", as_of=arguments.as_of)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    _head(found)
    arms = list(found["batches"][-1]["shares"])
    table = Table("batch", "began", *arms, box=None)
    for each in found["batches"]:
        cells = (f"{each['units'][arm]:,} ({each['shares'][arm]:.1%})" for arm in arms)
        table.add_row(str(each["version"]), each["began_at"], *cells)
    OUT.print(table)
    srm = found["srm"]
    split = "MISMATCH" if found["srm_alarm"] else "as dealt"
    OUT.print(f"  split {split}, p = {p_of(srm['p_value'])}" if srm["p_value"] is not None else f"  split not checked: {srm['reason']}")  # fmt: skip
    OUT.print(f"[bold]{found['metric']['title']}[/] ({found['metric']['good']} is good)")
    for each in found["comparisons"]:
        p_value = each["p_value"] if each["adjusted_p"] is None else each["adjusted_p"]
        answer = effect_of(each["effect"], each["interval"], p_value)
        OUT.print(f"  {each['variant']} − {each['control']}: {each['reason'] or answer}")
    OUT.print(f"  {1 - found['alpha']:.0%} intervals for one look, batch by batch", style="dim")
    return 0


def _head(found: Mapping[str, Any]) -> None:
    experiment = found["experiment"]
    simulated = "  [bold](simulated developers)[/]" if found["simulated"] else ""
    OUT.print(f"[bold]{experiment['key']}[/] is {experiment['status']}{simulated}")
    OUT.print(f"  as of {found['as_of']}, newest fact {found['newest_fact'] or 'none'}")


def show_duels(arguments: Namespace) -> int:
    with connected(arguments) as api:
        found = api.get(
            "/v1/duels",
            reference=arguments.reference,
            judged_by=arguments.judged_by,
            as_of=arguments.as_of,
        )
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        _show_ranking(found)
    return 0


def _show_ranking(found: Mapping[str, Any]) -> None:
    simulated = "  [bold](simulated)[/]" if found["simulated"] else ""
    OUT.print(f"{found['duels']:,} duels, {found['raters']:,} raters{simulated}")
    left_out = {why.replace("_", " "): n for why, n in found["left_out"].items() if n}
    for why, count in left_out.items():
        OUT.print(f"  left out: {count:,}, {why}")
    table = Table("rank", "checkpoint", "log odds", "interval", "p, Holm", "duels", "both bad", box=None)  # fmt: skip
    for each in found["checkpoints"]:
        table.add_row(
            _ranks(each),
            each["checkpoint"],
            number(each["log_strength"], signed=True),
            "reference"
            if each["checkpoint"] == found["reference"]
            else interval_of(each["interval"]),
            p_of(each["adjusted_p"]),
            f"{each['duels']:,}",
            "–" if each["both_bad_share"] is None else f"{each['both_bad_share']:.0%}",
        )
    if found["checkpoints"]:
        OUT.print(table)
    if found["reason"]:
        OUT.print(f"[bold]No ranking:[/] {found['reason']}")
    _show_place(found["shown_first"])
    _show_signs(found["sign_test"])
    if found["method"]:
        OUT.print(f"  {1 - found['alpha']:.0%} intervals; {found['method']}", style="dim")


def _show_place(place: Mapping[str, Any] | None) -> None:
    if place and place["reason"]:
        OUT.print(f"  the worth of being shown first is not known: {place['reason']}")
    elif place:
        worth = effect_of(place["log_odds"], place["interval"], place["p_value"])
        OUT.print(f"  being shown first is worth {worth}")


def _show_signs(sign: Mapping[str, Any] | None) -> None:
    if sign is None:
        return
    counts = f"{sign['wins']} to {sign['losses']}, {sign['ties']} ties, {sign['both_bad']} both bad"
    OUT.print(f"  {sign['treatment']} against {sign['control']}: {counts}")
    answer = effect_of(sign["estimate"], sign["interval"], sign["p_value"])
    OUT.print(f"  {sign['reason'] or answer} ({sign['method']})")


def _ranks(each: Mapping[str, Any]) -> str:
    if each["rank"] is None:
        return "–"
    low, high = each["rank_interval"]
    return f"{each['rank']} ({low}–{high})"
