"""All rooms in one process: what `thumbwheel up` runs."""

import fcntl
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse
from sqlalchemy import Engine

from datagen.api import DatagenApi, Exports
from experiments.api import ExperimentsApi
from experiments.registry import Experiments
from ingest.api import IngestApi
from ingest.app import Meter, create_app
from ingest.control import open_control, reading
from ingest.drain import GROUP, Drain
from ingest.errors import Conflict, Unavailable
from ingest.feedback import Feedback
from ingest.intake import Intake
from ingest.keys import SCOPES, Keys
from ingest.log import Log, open_log
from ingest.settings import Settings
from ingest.store import Store
from serving.api import ServingApi
from serving.checkpoints import Checkpoints
from serving.gateway import Gateway
from thumbwheel.console import CONSOLE

log = logging.getLogger(__name__)


@contextmanager
def owned(data: Path) -> Iterator[None]:
    """The data folder exists, readable by its owner alone, and no other server uses it meanwhile.

    Raises: Conflict naming the process that has it.
    """
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (data / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise Conflict(
                f"{data} is in use by another server (process {file.read().strip() or 'unknown'}); "
                "stop it, or give this one another folder with --data"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@dataclass(frozen=True)
class Server:
    """The parts, opened; `app()` composes them."""

    settings: Settings
    log: Log
    store: Store
    control: Engine
    keys: Keys
    intake: Intake
    drain: Drain

    @classmethod
    @contextmanager
    def open(cls, settings: Settings) -> Iterator["Server"]:
        """Everything is closed at the end, in reverse order. Raises: Conflict, Unavailable."""
        with ExitStack() as stack:
            stack.enter_context(owned(settings.data))
            facts = open_log(settings.log)
            stack.callback(facts.close)
            store = Store.open(settings.store)
            stack.callback(store.close)
            control = open_control(settings.control)
            stack.callback(control.dispose)
            consumer = facts.consumer(GROUP)
            stack.callback(consumer.close)
            intake = Intake(facts, store)
            intake.recall(consumer)
            drain = Drain(consumer, store)
            yield cls(settings, facts, store, control, Keys(control), intake, drain)

    def first_key(self) -> str | None:
        """On a fresh folder: a key with every scope, written to `<data>/key` for its owner alone."""
        if self.keys.all():
            return None
        _, secret = self.keys.create(SCOPES, label="first key")
        path = self.settings.data / "key"
        path.touch(mode=0o600)
        path.write_text(secret + "\n")
        return secret

    def app(self) -> FastAPI:
        """All rooms on one port."""
        http = httpx.AsyncClient(limits=httpx.Limits(max_connections=1000))
        intake = self.intake
        checkpoints = Checkpoints(self.control)
        experiments = Experiments(self.control, checkpoints.exists)
        feedback = Feedback(self.control, intake)
        gateway = Gateway(checkpoints, experiments, intake, http)
        exports = Exports(self.store, self.settings.data / "datasets")
        console = APIRouter()
        console.add_api_route(
            "/", lambda: HTMLResponse(CONSOLE), include_in_schema=False, response_class=HTMLResponse
        )
        return create_app(
            "Thumbwheel",
            [
                IngestApi(intake, self.store, feedback, self.keys).router(),
                ExperimentsApi(experiments, self.store, self.keys).router(),
                ServingApi(gateway, checkpoints, self.keys).router(),
                DatagenApi(exports, self.keys).router(),
                console,
            ],
            ready={
                "log": lambda: self.log.lag(GROUP),
                "store": lambda: self.store.rows("SELECT 1"),
                "control": self._control_answers,
                "drain": self._drain_runs,
            },
            meters=self._meters(),
            lifespan=self._lifespan(http),
        )

    def _lifespan(self, http: httpx.AsyncClient):  # type: ignore[no-untyped-def]  # noqa: ANN202
        @asynccontextmanager
        async def alive(_app: FastAPI) -> AsyncIterator[None]:
            thread = threading.Thread(target=self.drain.run, name="drain")
            thread.start()
            try:
                yield
            finally:
                self.drain.stop.set()
                thread.join()
                await http.aclose()

        return alive

    def _control_answers(self) -> None:
        with reading(self.control) as connection:
            connection.exec_driver_sql("SELECT 1")

    def _drain_runs(self) -> None:
        if not any(thread.name == "drain" for thread in threading.enumerate()):
            raise Unavailable("the drain has stopped; the log keeps all facts, restart the server")

    def _meters(self) -> list[Meter]:
        return [
            Meter(
                "thumbwheel_events",
                "Events by verdict since start.",
                lambda: dict(self.intake.counts),
                label="status",
            ),
            Meter(
                "thumbwheel_log_lag",
                "Log records the store does not have yet.",
                lambda: {"": self.log.lag(GROUP)},
                counter=False,
            ),
            Meter(
                "thumbwheel_stored", "Facts drained since start.", lambda: {"": self.drain.stored}
            ),
            Meter(
                "thumbwheel_dead_letters",
                "Records that were no facts since start.",
                lambda: {"": self.drain.dead},
            ),
        ]
