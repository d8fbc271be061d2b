"""What every client of Kafka shares: the library, how long it tries, and whose error it is."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ingest.errors import Unavailable

with warnings.catch_warnings():
    # kafka-python 3.0.12 reads its schemas with what Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.errors import KafkaError, MessageSizeTooLargeError, TopicAlreadyExistsError
    from kafka.net.compat import KafkaNetClient
    from kafka.structs import OffsetAndMetadata, TopicPartition

__all__ = [
    "CONNECT_S",
    "NETWORK",
    "REQUEST_MS",
    "ConfigResource",
    "ConfigResourceType",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaError",
    "KafkaNetClient",
    "KafkaProducer",
    "MessageSizeTooLargeError",
    "OffsetAndMetadata",
    "OffsetSpec",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "connected",
    "ended",
    "kafka_wall",
]

_Client = TypeVar("_Client")

CONNECT_S = 5
REQUEST_MS = 8_000
NETWORK = {
    "request_timeout_ms": REQUEST_MS,
    "bootstrap_timeout_ms": CONNECT_S * 1000,
    "reconnect_backoff_max_ms": 1000,
}


@contextmanager
def kafka_wall(doing: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        raise Unavailable(f"{doing}: {error}") from error


def connected(kind: Callable[..., _Client], **settings: object) -> _Client:
    """A client of that kind. kafka-python leaves its thread running without one."""
    networks: list[KafkaNetClient] = []

    def network(**configs: object) -> KafkaNetClient:
        networks.append(KafkaNetClient(**configs))
        return networks[-1]

    try:
        return kind(kafka_client=network, **settings)
    except (KafkaError, OSError):
        for opened in networks:
            ended(opened)
        raise


def ended(network: KafkaNetClient) -> None:
    """Its thread and its sockets are gone.

    kafka-python 3.0.12 forgets a socket that has something to write when its loop ends, and the
    whole network of a consumer whose coordinator does not answer.
    """
    manager = network._manager  # noqa: SLF001 - its own `close` is not enough
    network.close()
    manager._net.stop()  # noqa: SLF001
    for connection in list(manager._conns.values()):  # noqa: SLF001
        if connection.transport and (left := connection.transport._sock):  # noqa: SLF001
            left.close()
