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


def _retried[T](call: Callable[[], T]) -> T:
    raise NotImplementedError
