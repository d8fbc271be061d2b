"""What the HTTP doors of all rooms share: bodies within bounds, keys, errors as problem+json."""

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import zstandard
from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.requests import HTTPConnection
from fastapi.responses import JSONResponse
from fastapi.security.http import HTTPBase
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ingest.errors import (
    BadInput,
    FieldError,
    Forbidden,
    ThumbwheelError,
    TooLarge,
    Unauthorized,
    Unreadable,
    WrongType,
)
from ingest.keys import Keys, Principal

MAX_BODY_BYTES = 20 << 20
PROBLEM_JSON = "application/problem+json"
_LONGEST_NAME, _MOST_ERRORS = 100, 20
"""Of wrong fields: names may be made up, in any number."""

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "detail"],
                "properties": {"field": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
}
_ANSWERS: tuple[tuple[int | str, str], ...] = (
    ("4XX", "What is wrong with the request, and the fix."),
    (422, "The fields that are wrong."),
    ("5XX", "What does not work here now; Retry-After says when to send again."),
)
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": what, "content": {PROBLEM_JSON: {"schema": _PROBLEM}}}
    for status, what in _ANSWERS
}
"""What every route may answer, for the OpenAPI document."""


class Door(HTTPBase):
    """A FastAPI dependency: who asks, once their request is paid for.

    While the key is fresh in memory, asking costs no thread and no database.
    """

    def __init__(self, keys: Keys, scope: str) -> None:
        super().__init__(scheme="bearer", scheme_name="key", description="`thumbwheel key create`")
        self._keys, self._scope = keys, scope

    async def __call__(self, request: HTTPConnection) -> Principal:  # type: ignore[override]
        """Whose key it is. Raises: Unauthorized, TooManyRequests, Forbidden, Unavailable."""
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        secret = secret.strip()
        if kind.lower() != "bearer" or not secret:
            raise Unauthorized("send `Authorization: Bearer <key>`")
        who = self._keys.recent(secret)
        if who is None:
            who = await run_in_threadpool(self._keys.check, secret)
        if self._scope not in who.scopes:
            if self._scope == "admin":
                await run_in_threadpool(self._keys.refused, who.key_id, _asked(request))
            raise Forbidden(f"this key lacks the scope '{self._scope}'")
        request.state.who = who
        return who


def requires(keys: Keys, scope: str) -> Door:
    """A FastAPI dependency: who asks, if their key has the scope.

    Raises: Unauthorized without a valid key, TooManyRequests, Forbidden without the scope.
    """
    return Door(keys, scope)


async def _who(request: Request) -> Principal:
    who: Principal = request.state.who
    return who


Asker = Annotated[Principal, Depends(_who)]
"""A parameter of a route that has a door: who passed it."""


def _asked(request: HTTPConnection) -> str:
    """The route and not the path: it holds nothing that a client chose."""
    return f"{request.scope['method']} {getattr(request.scope.get('route'), 'path', '')}"


async def read_body(request: Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The decompressed body. Raises: TooLarge as soon as it is, WrongType, Unreadable."""
    body = await _collect(request.stream(), limit)
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding in ("", "identity"):
        return body
    if encoding == "gzip":
        return _gunzip(body, limit)
    if encoding == "zstd":
        return _unzstd(body, limit)
    raise WrongType(f"content-encoding {encoding!r}; send gzip, zstd or none")


async def _collect(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    parts, size = [], 0
    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise TooLarge(f"the body is larger than {limit} bytes; send smaller batches")
            parts.append(chunk)
    except ClientDisconnect as error:
        raise Unreadable("the connection ended before the body did") from error
    return b"".join(parts)


def _gunzip(body: bytes, limit: int) -> bytes:
    inflate = zlib.decompressobj(wbits=31)
    try:
        data = inflate.decompress(body, limit + 1)
    except zlib.error as error:
        raise Unreadable("the body is not gzip") from error
    return _within(data, limit, whole=inflate.eof and not inflate.unused_data)


def _unzstd(body: bytes, limit: int) -> bytes:
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body) as reader:
            data = reader.read(limit + 1)
        whole = len(data) > limit or _is_one_frame(body)
    except zstandard.ZstdError as error:
        raise Unreadable("the body is not zstd") from error
    return _within(data, limit, whole=whole)


def _is_one_frame(body: bytes) -> bool:
    frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    frame.decompress(body)  # no more than the limit, as the caller has found
    return frame.eof and not frame.unused_data


def _within(data: bytes, limit: int, *, whole: bool) -> bytes:
    if len(data) > limit:
        raise TooLarge(f"the body unpacks to more than {limit} bytes; send smaller batches")
    if not whole:
        raise Unreadable("the compressed body is cut short or has bytes after its end")
    return data


def problem(error: ThumbwheelError) -> JSONResponse:
    """The error as RFC 9457 has it."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    if error.errors:
        body["errors"] = [{"field": e.field, "detail": e.detail} for e in error.errors]
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, error.status, headers, PROBLEM_JSON)


def install_problems(app: FastAPI) -> None:
    """Every error of the app reaches its client as problem+json, without a stack trace."""

    async def ours(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ThumbwheelError)  # noqa: S101 - registered for this class only
        return problem(error)

    async def fields(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
        return problem(_bad_fields(error))

    async def routing(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - as above
        body = {"type": "about:blank", "title": str(error.detail), "status": error.status_code}
        return JSONResponse(body, error.status_code, error.headers, PROBLEM_JSON)

    async def unknown(_request: Request, _error: Exception) -> JSONResponse:
        return problem(ThumbwheelError("something broke here; the server's log has the details"))

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
        ThumbwheelError: ours,
        RequestValidationError: fields,
        HTTPException: routing,
        Exception: unknown,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _bad_fields(error: RequestValidationError) -> ThumbwheelError:
    problems = error.errors()
    if problems and problems[0]["type"] == "json_invalid":
        return Unreadable(f"the body is not JSON: {problems[0]['ctx'].get('error', '')}")
    found = tuple(
        FieldError(".".join(map(str, item["loc"][1:]))[:_LONGEST_NAME] or "body", item["msg"])
        for item in problems[:_MOST_ERRORS]
    )
    return BadInput("; ".join(f"{e.field}: {e.detail}" for e in found), errors=found)
