"""What each command does, through the server's HTTP interface."""

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from rich.progress import Progress
from rich.table import Table

from ingest.errors import BadInput
from ingest.events import json_schema
from ingest.importers import read_history
from ingest.settings import Settings
from thumbwheel.client import Api
from thumbwheel.datasets import fetch_dataset
from thumbwheel.demo import run as run_demo
from thumbwheel.doctor import examine
from thumbwheel.door import OUT, connected, url_of
from thumbwheel.show import show_manifest, show_report
from thumbwheel.up import up as serve


def up(arguments: Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("host", "port", "data")}
    return serve(Settings.of(arguments.environment, **given))


def demo(arguments: Namespace) -> int:
    return run_demo(arguments.developers, seed=arguments.seed, keep=arguments.keep)


def doctor(arguments: Namespace) -> int:
    settings = Settings.of(arguments.environment, data=arguments.data)
    findings = examine(settings, arguments.environment, url_of(arguments, settings))
    for finding in findings:
        OUT.print(f"{'ok  ' if finding.fine else 'FIX '} {finding.what}", style=None)
    return 0 if all(finding.fine for finding in findings) else 1


def schema(_arguments: Namespace) -> int:
    print(json.dumps(json_schema(), indent=2))
    return 0


def import_histories(arguments: Namespace) -> int:
    """All files are read and understood before the first fact is sent."""
    histories = [
        read_history(arguments.format, path, timezone=arguments.timezone)
        for path in arguments.files
    ]
    for history in histories:
        print(history.summary)
    if arguments.dry_run:
        print("Nothing was sent (--dry-run).")
        return 0
    with connected(arguments) as api:
        for history in histories:
            total = history.summary.counts["events"]
            events = history.events(consent=arguments.consent, user=arguments.user)
            counts = send_all(api, events, total)
            print(
                f"{history.summary.file}: {counts['accepted']:,} facts taken, "
                f"{counts['duplicate']:,} known already, {counts['rejected']:,} refused"
            )
            if counts["accepted"] == 0 and counts["duplicate"]:
                print("  Imported before: facts keep the consent of their first import.")
            if counts["rejected"]:
                return 1
    return 0


def send_all(api: Api, events: Iterator[dict[str, Any] | str], total: int) -> dict[str, int]:
    """Verdicts by status; progress is shown where somebody watches, refusals are printed."""
    counts = {"accepted": 0, "duplicate": 0, "rejected": 0}
    with Progress(transient=True) as progress:
        task = progress.add_task("sending", total=total)
        for receipt in api.send_events(events):
            for name in counts:
                counts[name] += receipt[name]
            progress.advance(task, len(receipt["results"]))
            for verdict in receipt["results"]:
                if verdict["status"] == "rejected":
                    print(f"  refused {verdict['id']}: {verdict['reason']}")
    return counts


def report(arguments: Namespace) -> int:
    asked = {name: getattr(arguments, name) for name in ("as_of", "segment", "novelty")}
    with connected(arguments) as api:
        found = api.get(f"/v1/experiments/{arguments.key}/report", **asked)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        show_report(OUT, found)
    return 0


def create_experiment(arguments: Namespace) -> int:
    body: dict[str, Any] = {
        "key": arguments.key,
        "variants": [_variant(text) for text in arguments.variant],
        "reading": arguments.reading,
        "metrics": {
            "goals": arguments.goal or ["thumbs_net"],
            "guardrails": [_guardrail(text) for text in arguments.guardrail],
        },
    }
    for name in ("planned_units", "coverage", "ramp_to", "layer", "min_days", "on_harm"):
        if getattr(arguments, name) is not None:
            body[name] = getattr(arguments, name)
    with connected(arguments) as api:
        api.post("/v1/experiments", body)
    print(
        f"{arguments.key} is a draft; `thumbwheel experiment start {arguments.key}` splits traffic."
    )
    return 0


def change_experiment(arguments: Namespace) -> int:
    with connected(arguments) as api:
        found = api.post(f"/v1/experiments/{arguments.key}/{arguments.action}")
    print(f"{arguments.key} is {found['status']}.")
    return 0


def ramp_experiment(arguments: Namespace) -> int:
    with connected(arguments) as api:
        api.post(f"/v1/experiments/{arguments.key}/ramp", {"coverage": arguments.coverage})
    print(f"{arguments.key} takes {arguments.coverage:.0%} of its layer now; nobody changed arms")
    return 0


