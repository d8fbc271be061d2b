"""HTTP: links to rate by. They are public: what opens them is the signature in them."""

import math
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, ValidationError

from ingest._links import Link, Links, LinkWish
from ingest._links_page import asking, saying
from ingest.errors import BadInput, FieldError, ThumbwheelError, Unreadable, WrongType
from ingest.feedback import Comment, Feedback, Given, Rater, Rating, Value
from ingest.keys import Keys
from ingest.web import read_body, requires

_MAX_BODY_BYTES = 1 << 20
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_THUMBS = {"up": True, "down": False}


class Use(BaseModel):
    """What a rater sends to a link."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: Value
    comment: Comment | None = None
    rater: Rater | None = None


class LinksApi:
    """The routes of links, bound to what they need."""

    def __init__(self, feedback: Feedback, links: Links, keys: Keys) -> None:
        self._feedback, self._links, self._keys = feedback, links, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["feedback"])
        router.add_api_route(
            "/v1/feedback/links",
            self.make,
            methods=["POST"],
            dependencies=[Depends(requires(self._keys, "ingest"))],
        )
        path = "/v1/feedback/links/{token}"
        router.add_api_route(path, self.show, methods=["GET"], responses=_PAGE)
        router.add_api_route(path, self.show, methods=["HEAD"], include_in_schema=False)
        router.add_api_route(
            path, self.use, methods=["POST"], responses=_ANSWER, openapi_extra=_BODY
        )
        return router

    def make(self, wish: LinkWish, request: Request) -> dict[str, Any]:
        """A URL by which the target can be rated without a key, once per rater, until it expires."""
        token, expires_at = self._links.make(wish)
        url = f"{request.base_url}v1/feedback/links/{token}"
        return {"url": url, "expires_at": expires_at.isoformat()}

    def show(self, token: str, accept: Annotated[str, Header()] = "") -> Response:
        """A page that asks. Nothing is recorded: mail scanners and previews come here too."""
        return _for_people(accept, lambda: asking(self._links.read(token)))

    async def use(
        self,
        token: str,
        request: Request,
        accept: Annotated[str, Header()] = "",
        content_type: Annotated[str, Header()] = _FORM,
    ) -> Response:
        """The rating is durable; the same again is the same one."""
        body = await read_body(request, limit=_MAX_BODY_BYTES)
        kind = content_type.partition(";")[0].strip().lower()
        return await run_in_threadpool(
            _for_people, accept, lambda: self._used(token, kind, body, accept)
        )

    def _used(self, token: str, kind: str, body: bytes, accept: str) -> Response:
        link = self._links.read(token)
        use = _read(kind, body)
        value = _THUMBS.get(use.value, use.value) if isinstance(use.value, str) else use.value
        rating = Rating(target=link.target, name=link.name, value=value, comment=use.comment)
        given = self._feedback.give(rating, rater=_rater(link, use), link=link.id)
        return _answer(given, value, kind if accept in ("", "*/*") else accept)


def _rater(link: Link, use: Use) -> str:
    if link.rater is None:
        if use.rater is None:
            raise BadInput.of("rater", "say who you are: this link is not for one person")
        return use.rater
    if use.rater not in (None, link.rater):
        raise BadInput.of("rater", "this link is for one person; leave the field out")
    return link.rater


def _read(kind: str, body: bytes) -> Use:
    """Raises: WrongType, Unreadable, BadInput."""
    if kind not in (_JSON, _FORM):
        raise WrongType(f"content-type {kind!r}; send {_FORM} or {_JSON}")
    try:
        return Use.model_validate_json(body) if kind == _JSON else _form(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        if problems[0]["type"] == "json_invalid":
            raise Unreadable("the body is not JSON") from error
        found = tuple(FieldError(".".join(map(str, e["loc"])), e["msg"]) for e in problems)
        raise BadInput("; ".join(f"{e.field}: {e.detail}" for e in found), errors=found) from error


def _form(body: bytes) -> Use:
    try:
        fields: dict[str, Any] = dict(parse_qsl(body.decode(), errors="strict", max_num_fields=10))
    except ValueError as error:
        raise Unreadable("the body is not a form in UTF-8") from error
    if "value" in fields:
        fields["value"] = _number(fields["value"])
    return Use.model_validate(fields)


def _number(text: str) -> str | float:
    """A form knows only words; one that reads as a number is one."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _for_people(accept: str, answer: Callable[[], Response]) -> Response:
    """The answer; a browser gets its errors as a page."""
    if "text/html" not in accept:
        return answer()
    try:
        return answer()
    except ThumbwheelError as error:
        return saying(error.title, error.detail, status=error.status)


def _answer(given: Given, value: Value, accept: str) -> Response:
    said = ("up" if value else "down") if isinstance(value, bool) else value
    if "text/html" in accept:
        return saying("Thank you", f"Recorded: {said}. You can close this page.")
    if "json" in accept:
        return JSONResponse({"id": given.id, "revision": given.revision, "event": given.event})
    return PlainTextResponse(f"recorded: {said}\n")


_PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}}}
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/html": {}, "text/plain": {}, _JSON: {}}}
}
_USE = Use.model_json_schema()
_BODY = {
    "requestBody": {
        "required": True,
        "content": {_JSON: {"schema": _USE}, _FORM: {"schema": _USE}},
    }
}
