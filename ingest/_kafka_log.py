"""The log of many machines: one topic of Apache Kafka, or of what speaks its protocol."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.net.compat import KafkaNetClient
from kafka.structs import OffsetAndMetadata, TopicPartition

from ingest.errors import TooLarge, Unavailable
from ingest.log import MAX_ENTRY_BYTES, Consumer, Entry, Record, position

_log = logging.getLogger(__name__)

_RECORD_BYTES = MAX_ENTRY_BYTES + 1024 * 1024
"""A value of the largest size with its key, its framing, and what lz4 adds to random bytes."""
_NEW_TOPIC = {
    # How many drains can share the work. Adding partitions later moves keys between them.
    "num_partitions": 4,
    "configs": {
        "max.message.bytes": str(_RECORD_BYTES),
        # A broker's own setting may be to keep only the last record of a key, or only a week. But
        # a record may go only when the store has it, and a broker cannot know that.
        "cleanup.policy": "delete",
        "retention.ms": "-1",
    },
}
_BUFFER_BYTES = 64 * 1024 * 1024
"""Of records on their way. kafka-python's own buffer has no limit."""
_BLOCK_S = 5.0
_REQUEST_S = 8.0
_DELIVERY_S = 10.0
"""How long a record is sent again before append gives up; a broker may take longer to restart."""


@contextmanager
def _kafka_wall(doing: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        raise Unavailable(f"{doing}: {error}") from error


class _Row(NamedTuple):
    key: bytes
    value: bytes

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value)


