"""What an operator does from the command line: dead letters, the audit, and following facts."""

import json
import time
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from thumbwheel.client import Api, ServerSays
from thumbwheel.door import Verbs, add_door, connected

_PAUSE_S = 1.0
_REMEMBERED = 20_000
_PAGE = "1000"
_out = Console(highlight=False, markup=False, soft_wrap=True)


def add_operations(verbs: Verbs) -> None:
    """The commands `dead-letters`, `audit` and `tail`."""
    _add_dead_letters(verbs)
    audit = verbs.add_parser("audit", help="what operators did, newest first")
    audit.add_argument("--limit", type=int, default=100, help="entries, at most 1000; default 100")
    audit.add_argument("--json", action="store_true", help="one entry a line")
    add_door(audit)
    audit.set_defaults(run=show_audit)
    tail = verbs.add_parser("tail", help="follow facts as they become queryable, until ^C")
    tail.add_argument("--type", help="for example thumbwheel.turn.submitted.v1")
    tail.add_argument("--user")
    tail.add_argument("--conversation")
    tail.add_argument("--since", help="ISO 8601 with zone, by time of receipt; default now")
    tail.add_argument("--json", action="store_true", help="whole facts, content included")
    add_door(tail)
    tail.set_defaults(run=tail_facts)


def _add_dead_letters(verbs: Verbs) -> None:
    letters = verbs.add_parser("dead-letters", help="records that were no facts: see, send again")
    actions = letters.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="newest first")
    listing.add_argument("--limit", type=int, default=100, help="at most 1000; default 100")
    listing.add_argument("--status", choices=["waiting", "resolved"], help="default both")
    listing.set_defaults(run=list_dead_letters)
    show = actions.add_parser("show", help="one with its bytes, as JSON")
    show.add_argument("id")
    show.set_defaults(run=show_dead_letter)
    replay = actions.add_parser("replay", help="send through the door again; safe to repeat")
    which = replay.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?")
    which.add_argument("--all", action="store_true", help="every one that waits, oldest first")
    replay.set_defaults(run=replay_dead_letters)
    for each in (listing, show, replay):
        add_door(each)


def list_dead_letters(arguments: Namespace) -> int:
    with connected(arguments) as api:
        found = api.get("/v1/dead-letters", limit=str(arguments.limit), status=arguments.status)
    table = Table("id", "status", "received", "bytes", "reason", box=None)
    for each in found["dead_letters"]:
        size, reason = f"{each['size']:,}", _safe(each["reason"])
        table.add_row(each["id"], each["status"], each["received_at"], size, reason)
    _out.print(table)
    if found["after"]:
        _out.print("There are more; see them with a larger --limit.")
    return 0


def show_dead_letter(arguments: Namespace) -> int:
    with connected(arguments) as api:
        print(json.dumps(api.get(f"/v1/dead-letters/{quote(arguments.id, safe=':')}"), indent=2))
    return 0


def replay_dead_letters(arguments: Namespace) -> int:
    """0 when nothing that was sent waits on."""
    with connected(arguments) as api:
        if not arguments.all:
            outcome = api.post(f"/v1/dead-letters/{quote(arguments.id, safe=':')}/replay")
            reason = f": {_safe(outcome['reason'])}" if outcome["reason"] else ""
            print(f"{outcome['id']} is {outcome['verdict']}{reason}")
            return 1 if outcome["verdict"] == "rejected" else 0
        counts = {"accepted": 0, "duplicate": 0, "rejected": 0}
        for chunk in _replayed(api):
            for name in counts:
                counts[name] += chunk[name]
    print(
        f"{counts['accepted']:,} accepted, {counts['duplicate']:,} known already, "
        f"{counts['rejected']:,} rejected again and waiting"
    )
    return 1 if counts["rejected"] else 0


def _replayed(api: Api) -> Iterator[Mapping[str, Any]]:
    after: str | None = ""
    while after is not None:
        query = f"?after={after}" if after else ""
        chunk = api.post(f"/v1/dead-letters/replay{query}")
        yield chunk
        after = chunk["after"]


def show_audit(arguments: Namespace) -> int:
    with connected(arguments) as api:
        entries = api.get("/v1/audit", limit=str(arguments.limit))["entries"]
    if arguments.json:
        for entry in entries:
            print(json.dumps(entry))
        return 0
    table = Table("at", "key", "action", "target", "outcome", box=None)
    for each in entries:
        table.add_row(*(_safe(each[name]) for name in _AUDITED))
    _out.print(table)
    return 0


_AUDITED = ("at", "key_id", "action", "target", "outcome")


def tail_facts(arguments: Namespace) -> int:
    """Prints until ^C. Raises: ServerSays when the server is gone."""
    filters = {name: getattr(arguments, name) for name in ("type", "user", "conversation", "since")}
    with connected(arguments) as api:
        for fact in follow(api, filters):
            print(json.dumps(fact) if arguments.json else line_of(fact), flush=True)
    return 0


def follow(api: Api, filters: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
    """Facts in the order in which the log took them, each once, for ever.

    From now on, or from `filters["since"]`. A fact that clients sent twice may come twice from the
    server; it is given once unless 20,000 others came between.
    """
    shown: OrderedDict[tuple[str, str], None] = OrderedDict()
    after = "" if filters.get("since") else "end"
    while True:
        page = _page(api, filters, after)
        after = page["after"]
        for fact in page["events"]:
            key = (fact["source"], fact["id"])
            if key not in shown:
                shown[key] = None
                yield fact
        while len(shown) > _REMEMBERED:
            shown.popitem(last=False)
        if not page["more"]:
            time.sleep(_PAUSE_S)


def _page(api: Api, filters: Mapping[str, str | None], after: str) -> Any:  # noqa: ANN401 - JSON
    while True:
        try:
            return api.get("/v1/events", **filters, after=after, limit=_PAGE)
        except ServerSays as error:
            if error.retry_after_s is None:
                raise
            time.sleep(error.retry_after_s)


def line_of(fact: Mapping[str, Any]) -> str:
    """When, what, who and where; never content."""
    data = fact.get("data")
    named = data.get("gen_ai.conversation.id") if isinstance(data, dict) else None
    parts = {
        "user": fact.get("user"),
        "conversation": fact.get("partitionkey") or named,
        "id": fact["id"],
    }
    said = " ".join(f"{name}={value}" for name, value in parts.items() if value)
    return _safe(f"{fact['received_at']} {fact['type']} {said}")


def _safe(text: str) -> str:
    """What a client chose must not move the cursor of a terminal."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
