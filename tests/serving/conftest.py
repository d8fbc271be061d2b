import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from ingest.control import open_control
from ingest.drain import Drain
from ingest.keys import SCOPES
from ingest.log import open_log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store
from tests.running import Running, on_a_socket
from tests.serving.engines import Engine, an_engine
from thumbwheel.server import Server

MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Desk:
    """A running server with one engine behind the checkpoint `m1`."""

    running: Running
    engine: Engine

    @property
    def http(self) -> httpx.Client:
        return self.running.http

    def register(self, id: str, **engine: Any) -> httpx.Response:
        wanted = {"id": id, "engine": {"url": self.engine.url} | engine}
        return self.http.post("/v1/checkpoints", json=wanted)

    def ask(self, model: str = "m1", headers: Any = None, **body: Any) -> httpx.Response:
        """A completion; `headers` without their prefix."""
        named = {f"x-thumbwheel-{name}": value for name, value in (headers or {}).items()}
        wanted = json.dumps({"model": model, "messages": MESSAGES} | body)
        return self.http.post("/v1/chat/completions", content=wanted, headers=named)

    def experiment(self, key: str = "e1", **plan: Any) -> None:
        variants = [{"key": "a", "checkpoint": "m1"}, {"key": "b", "checkpoint": "m2"}]
        plan = {"key": key, "variants": variants} | plan
        self.http.post("/v1/experiments", json=plan).raise_for_status()
        self.http.post(f"/v1/experiments/{key}/start").raise_for_status()

    def finished(self, answer: httpx.Response) -> dict[str, Any]:
        """The whole fact; it may become durable a moment after the client has its answer."""
        named = f"{answer.headers['x-thumbwheel-completion-id']}-finished"
        for _ in range(200):
            found = self.http.get(f"/v1/events/{named}")
            if found.status_code == 200:
                return dict(found.json())
            threading.Event().wait(0.025)
        raise TimeoutError(f"{named} was not recorded")

    def exposures(self, experiment: str) -> list[dict[str, Any]]:
        self.running.until_stored()
        return list(self.running.server.ingest.store.rows(
            "SELECT user, consent, JSONExtractString(body, 'data', 'unit') AS unit, "
            "JSONExtractString(body, 'data', 'assignment') AS assignment, variant "
            "FROM events WHERE type = 'thumbwheel.experiment.exposed.v1' "
            "AND experiment = {experiment:String} ORDER BY unit",
            experiment=experiment,
        ))  # fmt: skip


@pytest.fixture(scope="module")
def running(store_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests of a module; they keep apart by checkpoints and experiments."""
    folder = tmp_path_factory.mktemp("serving")
    settings = Settings.of({}, data=folder)
    with ExitStack() as stack:
        store = Store.open(store_dsn, database=f"t_{uuid4().hex}")
        stack.callback(store.drop)
        log = open_log(f"sqlite:///{folder / 'log.db'}")
        stack.callback(log.close)
        control = open_control(f"sqlite:///{folder / 'control.db'}")
        stack.callback(control.dispose)
        consumer = log.consumer("store")
        stack.callback(consumer.close)
        room = Ingest.of(settings, log, store, control)
        server = Server(room, Drain(consumer, store))
        headers = {"Authorization": f"Bearer {room.keys.create(SCOPES)[1]}"}
        url = stack.enter_context(on_a_socket(server.app()))
        http = httpx.Client(base_url=url, headers=headers, timeout=30)
        yield Running(server, stack.enter_context(http), url)


@pytest.fixture(scope="module")
def one_engine(running: Running) -> Iterator[Engine]:
    with an_engine() as engine:
        Desk(running, engine).register("m1").raise_for_status()
        yield engine


@pytest.fixture
def desk(running: Running, one_engine: Engine) -> Iterator[Desk]:
    one_engine.rests()
    yield (desk := Desk(running, one_engine))
    for each in desk.http.get("/v1/experiments").json()["experiments"]:
        if each["status"] == "running":
            desk.http.post(f"/v1/experiments/{each['key']}/stop").raise_for_status()
