"""What only many readers of one group can get wrong: they join, leave, die and come back late."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from ingest.errors import Unavailable
from ingest.log import Consumer, Entry, Record, open_log
from tests.ingest.brokers import Broker
from tests.ingest.logs import GROUP, poll, reading

# It says which batch it has, and commits it when it is told to go on.
_READER = """
import sys
from ingest.errors import Unavailable
from ingest.log import open_log

log = open_log(sys.argv[1])
consumer = log.consumer("store")
while True:
    records = consumer.poll(max_records=7, max_bytes=1 << 20, timeout_s=1)
    if not records:
        continue
    consumer.intend()
    print(records[0].partition, records[0].offset, records[-1].offset, flush=True)
    if not sys.stdin.readline():
        break
    try:
        consumer.commit()
    except Unavailable:
        print("refused", flush=True)
        consumer.rewind()
consumer.close()
log.close()
"""


class Batch(NamedTuple):
    partition: int
    first: int
    last: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Batch":
        return cls(records[0].partition, records[0].offset, records[-1].offset)


class Reader(NamedTuple):
    """A reader in a process of its own."""

    process: subprocess.Popen[str]

    def batch(self) -> Batch:
        assert self.process.stdout is not None
        return Batch(*map(int, self.process.stdout.readline().split()))

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def reader_process(url: str, root: Path) -> Iterator[Reader]:
    with subprocess.Popen(
        [sys.executable, "-c", _READER, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as process:
        yield Reader(process)
        process.kill()


def handled(consumer: Consumer) -> Batch | None:
    """The next batch, intended and committed; None if none came or it is not this reader's."""
    try:
        records = consumer.poll(max_records=5, max_bytes=1 << 20, timeout_s=0.2)
        consumer.intend()
        consumer.commit()
    except Unavailable:
        consumer.rewind()
        return None
    return Batch.of(records) if records else None


def test_readers_that_join_leave_and_die_share_every_record_in_the_same_batches(
    kafka_broker: Broker, request: pytest.FixtureRequest
) -> None:
    url = f"kafka://{kafka_broker.server}/shared-{uuid4().hex}"
    log = open_log(url)
    log.append([Entry(f"{n}", b"%d" % n) for n in range(600)])
    batches: list[Batch] = []
    done = threading.Event()

    def reader(turns: int) -> None:
        with reading(log) as consumer:
            while turns and not done.is_set():
                if batch := handled(consumer):
                    batches.append(batch)
                    turns -= 1

    with reader_process(url, request.config.rootpath) as other:
        died_with = other.batch()
        with ThreadPoolExecutor(4) as threads:
            readers = [threads.submit(reader, turns) for turns in (5, 10, 20, -1)]
            # It is in the middle of a batch while the others come.
            other.process.send_signal(signal.SIGKILL)
            deadline = time.monotonic() + 60
            while log.lag(GROUP) and time.monotonic() < deadline:
                done.wait(0.2)
            done.set()
            for each in readers:
                each.result()
    assert log.lag(GROUP) == 0
    log.close()
    # Each is handled once, in batches that do not overlap; and the dead reader's came again as it was.
    assert died_with in batches
    assert len(batches) == len(set(batches))
    places = [(b.partition, at) for b in batches for at in range(b.first, b.last + 1)]
    assert len(places) == len(set(places)) == 600


def test_a_reader_that_comes_back_late_commits_nothing_and_its_batch_is_with_another(
    kafka_broker: Broker, request: pytest.FixtureRequest
) -> None:
    url = f"kafka://{kafka_broker.server}/late-{uuid4().hex}"
    log = open_log(url)
    log.append([Entry("a", b"%d" % n) for n in range(30)])
    with reader_process(url, request.config.rootpath) as late, reading(log) as consumer:
        lates = late.batch()
        late.process.send_signal(signal.SIGSTOP)
        # The group waits for it until its session has ended.
        assert Batch.of(poll(consumer, max_records=30)) == lates
        consumer.intend()
        late.process.send_signal(signal.SIGCONT)
        late.go_on()
        assert late.process.stdout is not None
        assert late.process.stdout.readline() == "refused\n"
        assert log.lag(GROUP) == 30
        consumer.commit()
        assert log.lag(GROUP) == 30 - 7
    log.close()


def take_turns(readers: Sequence[Consumer]) -> None:
    """For as long as nobody loses what was polled, but no longer than half a minute."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for each in readers:
            each.poll(max_records=500, max_bytes=1 << 20, timeout_s=0.2)


def test_what_was_polled_is_void_once_partitions_changed_hands(kafka_broker: Broker) -> None:
    log = open_log(f"kafka://{kafka_broker.server}/void-{uuid4().hex}")
    log.append([Entry(f"{n}", b"%d" % n) for n in range(100)])
    with reading(log) as one:
        poll(one)
        with reading(log) as other, pytest.raises(Unavailable, match="changed hands"):
            take_turns([other, one])
        one.commit()
        assert log.lag(GROUP) == 100
    log.close()
