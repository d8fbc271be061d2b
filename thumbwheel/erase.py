"""`thumbwheel erase`: what is stored of a person goes, and a proof says where was looked."""

import json
import time
from argparse import Namespace
from typing import Any

from rich.progress import Progress
from rich.table import Table

from thumbwheel.client import Api, ServerSays
from thumbwheel.door import OUT, Verbs, add_door, connected


def add_erase(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "erase",
        help="remove all that is stored of a user",
        description="Removes what was stored of a user up to now, and searches for what is left. "
        "Switch recording off first: what comes later stays. "
        "The exit code is 1 if the search finds anything.",
    )
    parser.add_argument("--user", required=True, help="as facts name them, or their pseudonym")
    parser.add_argument("--prove", action="store_true", help="print what was searched, and how")
    parser.add_argument("--json", action="store_true", help="print the erasure as JSON")
    add_door(parser)
    parser.set_defaults(run=erase)


def erase(arguments: Namespace) -> int:
    with connected(arguments) as api:
        state = _carried_out(api, arguments.user, quiet=arguments.json)
    if arguments.json:
        print(json.dumps(state, indent=2))
    else:
        _show(state, proof=arguments.prove)
    return 0 if state["proof"]["hits"] == 0 and state["proof"]["complete"] else 1


def _carried_out(api: Api, user: str, *, quiet: bool) -> dict[str, Any]:
    """The erasure, done. A server that restarts meanwhile goes on with it."""
    erasure = api.post("/v1/erasures", {"user": user})["id"]
    with Progress(transient=True, disable=quiet) as progress:
        task = progress.add_task("asked for", total=None)
        while True:
            try:
                state: dict[str, Any] = api.get(f"/v1/erasures/{erasure}")
            except ServerSays as error:
                if error.retry_after_s is None:
                    raise
                time.sleep(error.retry_after_s)
                continue
            if state["state"] == "done":
                return state
            progress.update(task, description=state["problem"] or state["stage"])
            time.sleep(0.1)


def _show(state: dict[str, Any], *, proof: bool) -> None:
    counts, found = state["counts"], state["proof"]
    said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())
    OUT.print(f"Erased: {said}.")
    for kind, names in state["derived"].items():
        for name in names:
            OUT.print(f"  made from erased facts: {kind.removesuffix('s')} {name}", style=None)
    if proof:
        _show_places(found)
    parts = state["inactive_parts"]
    if parts["parts"]:
        OUT.print(
            f"{parts['parts']} replaced parts ({parts['bytes']:,} bytes) wait for the engine "
            f"to remove them; GET /v1/erasures/{state['id']} tells when none is left."
        )
    verdict = "Nothing was found" if found["hits"] == 0 else f"FOUND {found['hits']:,} times"
    OUT.print(f"{verdict} in {len(found['places'])} places. Proof sha256 {found['sha256']}")
    if found["later"]:
        OUT.print(f"{found['later']:,} values are of facts that came after the request.")
    if not found["complete"]:
        OUT.print("The server was stopped while it proved: erase again for a whole proof.")


def _show_places(found: dict[str, Any]) -> None:
    table = Table("place", "scanned", "hits", "how", box=None)
    for each in found["places"]:
        table.add_row(
            each["place"], f"{each['scanned']:,} {each['unit']}", f"{each['hits']:,}", each["how"]
        )
    OUT.print(table)
    OUT.print("Not seen by this proof:")
    for limit in found["limits"]:
        OUT.print(f"  {limit}", style=None)
