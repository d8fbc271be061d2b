"""This room alone: completions and checkpoints, writing facts to a log that others drain."""

import os
import sys

import httpx

from experiments.registry import Experiments
from ingest.app import alone, create_app, serve
from ingest.control import open_control
from ingest.drain import GROUP
from ingest.intake import Intake
from ingest.keys import Keys
from ingest.log import open_log
from ingest.settings import Settings
from ingest.store import Store
from serving.api import ServingApi
from serving.checkpoints import Checkpoints
from serving.gateway import Gateway


def room(settings: Settings) -> None:
    log, store = open_log(settings.log), Store.open(settings.store)
    control = open_control(settings.control)
    checkpoints = Checkpoints(control)
    gateway = Gateway(checkpoints, Experiments(control), Intake(log, store), httpx.AsyncClient())
    api = ServingApi(gateway, checkpoints, Keys(control, settings.rate))
    app = create_app(
        "Thumbwheel serving",
        [api.router()],
        ready={"log": lambda: log.lag(GROUP)},
        origins=settings.origins,
    )
    serve(app, settings)
    control.dispose()
    store.close()
    log.close()


if __name__ == "__main__":
    sys.exit(alone("serving", room, Settings.of(os.environ)))
