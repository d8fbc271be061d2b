"""`thumbwheel decide` and `thumbwheel decisions`: verdicts that are kept and can be checked."""

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from thumbwheel.door import OUT, Verbs, add_door, add_reading, connected
from thumbwheel.show import verdict_of


def add_decide(verbs: Verbs) -> None:
    add_reading(verbs, "decide", make, "record what an experiment's rule says now")
    listing = verbs.add_parser("decisions", help="list an experiment's recorded decisions")
    listing.add_argument("key")
    listing.add_argument(
        "--check",
        action="store_true",
        help="make each again from today's store; exit with 1 if one is not the same to the byte",
    )
    listing.add_argument("--json", action="store_true")
    add_door(listing)
    listing.set_defaults(run=show_all)


def make(arguments: Namespace) -> int:
    with connected(arguments) as api:
        made = api.post(f"/v1/experiments/{arguments.key}/decisions", {"as_of": arguments.as_of})
    if arguments.json:
        print(json.dumps(made, indent=2))
        return 0
    decision = made["record"]["decision"]
    OUT.print(f"[bold]{verdict_of(decision)}[/] — {decision['rule']}")
    OUT.print(f"  as of {made['as_of']}, decided by the gate {decision['gate']!r}")
    OUT.print(f"  recorded as {made['id']}")
    return 0


def show_all(arguments: Namespace) -> int:
    path = f"/v1/experiments/{arguments.key}/decisions"
    with connected(arguments) as api:
        found = api.get(path)["decisions"]
        checked = {
            each["id"]: api.get(f"{path}/{each['id']}/again")["identical"]
            for each in found
            if arguments.check
        }
    if arguments.json:
        print(json.dumps([each | {"identical": checked.get(each["id"])} for each in found]))
    else:
        OUT.print(_table(found, checked))
    return 0 if all(checked.values()) else 1


def _table(found: list[Mapping[str, Any]], checked: Mapping[str, bool]) -> Table:
    table = Table("as of", "verdict", "rule", "people", "made again", "id", box=None)
    for each in found:
        decision, people = each["record"]["decision"], each["override"]
        again = {True: "the same", False: "DIFFERENT", None: "–"}[checked.get(each["id"])]
        table.add_row(
            each["as_of"],
            verdict_of(decision),
            decision["rule"],
            f"{people['verdict']}: {people['reason']}" if people else "–",
            again,
            each["id"][:12],
        )
    return table
