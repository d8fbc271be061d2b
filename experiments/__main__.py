"""This room alone: experiments, assignments and reports, beside a store that others fill."""

import os
import sys

from experiments.api import ExperimentsApi
from experiments.registry import Experiments
from ingest.app import alone, create_app, serve
from ingest.control import open_control
from ingest.keys import Keys
from ingest.settings import Settings
from ingest.store import Store


def room(settings: Settings) -> None:
    store = Store.open(settings.store, cluster=settings.cluster, keep=settings.keep)
    control = open_control(settings.control)
    api = ExperimentsApi(Experiments(control), store, Keys(control, settings.rate))
    app = create_app(
        "Thumbwheel experiments",
        [api.router()],
        ready={"store": lambda: store.rows("SELECT 1")},
        origins=settings.origins,
    )
    serve(app, settings)
    control.dispose()
    store.close()


if __name__ == "__main__":
    sys.exit(alone("experiments", room, Settings.of(os.environ)))
