"""This room alone: experiments, assignments and reports, beside a store that others fill."""

import os
import sys

from experiments.api import ExperimentsApi
from experiments.registry import Experiments
from ingest.app import create_app, serve
from ingest.control import open_control
from ingest.errors import ThumbwheelError
from ingest.keys import Keys
from ingest.settings import Settings
from ingest.store import Store


def room(settings: Settings) -> None:
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    store, control = Store.open(settings.store), open_control(settings.control)
    api = ExperimentsApi(Experiments(control), store, Keys(control))
    app = create_app(
        "Thumbwheel experiments", [api.router()], ready={"store": lambda: store.rows("SELECT 1")}
    )
    serve(app, settings)
    control.dispose()
    store.close()


def main() -> int:
    try:
        room(Settings.of(os.environ))
    except ThumbwheelError as error:
        print(f"experiments: {error.detail}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
