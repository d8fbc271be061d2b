"""What only a cluster can get wrong for who appends: its own limits, and brokers that go away."""

import gc
import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from uuid import uuid4

import pytest

from ingest.errors import BadInput, TooLarge, Unavailable
from ingest.log import Entry, Log, Record, open_log, position
from tests.ingest.brokers import Broker, make_topic
from tests.ingest.logs import GROUP, reading, until

LIMIT = 100_000
BIG = random.Random(1).randbytes(2 * LIMIT)


@pytest.fixture
def narrow(kafka_broker: Broker) -> Iterator[Log]:
    """A log in a topic that takes small records only."""
    log = open_log(
        f"kafka://{kafka_broker.server}/{make_topic(kafka_broker, max_message_bytes=str(LIMIT))}"
    )
    yield log
    log.close()


def test_a_record_beyond_the_topics_limit_is_refused_and_the_next_is_taken(narrow: Log) -> None:
    for _ in range(2):
        with pytest.raises(TooLarge, match=r"max\.message\.bytes"):
            narrow.append([Entry("a", BIG)])
        assert narrow.append([Entry("a", b"small")])


def test_a_record_beyond_the_topics_limit_harms_no_other_on_its_way(narrow: Log) -> None:
    def small(key: str) -> None:
        n = 0
        while n < 30:
            with suppress(
                Unavailable
            ):  # then the client sends again; never TooLarge, which is final
                narrow.append([Entry(key, b"%d" % n)])
                n += 1

    with ThreadPoolExecutor(5) as threads:
        smalls = threads.map(small, "abcd")
        for _ in range(5):
            with pytest.raises(TooLarge):
                narrow.append([Entry("e", BIG)])
        list(smalls)
    consumer = narrow.consumer("store")
    values: dict[str, list[int]] = {key: [] for key in "abcd"}
    while any(len(set(found)) < 30 for found in values.values()):
        for record in consumer.poll(max_records=500, max_bytes=1 << 20, timeout_s=1):
            values[record.key].append(int(record.value))
    consumer.close()
    # One may be there twice, if it was taken just when the large one was refused.
    assert all(list(dict.fromkeys(found)) == list(range(30)) for found in values.values())


