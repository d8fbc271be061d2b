"""`thumbwheel metrics`: what a report can be asked, and whether files of more can be read."""

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.library import load
from thumbwheel.door import OUT, Verbs, add_door, connected


def add_metrics(verbs: Verbs) -> None:
    parser = verbs.add_parser("metrics", help="list the server's metrics, or check files of more")
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FOLDER",
        help="read its *.yaml and *.yml files; ask no server",
    )
    parser.add_argument("--json", action="store_true")
    add_door(parser)
    parser.set_defaults(run=show_metrics)


def show_metrics(arguments: Namespace) -> int:
    if arguments.check:
        ready, found = load(), load(arguments.check)
        more = [found.metrics[key].public() for key in found.metrics.keys() - ready.metrics.keys()]
        metrics = sorted(more, key=lambda each: str(each["key"]))
    else:
        with connected(arguments) as api:
            metrics = api.get("/v1/metrics")["metrics"]
    if arguments.json:
        print(json.dumps(metrics, indent=2))
    else:
        OUT.print(_table(metrics))
    return 0


def _table(metrics: list[dict[str, Any]]) -> Table:
    table = Table("key", "good", "what it is", box=None)
    for each in metrics:
        table.add_row(each["key"], each["good"], _words(each))
    return table


def _words(metric: Mapping[str, Any]) -> str:
    seconds = metric["window_s"]
    window = f" (within {seconds / 86_400:g} days of the first exposure)" if seconds else ""
    return f"{metric['definition']}{window}"
