"""What durability costs at the door: accepted events a second, as a share of a door without log.

Both servers run in processes of their own, one after the other, on the same machine in the same
run; the load comes from this process: batches of 50 events of about 600 bytes on one connection.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import httpx
from fastapi import FastAPI

from ingest.api import IngestApi
from ingest.app import create_app
from ingest.control import open_control
from ingest.intake import FactId, Intake
from ingest.keys import Keys
from ingest.log import Consumer, Entry, open_log
from ingest.store import Store
from thumbwheel.demo.process import free_port

SECONDS = 8
BATCH = 50

_SERVER = """
import sys, uvicorn
from benchmarks.intake import build
uvicorn.run(build(sys.argv[1], sys.argv[2]), port=int(sys.argv[3]), log_level="error")
"""


class NothingLog:
    """Takes everything and keeps nothing: the limit that a real log is measured against."""

    def append(self, entries: Sequence[Entry]) -> str:
        return f"nothing/0/{len(entries)}"

    def consumer(self, group: str) -> Consumer:
        raise NotImplementedError(group)

    def lag(self, group: str) -> int:
        return len(group) * 0

    def close(self) -> None:
        """Holds nothing."""


class NothingStore:
    def known(self, ids: Sequence[FactId]) -> set[FactId]:
        return set(ids[:0])


def build(kind: str, folder: str) -> FastAPI:
    """The intake's app, durable or not; the key is in `<folder>/key`."""
    control = open_control(f"sqlite:///{folder}/control.db")
    keys = Keys(control)
    (Path(folder) / "key").write_text(keys.create(("ingest",))[1])
    store = Store.open(f"chdb://{folder}/store")
    if kind == "durable":
        intake = Intake(open_log(f"sqlite:///{folder}/log.db"), store)
    else:
        intake = Intake(NothingLog(), NothingStore())
    return create_app("bench", [IngestApi(intake, store, keys).router()], ready={})


def rate(kind: str) -> float:
    """Events acknowledged a second over SECONDS."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server = subprocess.Popen([sys.executable, "-c", _SERVER, kind, folder, str(port)])
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url)
            headers = {"Authorization": f"Bearer {(Path(folder) / 'key').read_text()}"}
            with httpx.Client(base_url=url, headers=headers) as http:
                return _load(http)
        finally:
            server.terminate()
            server.wait()


def _load(http: httpx.Client) -> float:
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        answer = http.post("/v1/events", content=_batch()).json()
        count += answer["accepted"]
    return count / (time.perf_counter() - began)


def _batch() -> bytes:
    conversation = str(uuid4())
    return json.dumps(
        [
            {
                "specversion": "1.0",
                "id": str(uuid4()),
                "source": "/ext/bench/1",
                "type": "thumbwheel.turn.submitted.v1",
                "time": "2026-11-30T12:00:00Z",
                "consent": "code",
                "partitionkey": conversation,
                "data": {"turn.id": str(uuid4()), "prompt": "x" * 330},
            }
            for _ in range(BATCH)
        ]
    ).encode()


def _wait(url: str) -> None:
    for _ in range(600):
        try:
            httpx.get(f"{url}/healthz").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(url)


def main() -> None:
    limit, durable = rate("nothing"), rate("durable")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"without log and store  {limit:10,.0f} events/s")
    print(f"local log, fsynced     {durable:10,.0f} events/s   {durable / limit:.2f} of it")


if __name__ == "__main__":
    main()
