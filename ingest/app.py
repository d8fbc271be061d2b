"""One FastAPI app out of rooms: health, readiness, metrics, and errors that name the fix."""

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ingest._bounds import Bounds
from ingest._log_lines import configure_logging
from ingest._origins import WebPages, pattern
from ingest._watch import Watch, latency
from ingest.errors import ThumbwheelError
from ingest.settings import Settings
from ingest.web import MAX_BODY_BYTES, PROBLEM_RESPONSES, install_problems

__all__ = ["Meter", "alone", "configure_logging", "create_app", "serve", "settle"]

_STOP_S = 8
"""Requests in hand get this long; a drain's last batch gets the rest of ten seconds."""


@dataclass(frozen=True)
class Meter:
    """A number that an operator watches. `read` gives it by label value, "" for none."""

    name: str
    help: str
    read: Callable[[], Mapping[str, float]]
    label: str | None = None
    counter: bool = True

    def family(self) -> Metric:
        kind = CounterMetricFamily if self.counter else GaugeMetricFamily
        family = kind(self.name, self.help, labels=[self.label] if self.label else [])
        for value, number in self.read().items():
            family.add_metric([value] if self.label else [], number)
        return family


@dataclass(frozen=True, eq=False)
class _Meters(Collector):
    """What cannot be read now is left out, and said to be: the rest must still be seen."""

    meters: tuple[Meter, ...] = field(default_factory=tuple)

    def collect(self) -> Iterable[Metric]:
        errors = GaugeMetricFamily(
            "thumbwheel_scrape_errors",
            "1 for each series that could not be read this time and is left out.",
            labels=["series"],
        )
        for meter in self.meters:
            try:
                family = meter.family()
            except ThumbwheelError:
                errors.add_metric([meter.name], 1)
            else:
                errors.add_metric([meter.name], 0)
                yield family
        yield errors

    def describe(self) -> Iterable[Metric]:
        return []


def create_app(
    title: str,
    routers: Iterable[APIRouter],
    *,
    ready: Mapping[str, Callable[[], object]],
    meters: Iterable[Meter] = (),
    collectors: Iterable[Collector] = (),
    origins: str = "",
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Args:
        title: Of the OpenAPI document.
        routers: One per room.
        ready: Named checks; each raises a ThumbwheelError that says what is wrong.
        meters: What `/metrics` shows.
        collectors: Of prometheus_client, histograms for instance; shown too.
        origins: Web pages that may call, separated by spaces; a leading `*.` is one subdomain.
        lifespan: Starts and stops what must live as long as the app.

    Raises: BadInput naming the origin that is none.
    """
    app = FastAPI(
        title=title,
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=PROBLEM_RESPONSES,
    )
    install_problems(app)
    for router in routers:
        app.include_router(router)
    registry = _registry(_Meters(tuple(meters)), *collectors)
    # A route that reads its body itself refuses sooner, in its own words.
    app.add_middleware(Bounds, most=MAX_BODY_BYTES + (1 << 20))
    if origins.strip():
        app.add_middleware(WebPages, origins=pattern(origins))
    app.add_middleware(Watch, seconds=latency(registry))
    _add_probes(app, ready, registry)
    return app


def _registry(*collectors: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


def _add_probes(
    app: FastAPI, ready: Mapping[str, Callable[[], object]], registry: CollectorRegistry
) -> None:
    """Whether it lives, whether it is ready, and how it is: for machines, without a key."""

    def readyz() -> JSONResponse:
        """200 when every part answers; else 503 with the names of those that do not."""
        causes = {name: cause for name, check in ready.items() if (cause := _cause(check))}
        return JSONResponse({"ready": not causes, "causes": causes}, 503 if causes else 200)

    def metrics() -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    app.add_api_route("/healthz", lambda: {"alive": True}, include_in_schema=False)
    app.add_api_route("/readyz", readyz, include_in_schema=False)
    app.add_api_route("/metrics", metrics, include_in_schema=False)


def _cause(check: Callable[[], object]) -> str | None:
    try:
        check()
    except ThumbwheelError as error:
        return error.detail
    return None


class Job(Protocol):
    """What goes on beside requests until `stop` is set."""

    stop: threading.Event

    def run(self) -> None: ...


@contextmanager
def beside(**jobs: Job) -> Iterator[None]:
    """Each job runs in a thread of its name, and has ended afterwards."""
    threads = [threading.Thread(target=job.run, name=name) for name, job in jobs.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for job in jobs.values():
            job.stop.set()
        for thread in threads:
            thread.join()


def serve(app: FastAPI, settings: Settings) -> None:
    """The app answers until SIGTERM or ^C; requests in hand are finished first."""
    # After its own orderly stop uvicorn raises the signal again; by then it has done its work.
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: None)
    settle()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_STOP_S,
    )
    uvicorn.Server(config).run()


def settle() -> None:
    """What lives as long as the process is not looked at again for garbage, and the rest less often.

    Each batch makes thousands of short-lived objects; by default that means a look at everything,
    models and clients included, several times a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def alone(name: str, room: Callable[[Settings], None], settings: Settings) -> int:
    """The exit code of a room that runs in a process of its own, on a data folder that exists."""
    configure_logging()
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        room(settings)
    except ThumbwheelError as error:
        print(f"{name}: {error.detail}", file=sys.stderr)
        return 1
    return 0
