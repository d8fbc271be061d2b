"""The servers that are measured, each in a process of its own: `python -m benchmarks.doors KIND FOLDER PORT`."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from ingest.app import create_app, settle
from ingest.control import open_control
from ingest.intake import FactId
from ingest.keys import SCOPES
from ingest.log import Consumer, Entry, open_log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store
from thumbwheel.demo.process import free_port


class NothingLog:
    """Takes everything and keeps nothing: the limit that a real log is measured against."""

    def append(self, entries: Sequence[Entry]) -> str:
        return f"nothing/0/{len(entries)}"

    def consumer(self, group: str) -> Consumer:
        raise NotImplementedError(group)

    def lag(self, group: str) -> int:
        return len(group) * 0

    def trim(self, group: str, *, keep_bytes: int = 0) -> int:
        return len(group) * keep_bytes * 0

    def close(self) -> None:
        """Holds nothing."""


class NothingStore:
    def known(self, ids: Sequence[FactId]) -> set[FactId]:
        return set(ids[:0])


def serve(kind: str, folder: Path, port: int) -> None:
    """The doors of the ingest room; `kind` is "nothing", or the url of a log. No drain runs beside."""
    settings = Settings.of({}, data=str(folder), rate="1000000")
    store, control = Store.open(settings.store), open_control(settings.control)
    log = NothingLog() if kind == "nothing" else open_log(kind)
    room = Ingest.of(settings, log, store, control)
    if kind == "nothing":
        room.intake.store = NothingStore()
    room.upkeep().turn()
    (folder / "key").write_text(room.keys.create(SCOPES)[1])
    app = create_app("bench", room.routers(), ready={})
    settle()
    uvicorn.run(app, port=port, log_level="error", access_log=False)


@contextmanager
def whole_server(data: Path) -> Iterator["Door"]:
    """`thumbwheel up` with its drain, as a user starts it."""
    port = free_port()
    up = [sys.executable, "-m", "thumbwheel", "up", "--data", str(data), "--port", str(port)]
    process = subprocess.Popen(
        ["/usr/bin/env", "THUMBWHEEL_RATE=1000000", *up],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz")
        yield Door(port, (data / "key").read_text().strip(), process)
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Door:
    port: int
    key: str
    process: subprocess.Popen[bytes]


@contextmanager
def door(kind: str, folder: Path) -> Iterator[Door]:
    """A server of that kind, ready; it is gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.doors", kind, str(folder), str(port)]
    process = subprocess.Popen(command)
    try:
        wait_for(f"http://127.0.0.1:{port}/healthz")
        yield Door(port, (folder / "key").read_text().strip(), process)
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, *, within_s: float = 60) -> None:
    """The url answers with success."""
    ends = time.monotonic() + within_s
    # One client: to make one for each question takes as much of the core as the start that is timed.
    with httpx.Client() as client:
        while time.monotonic() < ends:
            with suppress(httpx.TransportError):
                if client.get(url).is_success:
                    return
            time.sleep(0.05)
    raise TimeoutError(url)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