class _Buffer:
    """Bytes that may be on their way at once."""

    def __init__(self) -> None:
        self._free = _BUFFER_BYTES
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """`size` bytes are taken; those of one large request when nobody has any.

        Raises: Unavailable when brokers have not taken enough off it for a while.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._free >= min(size, _BUFFER_BYTES), _BLOCK_S):
                raise Unavailable("append to Kafka: too much is waiting for the brokers already")
            self._free -= size

    def give(self, size: int) -> None:
        with self._changed:
            self._free += size
            self._changed.notify_all()


class KafkaLog:
    """A Log with the partitions of one topic; a key stays in one of them."""

    def __init__(self, topic: str, servers: Sequence[str], admin: Any) -> None:
        self._topic = topic
        self._servers = servers
        self._admin = admin
        self._limit = _entry_limit(admin, topic)
        self._buffer = _Buffer()
        self._replacing = threading.Lock()
        self._closed = False
        self._producer = _producer(servers)

    @classmethod
    def open(cls, servers: Sequence[str], topic: str) -> Self:
        """The log in `topic` of the cluster of `servers`; the topic is there afterwards.

        Raises: Unavailable when no server answers, or the topic cannot be made.
        """
        with _kafka_wall(f"open the Kafka topic {topic} at {','.join(servers)}"):
            admin = _client(KafkaAdminClient, servers)
            try:
                _make_topic(admin, topic)
                return cls(topic, servers, admin)
            except BaseException:
                admin.close()
                raise

    def append(self, entries: Sequence[Entry]) -> str:
        if not entries:
            return ""
        rows = [_Row(key.encode("utf-8", "surrogatepass"), value) for key, value in entries]
        largest = max(row.size for row in rows)
        if largest > self._limit:
            raise TooLarge(
                f"{largest} bytes; a record of the topic {self._topic} holds {self._limit}"
            )
        producer = self._producer
        try:
            with _kafka_wall(f"append to the Kafka topic {self._topic}"):
                return self._send(producer, rows)
        except Unavailable as error:
            # kafka-python's producer refuses everything for ever after one such error.
            if isinstance(error.__cause__, KafkaError) and not error.__cause__.retriable:
                self._replace(producer)
            raise

    def _send(self, producer: Any, rows: Sequence[_Row]) -> str:
        unsent = sum(row.size for row in rows)
        self._buffer.take(unsent)
        futures = []
        try:
            for row in rows:
                future = producer.send(self._topic, key=row.key, value=row.value)
                # Not when append gives up: the producer holds the record until it is decided.
                future.add_both(lambda _, size=row.size: self._buffer.give(size))
                unsent -= row.size
                futures.append(future)
        finally:
            self._buffer.give(unsent)
        until = time.monotonic() + _DELIVERY_S + 1
        last = [future.get(max(0.0, until - time.monotonic())) for future in futures][-1]
        return position(Record(last.partition, last.offset, "", b"", self._topic))

    def _replace(self, failed: Any) -> None:
        with self._replacing:
            if self._closed or self._producer is not failed:
                return
            with _kafka_wall("open a new Kafka producer"):
                # The usual reason is a limit that was lowered meanwhile.
                self._limit = _entry_limit(self._admin, self._topic)
                self._producer = _producer(self._servers)
        _close_producer(failed)

    def consumer(self, group: str) -> Consumer:
        with _kafka_wall(f"read the Kafka topic {self._topic}"):
            consumer = _client(
                KafkaConsumer,
                self._servers,
                self._topic,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                # A reader that was killed holds its partitions for so long.
                session_timeout_ms=10_000,
                max_partition_fetch_bytes=8 * 1024 * 1024,
            )
        return _KafkaConsumer(self._topic, consumer)

    def lag(self, group: str) -> int:
        with _kafka_wall(f"measure the Kafka topic {self._topic}"):
            found = self._admin.describe_topics([self._topic])[0]["partitions"]
            places = [TopicPartition(self._topic, each["partition_index"]) for each in found]
            ends = self._admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
            starts = self._admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
            # The first question about any group makes the cluster set up its groups.
            done = _retried(lambda: self._admin.list_group_offsets({group: places})[group])
        return sum(
            ends[place].offset - max(done[place].offset, starts[place].offset) for place in places
        )

    def close(self) -> None:
        with self._replacing:
            if self._closed:
                return
            self._closed = True
        _close_producer(self._producer)
        self._admin.close()


class _KafkaConsumer:
    """Holds what Kafka gave beyond the caller's measure; it is not committed before it is polled."""

    def __init__(self, topic: str, consumer: Any) -> None:
        self._topic = topic
        self._consumer = consumer
        self._fetched: deque[Record] = deque()
        self._starts: dict[TopicPartition, int] = {}
        """Where each partition starts again on rewind: its first record since the last commit."""
        self._ends: dict[TopicPartition, int] = {}
        """What commit commits: after the last polled record of each partition."""
        self._generation: object = None
        self._moved = False

    def poll(self, *, max_records: int, max_bytes: int, timeout_s: float) -> list[Record]:
        if not self._fetched:
            self._fetch(max_records, timeout_s)
        records: list[Record] = []
        size = 0
        while self._fetched and len(records) < max_records:
            size += len(self._fetched[0].value)
            if records and size > max_bytes:
                break
            record = self._fetched.popleft()
            self._ends[self._place(record)] = record.offset + 1
            records.append(record)
        return records

    def _fetch(self, max_records: int, timeout_s: float) -> None:
        with _kafka_wall(f"read the Kafka topic {self._topic}"):
            found = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=max_records)
            generation = self._consumer.group_metadata()[:3]
        if generation != self._generation:
            # Partitions were dealt anew, and each starts after its last commit.
            self._generation = generation
            self._moved = bool(self._ends)
            self._starts.clear()
            self._ends.clear()
        for partition in found.values():
            for each in partition:
                record = Record(
                    each.partition, each.offset, _text(each.key), each.value or b"", self._topic
                )
                self._starts.setdefault(self._place(record), record.offset)
                self._fetched.append(record)

    def _place(self, record: Record) -> TopicPartition:
        return TopicPartition(self._topic, record.partition)

    def commit(self) -> None:
        if self._moved:
            self.rewind()
            raise Unavailable("commit to Kafka: another reader came or went; polling starts again")
        ends = {place: OffsetAndMetadata(end, "", -1) for place, end in self._ends.items()}
        if not ends:
            return
        with _kafka_wall("commit to Kafka"):
            self._consumer.commit(ends, timeout_ms=int(_REQUEST_S * 1000))
        self._ends.clear()
        self._starts.clear()
        for record in self._fetched:
            self._starts.setdefault(self._place(record), record.offset)

    def rewind(self) -> None:
        with _kafka_wall("rewind in Kafka"):
            # A partition that is another reader's now starts after its last commit by itself.
            for place in self._consumer.assignment() & self._starts.keys():
                self._consumer.seek(place, self._starts[place])
        self._fetched.clear()
        self._starts.clear()
        self._ends.clear()
        self._moved = False

    def close(self) -> None:
        with _kafka_wall("close the reader of Kafka"):
            self._consumer.close(autocommit=False, timeout_ms=int(_BLOCK_S * 1000))


