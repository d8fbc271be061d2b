"""How every command is added, finds its server, and speaks."""

import argparse
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console

from ingest.settings import Settings
from thumbwheel.client import Api, find_key

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name

OUT = Console(highlight=False, soft_wrap=True, width=max(Console().width, 100))
"""A terminal of 80 columns breaks long lines itself, which reads better than cells of two words."""


def add_door(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", metavar="URL", help="default THUMBWHEEL_URL, else http://127.0.0.1:8420"
    )
    parser.add_argument("--data", help="folder with the server's key file; default .thumbwheel")


def add_reading(
    verbs: Verbs, name: str, run: Callable[[Namespace], int], about: str
) -> argparse.ArgumentParser:
    """A command that reads one experiment, as of a time."""
    parser = verbs.add_parser(name, help=about)
    parser.add_argument("key")
    parser.add_argument("--as-of", help="ISO 8601 with zone; default now")
    parser.add_argument("--json", action="store_true")
    add_door(parser)
    parser.set_defaults(run=run)
    return parser


@contextmanager
def connected(arguments: Namespace) -> Iterator[Api]:
    """The server that the arguments and the environment name."""
    settings = Settings.of(arguments.environment, data=arguments.data)
    key = find_key(arguments.environment, settings.data)
    api = Api.connect(url_of(arguments, settings), key)
    try:
        yield api
    finally:
        api.close()


def url_of(arguments: Namespace, settings: Settings) -> str:
    named = arguments.server or arguments.environment.get("THUMBWHEEL_URL")
    return str(named or f"http://{settings.host}:{settings.port}")
