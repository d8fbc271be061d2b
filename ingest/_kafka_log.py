"""The log of many machines: one topic of Apache Kafka, or of what speaks its protocol."""

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Self, TypeVar

from ingest.errors import TooLarge, Unavailable
from ingest.log import MAX_ENTRY_BYTES, Consumer, Entry, Record, position

with warnings.catch_warnings():
    # kafka-python 3.0.12 reads its schemas with what Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import OffsetSpec
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.errors import KafkaError, MessageSizeTooLargeError, TopicAlreadyExistsError
    from kafka.net.compat import KafkaNetClient
    from kafka.structs import OffsetAndMetadata, TopicPartition

_Client = TypeVar("_Client")

_RECORD_BYTES = MAX_ENTRY_BYTES + 1024 * 1024
"""A value of the largest size with its key, its framing, and lz4's growth on random bytes."""
_TOPIC = {
    # So many drains can share the work. Adding partitions later moves keys between them.
    "num_partitions": 4,
    "replication_factor": -1,  # the broker knows: default.replication.factor
    "configs": {
        "max.message.bytes": str(_RECORD_BYTES),
        # A broker's defaults may drop records after a week; none may go before the store has it.
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    },
}
_CONNECT_S = 5
_REQUEST_MS = 8_000
_DELIVERY_S = 10
"""How long a record is sent again before append gives up. A broker's restart may take longer."""
_NETWORK = {
    "request_timeout_ms": _REQUEST_MS,
    "bootstrap_timeout_ms": _CONNECT_S * 1000,
    "reconnect_backoff_max_ms": 1000,
}
_PRODUCER = _NETWORK | {
    "acks": "all",
    "enable_idempotence": True,
    "compression_type": "lz4",
    # Records cost little once they travel together: those of many requests share a batch.
    "linger_ms": 2,
    "batch_size": 1024 * 1024,
    "max_request_size": _RECORD_BYTES,
    "max_block_ms": _CONNECT_S * 1000,
    "delivery_timeout_ms": _DELIVERY_S * 1000,
    "allow_auto_create_topics": False,
}
_CONSUMER = _NETWORK | {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "allow_auto_create_topics": False,
    "max_partition_fetch_bytes": 8 * 1024 * 1024,
    # A reader that died without a word holds its partitions for so long; Kafka admits no less.
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_500,
}


@contextmanager
def _kafka_wall(doing: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        raise Unavailable(f"{doing}: {error}") from error


def _connected(kind: Callable[..., _Client], **settings: object) -> _Client:
    """A client of that kind. kafka-python leaves its thread running without one."""
    networks: list[KafkaNetClient] = []

    def network(**configs: object) -> KafkaNetClient:
        networks.append(KafkaNetClient(**configs))
        return networks[-1]

    try:
        return kind(kafka_client=network, **settings)
    except (KafkaError, OSError):
        for opened in networks:
            opened.close()
            opened._manager._net.stop()  # noqa: SLF001 - so do the clients' own close
        raise


def _end(producer: KafkaProducer) -> None:
    """Thread and sockets are gone, and nothing that was not delivered will be."""
    sender = producer._sender  # noqa: SLF001 - close() leaves it running if a record is stuck
    sender.force_close()
    sender.join(_CONNECT_S)
    with suppress(KafkaError):
        producer.close(timeout=0)


class KafkaLog:
    """A Log with the partitions of one topic; a key stays in one of them."""

    def __init__(self, topic: str, producer: KafkaProducer, admin: KafkaAdminClient) -> None:
        self._topic = topic
        self._producer = producer
        self._admin = admin
        self._servers = {"bootstrap_servers": admin.config["bootstrap_servers"]}
        # With the version known a further producer asks no broker for it, so nobody waits long.
        self._known = self._servers | _PRODUCER | {"api_version": producer.config["api_version"]}
        self._replacing = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, servers: Sequence[str], topic: str) -> Self:
        """The topic is there. Raises: Unavailable when no server answers, or it cannot be made."""
        with _kafka_wall(f"open the log {topic}"), ExitStack() as opened:
            producer = _connected(KafkaProducer, bootstrap_servers=list(servers), **_PRODUCER)
            opened.callback(_end, producer)
            admin = _connected(KafkaAdminClient, bootstrap_servers=list(servers), **_NETWORK)
            opened.callback(admin.close)
            if not admin.describe_topics([topic])[0]["partitions"]:
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics({topic: _TOPIC})
                admin.wait_for_topics([topic], timeout_ms=_REQUEST_MS)
            opened.pop_all()
        return cls(topic, producer, admin)

    def append(self, entries: Sequence[Entry]) -> str:
        if not entries:
            return ""
        if max(len(entry.value) for entry in entries) > MAX_ENTRY_BYTES:
            raise TooLarge(f"a record holds {MAX_ENTRY_BYTES} bytes")
        producer = self._producer
        with _kafka_wall("append to Kafka"):
            try:
                return self._send(producer, entries)
            except MessageSizeTooLargeError:
                # It fails all on its way and all that comes later, whoever's record was too large.
                self._replace(producer)
                return self._send_alone(entries)
            except KafkaError:
                self._replace(producer)
                raise

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
        with _kafka_wall("open the log for reading"):
            settings = self._servers | _CONSUMER | {"group_id": group}
            return _KafkaConsumer(self._topic, _connected(KafkaConsumer, **settings))

    def lag(self, group: str) -> int:
        with _kafka_wall("measure the log"):
            found = self._admin.describe_topics([self._topic])[0]["partitions"]
            places = [TopicPartition(self._topic, part["partition_index"]) for part in found]
            ends = self._admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
            firsts = self._admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
            commits = self._commits(group, places)
        starts = {at: max(firsts[at].offset, commits[at]) for at in places}
        return sum(max(0, ends[at].offset - starts[at]) for at in places)

    def _commits(self, group: str, at: list[TopicPartition]) -> dict[TopicPartition, int]:
        deadline = time.monotonic() + _CONNECT_S
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
        self._admin.close()


