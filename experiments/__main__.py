"""This room alone: experiments, assignments and reports, beside a store that others fill."""

import os
import sys
from pathlib import Path

from experiments.api import ExperimentsApi
from experiments.decisions import DecisionsApi
from experiments.metrics import use_folder
from experiments.records import Decisions
from experiments.registry import Experiments
from experiments.watch import Watch
from ingest.app import alone, beside, create_app, serve
from ingest.control import open_control
from ingest.keys import Keys
from ingest.settings import Settings
from ingest.store import Store


def room(settings: Settings) -> None:
    if settings.metrics:
        use_folder(Path(settings.metrics))
    store = Store.open(settings.store, cluster=settings.cluster, keep=settings.keep)
    control = open_control(settings.control)
    keys, registry = Keys(control, settings.rate), Experiments(control)
    decisions = Decisions(control, store)
    app = create_app(
        "Thumbwheel experiments",
        [
            ExperimentsApi(registry, store, keys).router(),
            DecisionsApi(registry, decisions, keys).router(),
        ],
        ready={"store": lambda: store.rows("SELECT 1")},
        origins=settings.origins,
    )
    with beside(watch=Watch(registry, decisions)):
        serve(app, settings)
    control.dispose()
    store.close()


if __name__ == "__main__":
    sys.exit(alone("experiments", room, Settings.of(os.environ)))
