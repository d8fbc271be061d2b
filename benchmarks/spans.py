"""The same spans to Thumbwheel and to Arize Phoenix: what each acknowledges, and what a kill leaves."""

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from benchmarks.doors import wait_for, whole_server
from benchmarks.load import BATCH, connected
from ingest.store import Store
from thumbwheel.demo.process import free_port

SECONDS = 10
_CLIENTS = 4


@dataclass(frozen=True)
class Survival:
    acknowledged: int
    refused: int
    survived: int
    """Spans that are there after `kill -9` and a new start."""


def export() -> bytes:
    """One OTLP request of BATCH generations."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    trace = uuid4().bytes
    now = time.time_ns()
    given = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "x",
        "gen_ai.response.id": "chatcmpl-1", "gen_ai.conversation.id": trace.hex(),
        "openinference.span.kind": "LLM",
    }  # fmt: skip
    for _ in range(BATCH):
        span = spans.add(
            trace_id=trace, span_id=uuid4().bytes[:8], name="chat m",
            start_time_unix_nano=now - 10**9, end_time_unix_nano=now,
        )  # fmt: skip
        for key, value in given.items():
            span.attributes.append(KeyValue(key=key, value=AnyValue(string_value=value)))
        for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
            span.attributes.append(KeyValue(key=key, value=AnyValue(int_value=17)))
    return bytes(request.SerializeToString())


async def _send(port: int, key: str) -> tuple[int, int]:
    """Spans acknowledged and refused within SECONDS."""
    counts = {True: 0, False: 0}
    ends = time.perf_counter() + SECONDS

    async def client() -> None:
        door = connected(port, key, path="/v1/traces", kind="application/x-protobuf")
        async with door as connection:
            while time.perf_counter() < ends:
                status, _ = await connection.post(export())
                counts[status == 200] += BATCH
                if status != 200:
                    await asyncio.sleep(0.05)

    await asyncio.gather(*(client() for _ in range(_CLIENTS)))
    return counts[True], counts[False]


def ours(folder: Path) -> Survival:
    with whole_server(folder / "data") as server:
        taken, refused = asyncio.run(_send(server.port, server.key))
        server.process.kill()
        server.process.wait()
    with whole_server(folder / "data") as server:
        _drained(server.port)
    store = Store.open(f"chdb://{folder / 'data' / 'store'}")
    rows = store.rows("SELECT count() AS n FROM events FINAL WHERE startsWith(source, '/otlp/')")
    store.close()
    return Survival(taken, refused, int(rows[0]["n"]))


def _drained(port: int) -> None:
    import httpx  # noqa: PLC0415 - only here

    lag = re.compile(r"^thumbwheel_log_lag 0(\.0)?$", re.MULTILINE)
    while not lag.search(httpx.get(f"http://127.0.0.1:{port}/metrics").text):
        time.sleep(0.2)


def phoenix(python: Path, folder: Path, *, rest_s: float) -> Survival:
    """Phoenix as `phoenix serve` starts it, on SQLite, killed so long after the last request."""
    port = free_port()
    process = subprocess.Popen(
        [
            "/usr/bin/env", f"PHOENIX_WORKING_DIR={folder}", f"PHOENIX_PORT={port}",
            "PHOENIX_HOST=127.0.0.1", f"PHOENIX_GRPC_PORT={free_port()}",
            "PHOENIX_TELEMETRY_ENABLED=false", str(python), "-m", "phoenix.server.main", "serve",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/healthz", within_s=180)
        taken, refused = asyncio.run(_send(port, "none"))
        time.sleep(rest_s)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with closing(sqlite3.connect(folder / "phoenix.db")) as database:
        survived = int(database.execute("SELECT count(*) FROM spans").fetchone()[0])
    return Survival(taken, refused, survived)
