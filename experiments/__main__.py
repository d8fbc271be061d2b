"""This room alone: experiments, assignments and reports, beside a store that others fill."""

import os
import sys

import uvicorn

from experiments.api import ExperimentsApi
from experiments.registry import Experiments
from ingest.app import create_app
from ingest.control import open_control
from ingest.errors import ThumbwheelError
from ingest.keys import Keys
from ingest.settings import Settings
from ingest.store import Store


def serve(settings: Settings) -> None:
    store, control = Store.open(settings.store), open_control(settings.control)
    room = ExperimentsApi(Experiments(control), store, Keys(control))
    app = create_app(
        "Thumbwheel experiments", [room.router()], ready={"store": lambda: store.rows("SELECT 1")}
    )
    uvicorn.run(app, host=settings.host, port=settings.port, log_level="warning")
    control.dispose()
    store.close()


def main() -> int:
    try:
        serve(Settings.of(os.environ))
    except ThumbwheelError as error:
        print(f"experiments: {error.detail}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
