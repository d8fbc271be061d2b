"""What only many machines can get wrong: a cluster's own limits, readers that come and go."""

import random
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import pytest

from ingest.errors import TooLarge, Unavailable
from ingest.log import Entry, Log, open_log
from tests.ingest.brokers import Broker

LIMIT = 100_000
BIG = random.Random(1).randbytes(2 * LIMIT)


@pytest.fixture
def narrow(kafka_broker: Broker) -> Iterator[Log]:
    """A log in a topic that an operator has made, and that takes small records only."""
    topic = f"narrow-{uuid4().hex}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaAdminClient  # noqa: PLC0415 - it warns while it loads
    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.server)
    settings = {"num_partitions": 1, "configs": {"max.message.bytes": str(LIMIT)}}
    admin.create_topics({topic: settings}, wait_for_metadata=True)
    admin.close()
    log = open_log(f"kafka://{kafka_broker.server}/{topic}")
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


def test_nothing_is_lost_while_readers_of_a_group_come_and_go(kafka_broker: Broker) -> None:
    log = open_log(f"kafka://{kafka_broker.server}/shared-{uuid4().hex}")
    sent = {f"{n}" for n in range(600)}
    log.append([Entry(name, name.encode()) for name in sent])
    kept: set[str] = set()
    all_kept = threading.Event()

    def reader(batches: int) -> None:
        consumer = log.consumer("store")
        while batches and not all_kept.is_set():
            try:
                records = consumer.poll(max_records=5, max_bytes=1 << 20, timeout_s=0.2)
                consumer.commit()
            except Unavailable:
                consumer.rewind()
                continue
            batches -= bool(records)
            kept.update(record.key for record in records)
            if kept == sent:
                all_kept.set()
        consumer.poll(max_records=5, max_bytes=1 << 20, timeout_s=0)
        consumer.close()

    with ThreadPoolExecutor(5) as threads:
        readers = [threads.submit(reader, batches) for batches in (10, 10, 20, 20, -1)]
        assert all_kept.wait(60), sent - kept
        for each in readers:
            each.result()
    assert log.lag("store") == 0
    log.close()
