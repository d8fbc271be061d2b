"""One half of this room alone: `python -m ingest api` or `python -m ingest drain`."""

import argparse
import os
import signal
import sys
import threading
from functools import partial

from ingest.app import alone, beside, create_app, serve, settle
from ingest.drain import GROUP, Drain
from ingest.log import Log, open_log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store
from ingest.watch import Batches, drain_meters


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
        try:
            with beside(upkeep=room.upkeep()):
                serve(app, settings)
        finally:
            room.erasures.close()


def drain(settings: Settings, *, watched: bool = False) -> None:
    """Moves facts from log to store until asked to stop; `watched`, its port shows how it goes."""
    stop = threading.Event()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: stop.set())
    log = open_log(settings.log)
    store = Store.open(settings.store, cluster=settings.cluster, keep=settings.keep)
    consumer = log.consumer(GROUP)
    settle()
    job = Drain(consumer, store, stop=stop)
    if watched:
        _watched(job, log, settings)
    else:
        job.run()
    consumer.close()
    store.close()
    log.close()


def _watched(job: Drain, log: Log, settings: Settings) -> None:
    job.watch = batches = Batches()
    app = create_app(
        "Thumbwheel drain",
        [],
        ready={"log": lambda: log.lag(GROUP)},
        meters=drain_meters(job),
        collectors=batches.collectors,
    )
    with beside(drain=job):
        serve(app, settings)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ingest", description=__doc__)
    parser.add_argument("half", choices=["api", "drain"])
    for name in ("host", "port", "data", "log", "store", "control"):
        parser.add_argument(f"--{name}", help=f"default THUMBWHEEL_{name.upper()}")
    arguments = vars(parser.parse_args())
    half = arguments.pop("half")
    room = api if half == "api" else partial(drain, watched=arguments["port"] is not None)
    return alone(f"ingest {half}", room, Settings.of(os.environ, **arguments))


if __name__ == "__main__":
    sys.exit(main())
