"""A client that costs little: batches of events over a few connections kept open."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

BATCH = 50
CONNECTIONS = 8
_ACCEPTED = re.compile(rb'"accepted":(\d+)')
_MARK = "00000000-0000-0000-0000-000000000000"


def _template() -> bytes:
    """BATCH events of about 600 bytes, alike but for their ids."""
    event = {
        "specversion": "1.0",
        "id": f"{_MARK}-NN",
        "source": "/ext/7d3f6c1e/bench",
        "type": "thumbwheel.turn.submitted.v1",
        "time": "2026-11-30T12:00:00.000Z",
        "sequence": 1,
        "user": "u-12",
        "consent": "code",
        "partitionkey": _MARK,
        "data": {"turn.id": f"{_MARK}-NN", "prompt": "rename the flag " * 18},
    }
    text = json.dumps(event)
    events = [text.replace("NN", f"{number:02}") for number in range(BATCH)]
    return f"[{','.join(events)}]".encode()


_TEMPLATE = _template()


def batch() -> tuple[str, bytes]:
    """A fresh batch, and what the id of each of its events begins with."""
    name = str(uuid4())
    return name, _TEMPLATE.replace(_MARK.encode(), name.encode())


@dataclass
class Tally:
    accepted: int = 0
    refused: int = 0
    """Requests that were answered with anything but 200."""
    waits_s: list[float] = field(default_factory=list)
    """Of each request, from its first byte to its answer."""


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes

    async def post(self, body: bytes) -> tuple[int, bytes]:
        self.writer.write(self.head % len(body) + body)
        status = int((await self.reader.readline()).split()[1])
        length = 0
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, await self.reader.readexactly(length)


@asynccontextmanager
async def connected(
    port: int, key: str, *, path: str = "/v1/events", kind: str = "application/json"
) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: %d\r\n\r\n"
    )
    yield Connection(reader, writer, head.encode())
    writer.close()


async def flood(port: int, key: str, seconds: float, *, most: int | None = None) -> Tally:
    """As many events as the server takes, from CONNECTIONS clients that each wait for the answer."""
    tally, ends = Tally(), time.perf_counter() + seconds

    async def client() -> None:
        async with connected(port, key) as connection:
            while time.perf_counter() < ends and (most is None or tally.accepted < most):
                began = time.perf_counter()
                status, answer = await connection.post(batch()[1])
                tally.waits_s.append(time.perf_counter() - began)
                found = _ACCEPTED.search(answer)
                if status == 200 and found:
                    tally.accepted += int(found[1])
                else:
                    tally.refused += 1

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return tally
