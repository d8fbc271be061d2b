"""The log of many machines: one topic of Apache Kafka, or of what speaks its protocol."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Self

from ingest._kafka_client import (
    CONNECT_S,
    NETWORK,
    REQUEST_MS,
    KafkaAdminClient,
    KafkaError,
    KafkaProducer,
    MessageSizeTooLargeError,
    OffsetSpec,
    TopicPartition,
    connected,
    ended,
    kafka_wall,
)
from ingest._kafka_consumer import KafkaLogConsumer
from ingest._kafka_topic import RECORD_BYTES, prepare
from ingest.errors import TooLarge, Unavailable
from ingest.log import MAX_ENTRY_BYTES, Consumer, Entry, Record, position

_IN_FLIGHT_BYTES = 64 * 1024 * 1024
"""Of keys and values that the brokers do not have yet, all threads together."""
_FULL_S = 1.0
"""How long an append waits for room among them."""
_DELIVERY_S = 10
"""How long a record is sent again before append gives up. A broker's restart may take longer."""
_PRODUCER = NETWORK | {
    "acks": "all",
    "enable_idempotence": True,
    "compression_type": "lz4",
    # Records cost little once they travel together: those of many requests share a batch.
    "linger_ms": 2,
    "batch_size": 1024 * 1024,
    "max_request_size": RECORD_BYTES,
    "max_block_ms": CONNECT_S * 1000,
    "delivery_timeout_ms": _DELIVERY_S * 1000,
    "allow_auto_create_topics": False,
}


def _end(producer: KafkaProducer) -> None:
    """Thread and sockets are gone, and nothing that was not delivered will be."""
    sender = producer._sender  # noqa: SLF001 - close() leaves it running if a record is stuck
    sender.force_close()
    sender.join(CONNECT_S)
    with suppress(KafkaError):
        producer.close(timeout=0)
    ended(sender._client)  # noqa: SLF001


def _end_admin(admin: KafkaAdminClient) -> None:
    admin.close()
    ended(admin._client)  # noqa: SLF001


class _Room:
    """For what is on its way: a bounded number of bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """What is larger than all room is alone in it. Raises: Unavailable if none gets free."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._used == 0 or self._used + size <= self._size, _FULL_S
            ):
                raise Unavailable("append to Kafka: the brokers do not keep up")
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()


class KafkaLog:
    """A Log with the partitions of one topic; a key stays in one of them."""

    def __init__(self, topic: str, producer: KafkaProducer, admin: KafkaAdminClient) -> None:
        self._topic = topic
        self._producer = producer
        self._admin = admin
        self._servers = {"bootstrap_servers": admin.config["bootstrap_servers"]}
        # With the version known a further producer asks no broker for it, so nobody waits long.
        self._known = self._servers | _PRODUCER | {"api_version": producer.config["api_version"]}
        self._room = _Room(_IN_FLIGHT_BYTES)
        self._replacing = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, servers: Sequence[str], topic: str) -> Self:
        """The topic is there.

        Raises: Unavailable when no server answers, or it cannot be made; BadInput if it is compacted.
        """
        with kafka_wall(f"open the log {topic}"), ExitStack() as opened:
            producer = connected(KafkaProducer, bootstrap_servers=list(servers), **_PRODUCER)
            opened.callback(_end, producer)
            admin = connected(KafkaAdminClient, bootstrap_servers=list(servers), **NETWORK)
            opened.callback(_end_admin, admin)
            prepare(admin, topic)
            opened.pop_all()
        return cls(topic, producer, admin)

    def append(self, entries: Sequence[Entry]) -> str:
        if not entries:
            return ""
        if max(len(entry.value) for entry in entries) > MAX_ENTRY_BYTES:
            raise TooLarge(f"a record holds {MAX_ENTRY_BYTES} bytes")
        size = sum(len(key) + len(value) for key, value in entries)
        with kafka_wall("append to Kafka"), self._room.taken(size):
            producer = self._producer
            try:
                return self._send(producer, entries)
            except MessageSizeTooLargeError:
                # It fails all on its way and all that comes later, whoever's record was too large.
                self._replace(producer)
                return self._send_alone(entries)
            except KafkaError:
                self._replace(producer)
                raise
            except RuntimeError as error:
                # Another thread has ended this producer since it was looked up, or it ended by itself.
                self._replace(producer)
                raise Unavailable(f"append to Kafka: {error}") from error

    def _send(self, producer: KafkaProducer, entries: Sequence[Entry]) -> str:
        futures = [
            producer.send(self._topic, key=key.encode("utf-8", "surrogatepass"), value=value)
            for key, value in entries
        ]
        # A producer that has no id from the brokers does not count its records' time.
        end = time.monotonic() + _DELIVERY_S + 1
        places = [future.get(timeout=max(0, end - time.monotonic())) for future in futures]
        return position(Record(places[-1].partition, places[-1].offset, "", b"", self._topic))

    def _send_alone(self, entries: Sequence[Entry]) -> str:
        """As `_send`. Raises: TooLarge when it is one of these that the topic does not take."""
        producer = KafkaProducer(**self._known)
        try:
            return self._send(producer, entries)
        except MessageSizeTooLargeError as error:
            raise TooLarge(f"{self._topic} takes no such record: see max.message.bytes") from error
        finally:
            _end(producer)

    def _replace(self, failed: KafkaProducer) -> None:
        """Later appends use a fresh producer; what waits in the failed one fails, or it came late."""
        with self._replacing:
            if self._closed or failed is not self._producer:
                return
            self._producer = KafkaProducer(**self._known)
        _end(failed)

    def consumer(self, group: str) -> Consumer:
        return KafkaLogConsumer.open(self._topic, group, **self._servers)

    def lag(self, group: str) -> int:
        with kafka_wall("measure the log"):
            places = self._places()
            ends = self._admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
            starts = self._starts(places)
            commits = self._commits(group, places)
        return sum(max(0, ends[at].offset - max(starts[at], commits[at])) for at in places)

    def trim(self, group: str, *, keep_bytes: int = 0) -> int:
        if keep_bytes:
            return 0
        with kafka_wall("trim the log"):
            places = self._places()
            starts = self._starts(places)
            commits = self._commits(group, places)
            done = {at: commits[at] for at in places if commits[at] > starts[at]}
            if done:
                self._admin.delete_records(done, timeout_ms=REQUEST_MS)
        return sum(commit - starts[at] for at, commit in done.items())

    def _places(self) -> list[TopicPartition]:
        found = self._admin.describe_topics([self._topic])[0]["partitions"]
        return [TopicPartition(self._topic, part["partition_index"]) for part in found]

    def _starts(self, at: list[TopicPartition]) -> dict[TopicPartition, int]:
        firsts = self._admin.list_partition_offsets(dict.fromkeys(at, OffsetSpec.EARLIEST))
        return {place: first.offset for place, first in firsts.items()}

    def _commits(self, group: str, at: list[TopicPartition]) -> dict[TopicPartition, int]:
        deadline = time.monotonic() + CONNECT_S
        while True:
            try:
                found = self._admin.list_group_offsets({group: at})[group]
                return {place: commit.offset for place, commit in found.items()}
            except KafkaError as error:
                # Brokers that have just started say so for some seconds.
                if not error.retriable or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def close(self) -> None:
        with self._replacing:
            self._closed = True
        _end(self._producer)
        _end_admin(self._admin)
