"""One reader of a group: the partitions that the group gave it, one after the other."""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ingest._kafka_client import (
    CONNECT_S,
    NETWORK,
    REQUEST_MS,
    ConsumerRebalanceListener,
    ConsumerRecord,
    KafkaConsumer,
    KafkaError,
    OffsetAndMetadata,
    TopicPartition,
    connected,
    ended,
    kafka_wall,
)
from ingest.errors import Unavailable
from ingest.log import Record

_SETTINGS = NETWORK | {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "allow_auto_create_topics": False,
    "max_partition_fetch_bytes": 8 * 1024 * 1024,
    # A reader that died without a word holds its partitions for so long; Kafka admits no less.
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_500,
    # The others wait so long for one that beats and does not poll; an insert that hangs gives up
    # before.
    "max_poll_interval_ms": 75_000,
}
_INTENDED = re.compile(r"thumbwheel batch ends at (\d{1,18})", re.ASCII)


class KafkaLogConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """Partitions come and go with the group's readers; each time reading starts at the commits.

    A batch that is intended travels as the metadata of a commit that moves nothing.
    """

    def __init__(self, topic: str, settings: Mapping[str, object]) -> None:
        """Raises: Unavailable."""
        self._topic = topic
        self._settings = settings
        self._consumer = self._joined()
        self._misplaced = True
        self._doubtful = False
        """Brokers may still carry out a request that was given up, after later ones."""
        self._waiting: dict[TopicPartition, deque[Record]] = {}
        """By partition, whose turn it is first. None of the queues is empty."""
        self._waiting_bytes = 0
        self._ends: dict[TopicPartition, int] = {}
        """Where a batch ends that was intended and is to be polled again."""
        self._polled: dict[TopicPartition, tuple[int, int]] = {}
        """Since the last commit: the first offset, and the one after the last."""
        self._again = False
        """A batch among what was polled was intended before."""

    @classmethod
    def open(cls, topic: str, group: str, **servers: object) -> "KafkaLogConsumer":
        """Raises: Unavailable."""
        return cls(topic, servers | _SETTINGS | {"group_id": group})

    def _joined(self) -> KafkaConsumer:
        with kafka_wall("open the log for reading"):
            consumer = connected(KafkaConsumer, **self._settings)
        consumer.subscribe([self._topic], listener=self)
        return consumer

    def on_partitions_revoked(self, _: object) -> None:
        self._misplaced = True

    on_partitions_assigned = on_partitions_revoked

    def poll(self, *, max_records: int, max_bytes: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        with kafka_wall("read from Kafka"):
            if self._waiting_bytes < max_bytes:
                self._fetch(0)  # for who has nothing waiting beside who has much
            while True:
                for place in list(self._waiting):
                    if records := self._turn(place, max_records, max_bytes):
                        return records
                left_s = max(0.0, deadline - time.monotonic())
                if not self._fetch(left_s) and not left_s:
                    return []

    def _turn(self, place: TopicPartition, max_records: int, max_bytes: int) -> list[Record]:
        """What the partition has; nothing if an intended batch is not here as a whole yet."""
        while self._lacks(place, max_records, max_bytes) and self._fetch(0):
            pass
        waiting = self._waiting.pop(place, deque())
        end = self._ends.get(place)
        records: list[Record] = []
        if end is None:
            records = _take(waiting, max_records, max_bytes)
        elif waiting and waiting[-1].offset + 1 >= end:
            records = [waiting.popleft() for record in list(waiting) if record.offset < end]
            del self._ends[place]
            self._again = True
        if waiting:
            self._waiting[place] = waiting
        if records:
            first, _ = self._polled.get(place, (records[0].offset, 0))
            self._polled[place] = (first, records[-1].offset + 1)
            self._waiting_bytes -= _bytes(records)
        return records

    def _lacks(self, place: TopicPartition, max_records: int, max_bytes: int) -> bool:
        waiting = self._waiting.get(place)
        if not waiting:  # partitions changed
            return False
        if end := self._ends.get(place):
            return waiting[-1].offset + 1 < end
        return len(waiting) < max_records and self._waiting_bytes < max_bytes

    def _fetch(self, timeout_s: float) -> bool:
        """More records wait; False when none came. All are forgotten when partitions changed."""
        if self._misplaced:
            self._seek()
        # Few at once: kafka-python bounds a poll by records only, and loses some that are paused.
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=100)
        if self._misplaced:
            self._forget()
            return False
        for place, founds in polled.items():
            records = [_record(found) for found in founds]
            self._waiting.setdefault(place, deque()).extend(records)
            self._waiting_bytes += _bytes(records)
        return bool(polled)

    def intend(self) -> bool:
        self._commit(
            {
                place: OffsetAndMetadata(first, f"thumbwheel batch ends at {end}", -1)
                for place, (first, end) in self._polled.items()
            }
        )
        return self._again

    def commit(self) -> None:
        self._commit(
            {place: OffsetAndMetadata(end, "", -1) for place, (_, end) in self._polled.items()}
        )
        self._void()

    def _commit(self, commits: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if commits and self._misplaced:
            raise Unavailable("commit to Kafka: another reader may have these partitions now")
        with kafka_wall("commit to Kafka"), self._certain():
            self._consumer.commit(commits, timeout_ms=REQUEST_MS)

    @contextmanager
    def _certain(self) -> Iterator[None]:
        try:
            yield
        except KafkaError:
            self._doubtful = True
            raise

    def rewind(self) -> None:
        self._forget()
        self._void()

    def _void(self) -> None:
        self._polled.clear()
        self._again = False

    def _forget(self) -> None:
        self._misplaced = True
        self._waiting.clear()
        self._waiting_bytes = 0
        self._ends.clear()

    def _seek(self) -> None:
        """The next record of each partition is the one after its commit."""
        if self._polled:
            self._void()
            raise Unavailable("read from Kafka: partitions changed hands; what was polled is void")
        if self._doubtful:
            # As another member of the group: from the one that left, brokers take no commit any more.
            former, self._consumer = self._consumer, self._joined()
            self._doubtful = False
            _end(former)
        with self._certain():  # kafka-python keeps a question, and gives its answer to later ones
            commits = {
                at: self._consumer.committed(at, metadata=True, timeout_ms=REQUEST_MS)
                for at in self._consumer.assignment()
            }
        self._misplaced = False
        for place, commit in commits.items():
            with suppress(ValueError):  # it is another reader's by now
                if commit is None:
                    self._consumer.seek_to_beginning(place)
                else:
                    self._consumer.seek(place, commit.offset)
                    if end := _intended(commit):
                        self._ends[place] = end

    def close(self) -> None:
        _end(self._consumer)


def _end(consumer: KafkaConsumer) -> None:
    network = consumer._client  # noqa: SLF001
    with suppress(KafkaError):  # the brokers find out by themselves
        consumer.close(autocommit=False, timeout_ms=CONNECT_S * 1000)
    # A thread left over would go on beating for a member that never polls, and the whole group would
    # wait for it.
    ended(network)


def _take(waiting: deque[Record], max_records: int, max_bytes: int) -> list[Record]:
    records: list[Record] = []
    size = 0
    while waiting and len(records) < max_records:
        size += len(waiting[0].value)
        if records and size > max_bytes:
            break
        records.append(waiting.popleft())
    return records


def _bytes(records: Iterable[Record]) -> int:
    return sum(len(record.value) for record in records)


def _intended(commit: OffsetAndMetadata) -> int | None:
    """Where the intended batch ends. What others wrote there is none of ours."""
    found = _INTENDED.fullmatch(commit.metadata or "")
    end = int(found[1]) if found else 0
    return end if end > commit.offset else None


def _record(found: ConsumerRecord) -> Record:
    # What others put into the topic is read as well; it becomes a dead letter further on.
    key = bytes(found.key or b"")
    try:
        text = key.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = key.decode("utf-8", "replace")
    return Record(found.partition, found.offset, text, bytes(found.value or b""), found.topic)
