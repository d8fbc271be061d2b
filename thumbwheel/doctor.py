"""What may keep Thumbwheel from working here, and how to fix it."""

import shutil
import sys
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ingest.errors import ThumbwheelError
from ingest.settings import Settings
from ingest.store import Store
from thumbwheel.client import Api, find_key

_MIN_FREE = 2 << 30


class Finding(NamedTuple):
    fine: bool
    what: str


def examine(settings: Settings, environment: Mapping[str, str], url: str) -> list[Finding]:
    """Every finding, the machine first."""
    return [_python(), _disk(settings), _engine(), *_server(settings, environment, url)]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(sys.version_info >= (3, 11), f"Python {version} (3.11 or newer is needed)")


def _disk(settings: Settings) -> Finding:
    folder = next(each for each in (settings.data, *settings.data.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    return Finding(
        free > _MIN_FREE, f"{free >> 30} GiB free for {settings.data} (2 GiB or more is healthy)"
    )


def _engine() -> Finding:
    try:
        with TemporaryDirectory() as folder:
            store = Store.open(f"chdb://{folder}")
            version = store.rows("SELECT version() AS version")[0]["version"]
            store.close()
    except (ThumbwheelError, ImportError) as error:
        return Finding(False, f"the ClickHouse engine does not start: {error}")
    return Finding(True, f"ClickHouse engine {version} starts in this process")


def _server(settings: Settings, environment: Mapping[str, str], url: str) -> list[Finding]:
    try:
        api = Api.connect(url, find_key(environment, settings.data))
        with api.http:
            ready = api.get("/readyz")
            api.get("/v1/metrics")
    except ThumbwheelError as error:
        return [Finding(False, f"server: {error.detail}")]
    return [Finding(ready["ready"], f"server at {url} is ready and takes the key")]
