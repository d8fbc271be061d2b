"""Reading a log in tests, whichever it is."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ingest.errors import Unavailable
from ingest.log import Consumer, Log, Record

GROUP = "store"


@contextmanager
def reading(log: Log, group: str = GROUP) -> Iterator[Consumer]:
    consumer = log.consumer(group)
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int, *, within_s: float = 30) -> list[Record]:
    """At least `count` records, and what comes in the half second after them."""
    records: list[Record] = []
    deadline = time.monotonic() + within_s
    while len(records) < count and time.monotonic() < deadline:
        records += consumer.poll(max_records=500, max_bytes=1 << 24, timeout_s=1)
    assert len(records) >= count, f"{len(records)} of {count} within {within_s} s"
    return records + consumer.poll(max_records=500, max_bytes=1 << 24, timeout_s=0.5)


def poll(
    consumer: Consumer, *, max_records: int = 500, max_bytes: int = 1 << 24, within_s: float = 30
) -> list[Record]:
    """The next batch that is not empty."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if records := consumer.poll(max_records=max_records, max_bytes=max_bytes, timeout_s=1):
            return records
    raise AssertionError(f"nothing came within {within_s} s")


def by_key(records: Sequence[Record]) -> dict[str, list[bytes]]:
    values = defaultdict(list)
    for record in records:
        values[record.key].append(record.value)
    return dict(values)


def until(action: Callable[[], object], *, within_s: float) -> None:
    """`action` does not answer Unavailable any more."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            action()
        except Unavailable:
            time.sleep(0.2)
        else:
            return
    action()
