"""This room alone: completions and checkpoints, writing facts to a log that others drain."""

import os
import sys

import httpx

from experiments.registry import Experiments
from ingest.app import alone, create_app, serve
from ingest.room import Ingest
from ingest.settings import Settings
from serving.api import ServingApi
from serving.checkpoints import Checkpoints
from serving.gateway import Gateway


def room(settings: Settings) -> None:
    # The whole room of facts: what serving mints goes through the same door as what editors send.
    with Ingest.open(settings) as facts:
        http = httpx.AsyncClient()
        checkpoints = Checkpoints(facts.control)
        gateway = Gateway(checkpoints, Experiments(facts.control), facts.intake, http)
        app = create_app(
            "Thumbwheel serving",
            [ServingApi(gateway, checkpoints, facts.keys).router()],
            ready=facts.checks(),
            origins=settings.origins,
        )
        app.router.add_event_handler("shutdown", http.aclose)
        serve(app, settings)


if __name__ == "__main__":
    sys.exit(alone("serving", room, Settings.of(os.environ)))
