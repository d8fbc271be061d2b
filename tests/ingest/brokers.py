"""Real brokers for the tests of the Kafka log: one process each, on ports that were free."""

import os
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from ingest.log import Entry, Log


def free_port(*, with_next: bool = False) -> int:
    """A port of 127.0.0.1 that nobody listens on; the one after it is free, too, if asked."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port + 1 if with_next else 0))
            except (OSError, OverflowError):
                continue
            return port


@dataclass
class Broker:
    """A broker's process, which can be killed and started again with what it had on disk."""

    command: Sequence[str]
    port: int
    output: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, within_s: float = 60) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output)
        deadline = time.monotonic() + within_s
        while not self._listens():
            assert self.process.poll() is None, self.output.read_text()[-2000:]
            assert time.monotonic() < deadline, f"{self.command[0]} does not listen"
            time.sleep(0.1)

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(sent)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def _listens(self) -> bool:
        with socket.socket() as asking:
            asking.settimeout(1)
            return asking.connect_ex(("127.0.0.1", self.port)) == 0


def tansu(binary: Path, folder: Path) -> Broker:
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    command = [str(binary), "broker", "--listener-url", url, "--advertised-listener-url", url]
    return Broker([*command, "--storage-engine", "memory://tansu/"], port, folder / "tansu.log")


def apache_kafka(home: Path, folder: Path) -> Broker:
    """It knows within 2 s that its predecessor is dead; as delivered it takes 9 s."""
    port = free_port(with_next=True)
    quick = ["broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=500"]
    command = ["bash", str(home / "broker"), str(folder / "kafka"), str(port), *quick]
    return Broker(command, port, folder / "kafka.log")


def make_topic(broker: Broker, **settings: str) -> str:
    """A topic of one partition that an operator has made; dots in names are written as `_`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaAdminClient  # noqa: PLC0415 - it warns while it loads
    topic = f"made-{uuid4().hex}"
    admin = KafkaAdminClient(bootstrap_servers=broker.server)
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    admin.create_topics({topic: {"num_partitions": 1, "configs": configs}}, wait_for_metadata=True)
    admin.close()
    return topic


def on_a_laptop() -> bool:
    """Where what is missing is no failure."""
    return os.environ.get("CI") != "true"


def append_singly(log: Log, entries: Sequence[Entry]) -> None:
    """For tests of lag: tansu counts as one what reached a partition together."""
    for entry in entries:
        log.append([entry])