def test_each_setting_of_a_topic_that_may_lose_facts_is_named_once(
    kafka_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(
        kafka_broker,
        max_message_bytes="1000000",
        retention_ms="86400000",
        retention_bytes="5000000",
        unclean_leader_election_enable="true",
    )
    caplog.set_level(logging.WARNING, logger="ingest")
    open_log(f"kafka://{kafka_broker.server}/{topic}").close()
    found = [record.getMessage() for record in caplog.records if record.name.startswith("ingest")]
    assert [message.partition(":")[0] for message in found] == [
        f"topic {topic} has max.message.bytes=1000000",
        f"topic {topic} has retention.ms=86400000",
        f"topic {topic} has retention.bytes=5000000",
        f"topic {topic} has min.insync.replicas=1",
        f"topic {topic} has unclean.leader.election.enable=true",
    ]


def test_a_topic_that_keeps_what_was_acknowledged_is_opened_without_a_word(
    kafka_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(
        kafka_broker,
        max_message_bytes="26214400",
        retention_ms="604800000",
        min_insync_replicas="2",
    )
    caplog.set_level(logging.WARNING, logger="ingest")
    open_log(f"kafka://{kafka_broker.server}/{topic}").close()
    assert [record for record in caplog.records if record.name.startswith("ingest")] == []


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_topic_that_is_compacted_is_refused_with_the_fix(
    policy: str, kafka_broker: Broker
) -> None:
    topic = make_topic(kafka_broker, cleanup_policy=policy)
    with pytest.raises(BadInput, match=r"set cleanup\.policy=delete"):
        open_log(f"kafka://{kafka_broker.server}/{topic}")


def test_what_is_on_its_way_is_bounded_and_more_is_refused_at_once(kafka_broker: Broker) -> None:
    log = open_log(f"kafka://{kafka_broker.server}/full-{uuid4().hex}")
    log.append([Entry("a", b"first")])
    large = [Entry("a", bytes(20 << 20))]

    def append(_: int) -> str:
        try:
            return log.append(large)
        except Unavailable as error:
            assert kafka_broker.process is not None
            kafka_broker.process.send_signal(signal.SIGCONT)
            return str(error)

    assert kafka_broker.process is not None
    kafka_broker.process.send_signal(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(4) as threads:
            said = sorted(threads.map(append, range(4)))
    finally:
        kafka_broker.process.send_signal(signal.SIGCONT)
    assert said[0] == "append to Kafka: the brokers do not keep up"
    assert [place.rpartition("/")[2] for place in said[1:]] == ["1", "2", "3"]
    # What was on its way has given its room back.
    with ThreadPoolExecutor(3) as threads:
        places = threads.map(lambda _: log.append(large), range(3))
        assert sorted(place.rpartition("/")[2] for place in places) == ["4", "5", "6"]
    log.close()


@pytest.fixture
def collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """kafka-python 3.0.12 leaves the closing of refused sockets to the garbage collector.

    Captured lines of its log would hold them until after the test.
    """
    caplog.set_level(logging.CRITICAL, logger="kafka")
    yield
    gc.collect()


@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_reader_that_is_closed_while_the_broker_is_away_leaves_no_member_behind(
    kafka_broker: Broker,
) -> None:
    log = open_log(f"kafka://{kafka_broker.server}/left-{uuid4().hex}")
    log.append([Entry("a", b"a0")])
    before = threading.active_count()
    with reading(log) as consumer:
        assert consumer.poll(max_records=1, max_bytes=1 << 20, timeout_s=20)
        assert threading.active_count() > before
        kafka_broker.stop(signal.SIGKILL)
    assert threading.active_count() == before
    kafka_broker.start()
    log.close()


class Traffic:
    """Four writers, each with a key, and one reader, until they are told to end."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.acknowledged: dict[str, str] = {}
        self.read: list[Record] = []
        self.refused = ""
        self.written = threading.Event()
        self.all_read = threading.Event()

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Nobody goes on for ever when the test fails in between."""
        try:
            yield
        finally:
            self.written.set()
            self.all_read.set()

    def write(self, key: str) -> None:
        """Each value is sent once: what was refused may be there or not."""
        for n in count():
            if self.written.is_set():
                return
            with suppress(Unavailable):
                self.append(key, n)

    def append(self, key: str, n: int) -> None:
        self.acknowledged[f"{key}{n}"] = self.log.append([Entry(key, f"{key}{n}".encode())])

    def drain(self) -> None:
        with reading(self.log) as consumer:
            while not self.all_read.is_set():
                try:
                    records = consumer.poll(max_records=50, max_bytes=1 << 20, timeout_s=0.5)
                    consumer.intend()
                    consumer.commit()
                    self.read.extend(records)
                except Unavailable as error:
                    self.refused = error.detail
                    consumer.rewind()

    def drained(self) -> None:
        if left := self.log.lag(GROUP):
            have = f"{len(self.read)} were, refused last: {self.refused}"
            raise Unavailable(f"{left} records are not read yet; {have}")


@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_all_that_was_acknowledged_is_read_once_though_the_broker_was_stopped_and_killed(
    kafka_broker: Broker,
) -> None:
    log = open_log(f"kafka://{kafka_broker.server}/killed-{uuid4().hex}")
    traffic = Traffic(log)
    with ThreadPoolExecutor(5) as threads, traffic.ended():
        writers = [threads.submit(traffic.write, key) for key in "abcd"]
        reader = threads.submit(traffic.drain)
        for n, sent in enumerate((signal.SIGTERM, signal.SIGKILL)):
            kafka_broker.stop(sent)
            asked: list[Callable[[], object]] = [
                lambda: log.append([Entry("x", b"x0")]),
                lambda: log.lag(GROUP),
            ]
            began = time.monotonic()
            with pytest.raises(Unavailable):
                asked[n]()
            assert time.monotonic() - began < 30
            kafka_broker.start()
            until(lambda: traffic.append("y", 2 * len(traffic.acknowledged)), within_s=60)
        traffic.written.set()
        for each in writers:
            each.result()
        until(lambda: reader.result() if reader.done() else traffic.drained(), within_s=60)
        traffic.all_read.set()
        reader.result()
    log.close()
    values = [record.value.decode() for record in traffic.read]
    assert len(values) == len(set(values))
    places = dict(zip(values, map(position, traffic.read), strict=True))
    assert {name: places.get(name) for name in traffic.acknowledged} == traffic.acknowledged
    for key in "abcd":
        numbers = [int(value[1:]) for value in values if value.startswith(key)]
        assert numbers == sorted(numbers)
