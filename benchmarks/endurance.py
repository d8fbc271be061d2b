"""What takes minutes: memory over two million events, and the start with five million stored."""

import asyncio
import json
import tempfile
import time
from pathlib import Path

from benchmarks.doors import Door, whole_server
from benchmarks.load import flood
from ingest.store import Store

EVENTS = 2_000_000
STORED = 5_000_000
_PARTS, _STARTS = 20, 5


def resident_mib(pid: int) -> float:
    """Of the process, as Linux counts it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(pid)


def memory() -> list[list[float]]:
    """MiB resident, several times in each twentieth of EVENTS, taken and stored by one server."""
    with tempfile.TemporaryDirectory() as folder, whole_server(Path(folder) / "data") as server:
        return asyncio.run(_memory(server))


async def _memory(server: Door) -> list[list[float]]:
    samples = []
    for _ in range(_PARTS):
        found: list[float] = []
        watch = asyncio.create_task(_watch(server.process.pid, found))
        await flood(server.port, server.key, 3_600, most=EVENTS // _PARTS)
        watch.cancel()
        samples.append(found)
    return samples


async def _watch(pid: int, found: list[float]) -> None:
    while True:
        found.append(resident_mib(pid))
        await asyncio.sleep(0.25)


def starts_s() -> list[float]:
    """Seconds from the command until `/readyz` is 200, with STORED events in the store, each time."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        store = Store.open(f"chdb://{data / 'store'}")
        body = json.dumps({"specversion": "1.0", "data": {"prompt": "x" * 330}})
        store.command(
            "INSERT INTO events (source, id, type, received_at, user, consent, position, body) "
            "SELECT concat('/ext/', toString(number % 5000)), toString(generateUUIDv4(number)), "
            "'thumbwheel.turn.submitted.v1', now64(6), toString(number % 900), 'code', 'local/0/1', "
            "{body:String} FROM numbers({rows:UInt64})",
            body=body,
            rows=STORED,
        )
        store.close()
        return [_start_s(data) for _ in range(_STARTS)]


def _start_s(data: Path) -> float:
    began = time.perf_counter()
    with whole_server(data):
        return time.perf_counter() - began
