"""The `thumbwheel` command: parses, then calls one function."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ingest.errors import BadInput, ThumbwheelError
from ingest.events import CONSENT_LEVELS
from ingest.importers import Format
from thumbwheel import commands
from thumbwheel.analyze import add_analyze
from thumbwheel.client import ServerSays
from thumbwheel.decide import add_decide
from thumbwheel.designs import add_designs
from thumbwheel.door import Verbs, add_door, add_reading
from thumbwheel.erase import add_erase
from thumbwheel.metrics import add_metrics
from thumbwheel.operations import add_operations
from thumbwheel.simulate import add_simulate

USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """The exit code: 0 done, 1 could not, 2 wrong input, 130 stopped by ^C."""
    arguments = _parser(environment).parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except BadInput as error:
        print(f"thumbwheel: {error.detail}", file=sys.stderr)
        return USAGE_ERROR
    except ThumbwheelError as error:
        print(f"thumbwheel: {error.detail}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, ServerSays) and "(422)" in error.detail else 1
    except KeyboardInterrupt:
        print("thumbwheel: stopped", file=sys.stderr)
        return 130
    return code


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thumbwheel",
        description="The outer loop of an AI code editor: from a thumb to a verdict to a training set.",
    )
    parser.set_defaults(environment=environment)
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_server(verbs)
    _add_import(verbs)
    _add_experiments(verbs)
    add_metrics(verbs)
    add_decide(verbs)
    add_designs(verbs)
    add_analyze(verbs)
    add_simulate(verbs)
    _add_export(verbs)
    _add_keys(verbs)
    add_erase(verbs)
    _add_checkpoints(verbs)
    add_operations(verbs)
    return parser


def _add_server(verbs: Verbs) -> None:
    up = verbs.add_parser("up", help="serve all rooms on one port, without any other service")
    up.add_argument("--host", help="default 127.0.0.1")
    up.add_argument("--port", type=int, help="default 8420")
    up.add_argument("--data", help="folder of log, store and keys; default .thumbwheel")
    up.set_defaults(run=commands.up)
    demo = verbs.add_parser("demo", help="turn the whole loop once on real and simulated input")
    demo.add_argument("--developers", type=int, default=480, help="simulated ones; default 480")
    demo.add_argument("--seed", type=int, default=1)
    demo.add_argument("--keep", action="store_true", help="serve the result until ^C")
    demo.set_defaults(run=commands.demo)
    doctor = verbs.add_parser(
        "doctor", help="check this machine and the server, and say what to fix"
    )
    add_door(doctor)
    doctor.set_defaults(run=commands.doctor)
    schema = verbs.add_parser("schema", help="print the JSON Schema of all facts")
    schema.set_defaults(run=commands.schema)


def _add_import(verbs: Verbs) -> None:
    parser = verbs.add_parser("import", help="take in the history of another agent")
    parser.add_argument("format", choices=get_args(Format))
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="plain, gzip or xz")
    parser.add_argument(
        "--consent",
        choices=CONSENT_LEVELS,
        default="metrics",
        help="what the developer agreed to; content is imported from 'code' on (default metrics); "
        "of `events` the most that is let through",
    )
    parser.add_argument("--user", default="unknown", help="whose history it is")
    parser.add_argument(
        "--timezone", type=_zone, default="UTC", help="where it was written; default UTC"
    )
    parser.add_argument("--dry-run", action="store_true", help="read and count, send nothing")
    add_door(parser)
    parser.set_defaults(run=commands.import_histories)


def _add_experiments(verbs: Verbs) -> None:
    report = add_reading(verbs, "report", commands.report, "what an experiment says now")
    report.add_argument(
        "--segment", metavar="KEY", help="effects by part, too: language, editor, …"
    )
    report.add_argument("--novelty", action="store_true", help="and by day since first exposure")
    experiment = verbs.add_parser(
        "experiment", help="create, start, ramp, pause, stop and list experiments"
    )
    actions = experiment.add_subparsers(required=True, metavar="ACTION")
    create = _add_create(actions)
    for name in ("start", "pause", "stop"):
        change = actions.add_parser(name)
        change.add_argument("key")
        change.set_defaults(run=commands.change_experiment, action=name)
        add_door(change)
    ramp = actions.add_parser("ramp", help="let more units in; nobody changes arms")
    ramp.add_argument("key")
    ramp.add_argument("--coverage", type=float, required=True)
    ramp.set_defaults(run=commands.ramp_experiment)
    listing = actions.add_parser("list")
    listing.set_defaults(run=commands.list_experiments)
    for each in (create, ramp, listing):
        add_door(each)


def _add_create(actions: Verbs) -> argparse.ArgumentParser:
    create = actions.add_parser("create", help="a draft; the first variant is the control")
    create.add_argument("key")
    create.add_argument(
        "--variant",
        action="append",
        required=True,
        metavar="NAME=CHECKPOINT[:WEIGHT]",
        help="twice or more",
    )
    create.add_argument("--goal", action="append", metavar="METRIC", help="default thumbs_net")
    create.add_argument("--guardrail", action="append", default=[], metavar="METRIC=MARGIN")
    create.add_argument(
        "--reading", choices=["sequential", "group_sequential", "fixed"], default="sequential"
    )
    create.add_argument("--planned-units", type=int)
    create.add_argument("--coverage", type=float, help="share of the layer; default all")
    create.add_argument("--ramp-to", type=float, help="coverage to keep free for a ramp")
    create.add_argument("--layer", help="experiments of one layer share no unit; default 'default'")
    create.add_argument("--min-days", type=int, help="before anything ships; default 7")
    create.add_argument(
        "--on-harm", choices=["tell", "stop"], help="what the watch does; default tell"
    )
    create.set_defaults(run=commands.create_experiment)
    return create


def _add_export(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "export", help="write a training set from facts with consent 'training'"
    )
    parser.add_argument("--format", choices=["sft", "kto"], required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--since", help="ISO 8601 with zone, by time of receipt")
    parser.add_argument("--until", help="ISO 8601 with zone, by time of receipt")
    parser.add_argument("--checkpoint", help="answers of this checkpoint only")
    parser.add_argument("--experiment", help="answers served in this experiment only")
    add_door(parser)
    parser.set_defaults(run=commands.export)


def _add_keys(verbs: Verbs) -> None:
    key = verbs.add_parser("key", help="create, list and revoke keys")
    actions = key.add_subparsers(required=True, metavar="ACTION")
    create = actions.add_parser("create")
    create.add_argument("--scope", action="append", required=True, help="repeat for several")
    create.add_argument("--label", default="")
    create.add_argument("--rate", type=int, help="requests a second; default the server's")
    create.set_defaults(run=commands.create_key)
    listing = actions.add_parser("list")
    listing.set_defaults(run=commands.list_keys)
    revoke = actions.add_parser("revoke")
    revoke.add_argument("id")
    revoke.set_defaults(run=commands.revoke_key)
    for each in (create, listing, revoke):
        add_door(each)


def _add_checkpoints(verbs: Verbs) -> None:
    checkpoint = verbs.add_parser("checkpoint", help="register checkpoints and name the champion")
    actions = checkpoint.add_subparsers(required=True, metavar="ACTION")
    add = actions.add_parser("add")
    add.add_argument("id")
    add.add_argument("--url", required=True, help="of an OpenAI-compatible engine, ends in /v1")
    add.add_argument("--model", help="what the engine calls it; default the id")
    add.add_argument(
        "--api-key-env", metavar="NAME", help="environment variable with the engine's key"
    )
    add.set_defaults(run=commands.add_checkpoint)
    listing = actions.add_parser("list")
    listing.set_defaults(run=commands.list_checkpoints)
    alias = actions.add_parser("alias", help="for example: alias my-checkpoint champion")
    alias.add_argument("id")
    alias.add_argument("alias")
    alias.set_defaults(run=commands.alias_checkpoint)
    for each in (add, listing, alias):
        add_door(each)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"no time zone {name!r}; for example Europe/Berlin"
        ) from error
