"""Web pages that may call this server: an editor in a browser has no other way in."""

import re

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ingest.errors import BadInput

_ORIGIN = re.compile(r"https?://(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*(?::\d{1,5})?")
_ANY_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"

_ASKED = ("user", "organization", "conversation", "turn", "consent")
_TOLD = ("completion-id", "assignment-id", "experiment", "variant", "checkpoint", "overhead-ms")
REQUEST_HEADERS = (
    "Authorization",
    "Content-Type",
    "Content-Encoding",
    "thumbwheel-sent-at",
    *(f"x-thumbwheel-{name}" for name in _ASKED),
)
RESPONSE_HEADERS = ("Retry-After", *(f"x-thumbwheel-{name}" for name in _TOLD))


class WebPages(CORSMiddleware):
    """Pages whose origin matches may call; to any other page, and to no page, nothing is said.

    A browser sends no key by itself, so credentials are never allowed.
    """

    def __init__(self, app: ASGIApp, *, origins: str) -> None:
        super().__init__(
            app,
            allow_origin_regex=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=REQUEST_HEADERS,
            expose_headers=RESPONSE_HEADERS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is not None and self.is_allowed_origin(origin):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def pattern(origins: str) -> str:
    """A regular expression of the listed origins; a leading `*.` stands for one subdomain label.

    Raises: BadInput naming the one that is no origin.
    """
    return "|".join(_expression(origin) for origin in origins.split())


def _expression(origin: str) -> str:
    if not _ORIGIN.fullmatch(origin):
        raise BadInput.of(
            "origins", f"{origin!r} is no origin; for example https://vscode.dev or https://*.a.dev"
        )
    return re.escape(origin).replace(r"\*", _ANY_LABEL)
