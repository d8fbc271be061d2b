"""Real engines for every test: a ClickHouse engine in this process, SQLite on disk, real sockets."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import settings
from sqlalchemy import Engine

from ingest.control import open_control
from ingest.drain import Drain
from ingest.intake import Intake
from ingest.keys import SCOPES
from ingest.log import Log, open_log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store
from tests.running import Running, on_a_socket
from thumbwheel.server import Server

# A shared machine pauses processes: a slow example is no failure.
settings.register_profile("here", deadline=None)
settings.load_profile("here")


@pytest.fixture(scope="session")
def store_dsn(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The engine of this session, or the server that CLICKHOUSE_URL names.

    An engine takes one path per process, so databases keep tests apart.
    """
    return os.environ.get("CLICKHOUSE_URL") or f"chdb://{tmp_path_factory.mktemp('store')}"


@pytest.fixture(scope="session")
def spare_stores() -> Iterator[list[Store]]:
    """Empty ones that earlier tests have left: to empty tables costs less than to make them."""
    spare: list[Store] = []
    yield spare
    for store in spare:
        store.drop()


@pytest.fixture
def store(store_dsn: str, spare_stores: list[Store]) -> Iterator[Store]:
    """A store with a database of the test's own."""
    store = spare_stores.pop() if spare_stores else a_store(store_dsn)
    yield store
    for table in ("events", "pointers", "dead_letters", "dead_letter_replays"):
        store.command("TRUNCATE TABLE " + table)
    store.restore = str
    spare_stores.append(store)


def a_store(dsn: str) -> Store:
    return Store.open(dsn, database=f"t_{uuid4().hex}")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"sqlite:///{tmp_path / 'log.db'}")
    yield log
    log.close()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Engine]:
    engine = open_control(f"sqlite:///{tmp_path / 'control.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def room(tmp_path: Path, log: Log, store: Store, control: Engine) -> Ingest:
    return Ingest.of(Settings.of({}, data=tmp_path), log, store, control)


@pytest.fixture
def intake(room: Ingest) -> Intake:
    return room.intake


@pytest.fixture
def drain(log: Log, store: Store) -> Iterator[Drain]:
    """Moved by hand: `drain.step(timeout_s=0.1)`."""
    consumer = log.consumer("store")
    yield Drain(consumer, store)
    consumer.close()


@pytest.fixture
def tell(intake: Intake, drain: Drain) -> Callable[..., None]:
    """A function that has facts taken at a time, and stored."""

    def telling(*facts: dict[str, Any], at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        intake.now = lambda: at
        intake.take_own(*facts)
        while drain.step(timeout_s=0):
            pass

    return telling


@pytest.fixture
def running(room: Ingest, drain: Drain) -> Iterator[Running]:
    """The whole server over a real socket, on this test's own store."""
    server = Server(room, drain)
    _, secret = room.keys.create(SCOPES)
    headers = {"Authorization": f"Bearer {secret}"}
    with (
        on_a_socket(server.app()) as url,
        httpx.Client(base_url=url, headers=headers, timeout=30) as http,
    ):
        yield Running(server, http, url)


@pytest.fixture
def serve() -> Iterator[Callable[[FastAPI], str]]:
    """A function that serves an app on a socket until the test ends, and gives its url."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(on_a_socket(app))
