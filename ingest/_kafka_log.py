"""The log of many machines: one topic of Apache Kafka, or of what speaks its protocol."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata, TopicPartition

from ingest.errors import TooLarge, Unavailable
from ingest.log import MAX_ENTRY_BYTES, Consumer, Entry, Record, position

_log = logging.getLogger(__name__)

PARTITIONS = 4
"""Of a topic made here: how many drains can share the work. Adding some later moves keys."""
_RECORD_BYTES = MAX_ENTRY_BYTES + 1024 * 1024
"""A value of the largest size with its key, its framing, and lz4's growth on random bytes."""
_TOPIC = {
    "max.message.bytes": str(_RECORD_BYTES),
    # A broker may be set to keep the last record of a key only, or all for a week only. Here a
    # record may go when the store has it, and no broker knows that.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
}
_BUFFER_BYTES = 64 * 1024 * 1024
"""Of values on their way. kafka-python's own buffer has no limit."""
_BLOCK_S = 5.0
_REQUEST_S = 8.0
_DELIVERY_S = 10.0
"""How long a record is sent again before append gives up. A broker's restart may take longer."""


@contextmanager
def _kafka_wall(doing: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        raise Unavailable(f"{doing}: {error}") from error


class _Buffer:
    """Bytes that may be on their way at once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """`size` bytes are taken; more than there are when nobody else has any. Raises: Unavailable."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._free >= min(size, self._size), _BLOCK_S):
                raise Unavailable("append to Kafka: too much is waiting for the brokers")
            self._free -= size

    def give(self, size: int) -> None:
        with self._changed:
            self._free += size
            self._changed.notify_all()


class KafkaLog:
    """A Log with the partitions of one topic; a key stays in one of them."""

    def __init__(self, topic: str, servers: list[str], admin: Any) -> None:
        self._topic = topic
        self._servers = servers
        self._admin = admin
        self._partitions = _partitions(admin, topic)
        self._version = admin.config["api_version"]
        self._buffer = _Buffer(_BUFFER_BYTES)
        self._replacing = threading.Lock()
        self._producer = self._new_producer()