def _text(key: bytes | None) -> str:
    """The key. A foreign one that is no text loses bytes, which must not hold up the rest."""
    try:
        return (key or b"").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return (key or b"").decode("utf-8", "replace")


def _client(kind: Callable[..., Any], servers: Sequence[str], *topics: str, **config: Any) -> Any:
    """A client of kafka-python that has found the cluster, or none and its thread has ended."""
    made: list[Any] = []

    def net(**settings: Any) -> Any:
        made.append(KafkaNetClient(**settings))
        return made[-1]

    try:
        return kind(
            *topics,
            bootstrap_servers=list(servers),
            bootstrap_timeout_ms=int(_BLOCK_S * 1000),
            request_timeout_ms=int(_REQUEST_S * 1000),
            # A broker that was away is found again within a second.
            reconnect_backoff_max_ms=1000,
            kafka_client=net,
            **config,
        )
    except (KafkaError, OSError):
        for client in made:
            client.close()
        raise


def _producer(servers: Sequence[str]) -> Any:
    return _client(
        KafkaProducer,
        servers,
        acks="all",
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=2,
        batch_size=256 * 1024,
        max_request_size=_RECORD_BYTES,
        max_block_ms=int(_BLOCK_S * 1000),
        delivery_timeout_ms=int(_DELIVERY_S * 1000),
        allow_auto_create_topics=False,
    )


def _close_producer(producer: Any) -> None:
    """Its thread has ended; what it could not send for `_BLOCK_S` is dropped, acknowledged to nobody."""
    try:
        producer.close(timeout=_BLOCK_S)
    except KafkaError:
        producer._sender.force_close()
        producer.close(timeout=_BLOCK_S)


def _make_topic(admin: Any, topic: str) -> None:
    found = admin.describe_topics([topic])[0]
    if found["error_code"] == UnknownTopicOrPartitionError.errno:
        try:
            admin.create_topics({topic: _NEW_TOPIC})
        except TopicAlreadyExistsError:
            _log.info("the topic %s was made by another process", topic)
    admin.wait_for_topics([topic])


def _entry_limit(admin: Any, topic: str) -> int:
    """How many bytes of key and value the topic takes.

    The broker would refuse more, but kafka-python then fails all other records on their way too.
    """
    name = "max.message.bytes"
    try:
        resource = ConfigResource("TOPIC", topic, {name: None})
        answer = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    except KafkaError as error:
        # Not every broker answers this, and not every user may ask.
        _log.warning("the topic %s: %s is not known: %s", topic, name, error)
        return MAX_ENTRY_BYTES
    # The rest is for framing, and for what lz4 adds to random bytes.
    return min(MAX_ENTRY_BYTES, int(answer[name]["value"]) * 255 // 256 - 1024)


def _retried[T](call: Callable[[], T]) -> T:
    raise NotImplementedError