def list_experiments(arguments: Namespace) -> int:
    with connected(arguments) as api:
        found = api.get("/v1/experiments")["experiments"]
    table = Table("key", "status", "unit", "variants", "started")
    for each in found:
        variants = ", ".join(f"{v['key']} = {v['checkpoint']}" for v in each["variants"])
        table.add_row(each["key"], each["status"], each["unit"], variants, each["started_at"] or "")
    OUT.print(table)
    return 0


def export(arguments: Namespace) -> int:
    """The set is built by the server and copied into --out."""
    chosen = {
        name: value
        for name in ("since", "until", "checkpoint", "experiment")
        if (value := getattr(arguments, name))
    }
    with connected(arguments) as api:
        manifest = fetch_dataset(api, arguments.format, chosen, arguments.out)
    show_manifest(OUT, manifest, arguments.out)
    return 0


def create_key(arguments: Namespace) -> int:
    with connected(arguments) as api:
        wanted = {"scopes": arguments.scope, "label": arguments.label, "rate": arguments.rate}
        made = api.post("/v1/keys", wanted)
    print(f"{made['key']}\nKey {made['id']}, shown this once; scopes {', '.join(made['scopes'])}.")
    return 0


def list_keys(arguments: Namespace) -> int:
    with connected(arguments) as api:
        found = api.get("/v1/keys")["keys"]
    table = Table("id", "label", "scopes", "rate", "created", "revoked")
    for key in found:
        scopes, rate = " ".join(key["scopes"]), str(key["rate"] or "")
        revoked = key["revoked_at"] or ""
        table.add_row(key["id"], key["label"], scopes, rate, key["created_at"], revoked)
    OUT.print(table)
    return 0


def revoke_key(arguments: Namespace) -> int:
    with connected(arguments) as api:
        api.delete(f"/v1/keys/{arguments.id}")
    print(f"Key {arguments.id} opens nothing any more.")
    return 0


def add_checkpoint(arguments: Namespace) -> int:
    engine = {"kind": "openai", "url": arguments.url, "model": arguments.model}
    if arguments.api_key_env:
        secret = arguments.environment.get(arguments.api_key_env)
        if not secret:
            raise BadInput.of("--api-key-env", f"{arguments.api_key_env} is not set")
        engine["api_key"] = secret
    with connected(arguments) as api:
        api.post("/v1/checkpoints", {"id": arguments.id, "engine": engine})
    print(f"{arguments.id} is registered; `thumbwheel checkpoint alias {arguments.id} champion` "
          "lets it serve the route 'agent'.")  # fmt: skip
    return 0


def list_checkpoints(arguments: Namespace) -> int:
    with connected(arguments) as api:
        found = api.get("/v1/checkpoints")
    names: dict[str, list[str]] = {}
    for alias, checkpoint in found["aliases"].items():
        names.setdefault(checkpoint, []).append(alias)
    table = Table("id", "aliases", "engine")
    for each in found["checkpoints"]:
        table.add_row(each["id"], ", ".join(names.get(each["id"], [])), each["engine"]["url"])
    OUT.print(table)
    return 0


def alias_checkpoint(arguments: Namespace) -> int:
    with connected(arguments) as api:
        api.post(f"/v1/checkpoints/{arguments.id}/alias", {"alias": arguments.alias})
    print(f"{arguments.alias} is now {arguments.id}.")
    return 0


def _variant(text: str) -> dict[str, Any]:
    name, found, rest = text.partition("=")
    checkpoint, _, weight = (
        rest.rpartition(":") if rest.rpartition(":")[2].isdigit() else (rest, "", "")
    )
    if not found or not checkpoint:
        raise BadInput.of("--variant", f"{text!r} is not NAME=CHECKPOINT or NAME=CHECKPOINT:WEIGHT")
    return {"key": name, "checkpoint": checkpoint, "weight": int(weight or 1)}


def _guardrail(text: str) -> dict[str, Any]:
    name, _, margin = text.partition("=")
    try:
        return {"metric": name, "margin": float(margin)}
    except ValueError as error:
        raise BadInput.of("--guardrail", f"{text!r} is not METRIC=MARGIN") from error
