"""One half of this room alone: `python -m ingest api` or `python -m ingest drain`."""

import argparse
import logging
import os
import signal
import sys

from ingest.app import alone, create_app, serve
from ingest.drain import GROUP, Drain
from ingest.log import open_log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store


def api(settings: Settings) -> None:
    """Serves the doors; a drain elsewhere moves what they take."""
    with Ingest.open(settings) as room:
        app = create_app(
            "Thumbwheel ingest", room.routers(), ready=room.checks(), meters=room.meters()
        )
        serve(app, settings)
        room.erasures.close()


def drain(settings: Settings) -> None:
    """Moves facts from log to store until asked to stop."""
    log, store = open_log(settings.log), Store.open(settings.store)
    consumer = log.consumer(GROUP)
    job = Drain(consumer, store)
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: job.stop.set())
    job.run()
    consumer.close()
    store.close()
    log.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ingest", description=__doc__)
    parser.add_argument("half", choices=["api", "drain"])
    for name in ("host", "port", "data", "log", "store", "control"):
        parser.add_argument(f"--{name}", help=f"default THUMBWHEEL_{name.upper()}")
    arguments = vars(parser.parse_args())
    half = arguments.pop("half")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    room = api if half == "api" else drain
    return alone(f"ingest {half}", room, Settings.of(os.environ, **arguments))


if __name__ == "__main__":
    sys.exit(main())
