"""From the client's send to the answer of a question: how old is what a reader sees?"""

import asyncio
import json
import re
import time
from collections.abc import Sequence

import httpx

from benchmarks.doors import Door
from benchmarks.load import BATCH, Connection, batch, connected

_MISSING = re.compile(rb'"missing":\[\]')


async def delays_s(server: Door, rate: float, seconds: float) -> list[float]:
    """Of one batch in ten: seconds from its send until all of it is queryable, at `rate` events/s."""
    delays: list[float] = []
    pause, pending = BATCH / rate, []
    async with connected(server.port, server.key) as sending:
        ends = next_at = time.perf_counter() + 0
        ends += seconds
        count = 0
        while time.perf_counter() < ends:
            name, body = batch()
            began = time.perf_counter()
            await sending.post(body)
            count += 1
            if count % 10 == 0:
                pending.append(asyncio.create_task(_until_queryable(server, name, began)))
            next_at += pause
            await asyncio.sleep(max(0.0, next_at - time.perf_counter()))
    delays += await asyncio.gather(*pending)
    return delays


async def _until_queryable(server: Door, name: str, began: float) -> float:
    last = f"{name}-{BATCH - 1:02}"
    question = json.dumps({"facts": [{"source": "/ext/7d3f6c1e/bench", "id": last}]}).encode()
    async with connected(server.port, server.key, path="/v1/events/audit") as asking:
        while not _MISSING.search((await asking.post(question))[1]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return time.perf_counter() - began


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def stored(server: Door) -> int:
    """How many facts the server's drain has stored since it started."""
    answer = httpx.get(f"http://127.0.0.1:{server.port}/metrics").text
    found = re.search(r"^thumbwheel_stored_total (\S+)$", answer, re.MULTILINE)
    return int(float(found[1])) if found else 0


__all__ = ["Connection", "delays_s", "quantile", "stored"]
