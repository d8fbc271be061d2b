"""All rooms in one process: what `thumbwheel up` runs."""

import fcntl
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse

from datagen.api import DatagenApi, Exports
from experiments.api import ExperimentsApi
from experiments.decisions import DecisionsApi
from experiments.metrics import use_folder
from experiments.records import Decisions
from experiments.registry import Experiments
from experiments.watch import Watch
from ingest.app import beside, create_app
from ingest.drain import GROUP, Drain
from ingest.errors import Conflict, Unavailable
from ingest.keys import SCOPES
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.watch import Batches, drain_meters
from serving.api import ServingApi
from serving.checkpoints import Checkpoints
from serving.gateway import Gateway
from thumbwheel.console import CONSOLE
from thumbwheel.derived import derived

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

    ingest: Ingest
    drain: Drain

    @classmethod
    @contextmanager
    def open(cls, settings: Settings) -> Iterator["Server"]:
        """Everything is closed at the end, in reverse order.

        Raises: BadInput for a metric file, Conflict, Unavailable.
        """
        if settings.metrics:
            use_folder(Path(settings.metrics))
        with owned(settings.data), Ingest.open(settings) as room:
            consumer = room.log.consumer(GROUP)
            try:
                room.intake.recall(consumer)
                yield cls(room, Drain(consumer, room.store))
            finally:
                consumer.close()

    def first_key(self) -> str | None:
        """On a fresh folder: a key with every scope, written to `<data>/key` for its owner alone."""
        if self.ingest.keys.all():
            return None
        _, secret = self.ingest.keys.create(SCOPES, label="first key")
        path = self.ingest.settings.data / "key"
        path.touch(mode=0o600)
        path.write_text(secret + "\n")
        return secret

    def app(self) -> FastAPI:
        """All rooms on one port."""
        http = httpx.AsyncClient(limits=httpx.Limits(max_connections=1000))
        room = self.ingest
        checkpoints = Checkpoints(room.control)
        experiments = Experiments(room.control, checkpoints.exists)
        decisions = Decisions(room.control, room.store)
        gateway = Gateway(checkpoints, experiments, room.intake, http)
        exports = Exports(room.store, room.settings.data / "datasets")
        room.erasures.derived = derived(exports, checkpoints)
        room.erasures.forget_user = lambda user: experiments.forget("user", user)
        self.drain.watch = batches = Batches()
        console = APIRouter()
        console.add_api_route(
            "/", lambda: HTMLResponse(CONSOLE), include_in_schema=False, response_class=HTMLResponse
        )
        return create_app(
            "Thumbwheel",
            [
                *room.routers(),
                ExperimentsApi(experiments, room.store, room.keys).router(),
                DecisionsApi(experiments, decisions, room.keys).router(),
                ServingApi(gateway, checkpoints, room.keys).router(),
                DatagenApi(exports, room.keys).router(),
                console,
            ],
            ready={**room.checks(), "drain": self._drain_runs},
            meters=[*room.meters(), *drain_meters(self.drain)],
            collectors=batches.collectors,
            origins=room.settings.origins,
            lifespan=self._lifespan(http, Watch(experiments, decisions)),
        )

    def _lifespan(self, http: httpx.AsyncClient, watch: Watch):  # type: ignore[no-untyped-def]  # noqa: ANN202
        @asynccontextmanager
        async def alive(_app: FastAPI) -> AsyncIterator[None]:
            with beside(drain=self.drain, upkeep=self.ingest.upkeep(), watch=watch):
                self.ingest.erasures.start()
                try:
                    yield
                finally:
                    self.ingest.erasures.close()
            await http.aclose()

        return alive

    def _drain_runs(self) -> None:
        if not any(thread.name == "drain" for thread in threading.enumerate()):
            raise Unavailable("the drain has stopped; the log keeps all facts, restart the server")