class _KafkaConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """Partitions come and go with the group's readers; each time reading starts at the commits."""

    def __init__(self, topic: str, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._misplaced = True
        self._waiting: deque[Record] = deque()
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        consumer.subscribe([topic], listener=self)

    def on_partitions_revoked(self, _: object) -> None:
        self._misplaced = True

    on_partitions_assigned = on_partitions_revoked

    def poll(self, *, max_records: int, max_bytes: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        with _kafka_wall("read from Kafka"):
            while not self._waiting:
                left_s = deadline - time.monotonic()
                if not self._fetch(max(0.0, left_s)) and left_s <= 0:
                    return []
            while len(self._waiting) < max_records and self._fetch(0):
                if sum(len(record.value) for record in self._waiting) >= max_bytes:
                    break
        return self._take(max_records, max_bytes)

    def _fetch(self, timeout_s: float) -> bool:
        """More records wait; False when none came. All are forgotten when partitions changed."""
        if self._misplaced:
            self._seek()
        # Few at once: kafka-python bounds a poll by records only.
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=100)
        if self._misplaced:
            return False
        self._waiting.extend(_record(found) for founds in polled.values() for found in founds)
        return bool(polled)

    def _take(self, max_records: int, max_bytes: int) -> list[Record]:
        records: list[Record] = []
        size = 0
        while self._waiting and len(records) < max_records:
            size += len(self._waiting[0].value)
            if records and size > max_bytes:
                break
            records.append(self._waiting.popleft())
            place = TopicPartition(records[-1].topic, records[-1].partition)
            self._done[place] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        return records

    def commit(self) -> None:
        if self._done and self._misplaced:
            raise Unavailable("commit to Kafka: another reader may have these partitions now")
        with _kafka_wall("commit to Kafka"):
            self._consumer.commit(dict(self._done), timeout_ms=_REQUEST_MS)
        self._done.clear()

    def rewind(self) -> None:
        self._misplaced = True
        self._done.clear()

    def _seek(self) -> None:
        """The next record of each partition is the one after its commit; all else is forgotten."""
        self._waiting.clear()
        self._done.clear()
        places = self._consumer.assignment()
        commits = {at: self._consumer.committed(at, timeout_ms=_REQUEST_MS) for at in places}
        self._misplaced = False
        for place, offset in commits.items():
            with suppress(ValueError):  # it is another reader's by now
                if offset is None:
                    self._consumer.seek_to_beginning(place)
                else:
                    self._consumer.seek(place, offset)

    def close(self) -> None:
        with suppress(KafkaError):  # the brokers find out by themselves
            self._consumer.close(autocommit=False, timeout_ms=_CONNECT_S * 1000)


def _record(found: ConsumerRecord) -> Record:
    # What others put into the topic is read as well; it becomes a dead letter further on.
    key = bytes(found.key or b"")
    try:
        text = key.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = key.decode("utf-8", "replace")
    return Record(found.partition, found.offset, text, bytes(found.value or b""), found.topic)
