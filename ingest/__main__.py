"""One half of this room alone: `python -m ingest api` or `python -m ingest drain`."""

import argparse
import os
import signal
import sys
import threading

from ingest.app import alone, create_app, serve, settle
from ingest.drain import GROUP, Drain
from ingest.log import open_log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store


def api(settings: Settings) -> None:
    """Serves the doors; a drain elsewhere moves what they take."""
    with Ingest.open(settings) as room:
        app = create_app(
            "Thumbwheel ingest",
            room.routers(),
            ready=room.checks(),
            meters=room.meters(),
            origins=settings.origins,
        )
        upkeep = room.upkeep()
        beside = threading.Thread(target=upkeep.run, name="upkeep")
        beside.start()
        serve(app, settings)
        upkeep.stop.set()
        beside.join()
        room.erasures.close()


def drain(settings: Settings) -> None:
    """Moves facts from log to store until asked to stop."""
    stop = threading.Event()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: stop.set())
    log = open_log(settings.log)
    store = Store.open(settings.store, cluster=settings.cluster, keep=settings.keep)
    consumer = log.consumer(GROUP)
    settle()
    Drain(consumer, store, stop=stop).run()
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
    room = api if half == "api" else drain
    return alone(f"ingest {half}", room, Settings.of(os.environ, **arguments))


if __name__ == "__main__":
    sys.exit(main())
