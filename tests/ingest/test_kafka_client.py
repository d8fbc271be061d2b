"""What kafka-python leaves behind, and we do not."""

import socket
from typing import Any

from ingest._kafka_client import KafkaNetClient, ended

# Ours knows which warnings the first import of the library gives.
# isort: split
from kafka.net.connection import KafkaConnection
from kafka.net.transport import KafkaTCPTransport


def test_a_connection_that_still_has_something_to_write_is_closed_with_its_network() -> None:
    network: Any = KafkaNetClient()
    loop, connections = network._net, network._manager._conns  # noqa: SLF001
    with socket.create_server(("127.0.0.1", 0)) as broker:
        line = socket.create_connection(broker.getsockname())
        line.setblocking(False)
        connections[1] = connection = KafkaConnection(loop, node_id=1)
        connection.connection_made(KafkaTCPTransport(loop, line))
        connection._init_complete()  # noqa: SLF001
        connection.transport.write(b"a heartbeat")
        ended(network)
        assert line.fileno() == -1
