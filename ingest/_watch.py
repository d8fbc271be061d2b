"""Around every request: how long it took, and headers that keep browsers from guessing."""

import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ROUTE = "none"
_SAFE = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


class _Labels(NamedTuple):
    """Only words of this server, so that no client can make their number grow."""

    route: str
    method: str
    status: str


def latency(registry: CollectorRegistry) -> Histogram:
    return Histogram(
        "thumbwheel_request_seconds",
        "From a request's head to the last byte of its answer, in seconds.",
        _Labels._fields,
        registry=registry,
        buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    )


@dataclass
class Watch:
    """ASGI middleware; `seconds` takes one observation of each request."""

    app: ASGIApp
    seconds: Histogram
    _children: dict[_Labels, Histogram] = field(default_factory=dict, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SAFE]
            await send(message)

        began = time.perf_counter()
        try:
            await self.app(scope, receive, noting)
        finally:
            self._observe(scope, status, time.perf_counter() - began)

    def _observe(self, scope: MutableMapping[str, Any], status: int, took: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        labels = _Labels(getattr(scope.get("route"), "path", _NO_ROUTE), method, str(status))
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self.seconds.labels(*labels)
        child.observe(took)
