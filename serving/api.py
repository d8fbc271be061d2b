"""HTTP: OpenAI-compatible completions, models, the checkpoint registry."""

import json
import time
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ingest.errors import BadInput, Forbidden, ThumbwheelError, Unauthorized, Unreadable
from ingest.events import CONSENT_LEVELS
from ingest.keys import Keys
from ingest.web import read_body, requires
from serving._record import MAX_DEPTH, Context, deeper_than
from serving.checkpoints import ROUTE, Checkpoint, Checkpoints
from serving.gateway import OVERHEAD, Gateway, openai_error, overhead

_HEADER = "x-thumbwheel-"
_MAX_HEADER = 800


class NewAlias(BaseModel):
    model_config = ConfigDict(extra="forbid")

    alias: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,49}$")]


class ServingApi:
    """The routes of this room, bound to what they need."""

    def __init__(self, gateway: Gateway, checkpoints: Checkpoints, keys: Keys) -> None:
        self._gateway, self._checkpoints = gateway, checkpoints
        self._keys, self._may_serve = keys, requires(keys, "serve")

    def router(self) -> APIRouter:
        router = APIRouter(tags=["serving"])
        serve = [Depends(self._may_serve)]
        ml = [Depends(requires(self._keys, "ml"))]
        router.add_api_route("/v1/chat/completions", self.chat, methods=["POST"])
        router.add_api_route("/v1/models", self.models, dependencies=serve)
        router.add_api_route(
            "/v1/checkpoints", self.add, methods=["POST"], status_code=201, dependencies=ml
        )
        router.add_api_route("/v1/checkpoints", self.all, dependencies=ml)
        router.add_api_route(
            "/v1/checkpoints/{id:path}/alias", self.alias, methods=["POST"], dependencies=ml
        )
        router.add_api_route("/v1/checkpoints/{id:path}", self.get, dependencies=ml)
        return router

    async def chat(self, request: Request) -> Response:
        """OpenAI's chat completion; `model` is the route `agent`, an alias or a checkpoint id."""
        began = time.perf_counter()
        completion = f"cmpl-{uuid4().hex}"
        try:
            await self._may_serve(request)
            body = _body(await read_body(request))
            context = _context(request.headers, completion)
        except ThumbwheelError as error:
            if isinstance(error, Unauthorized | Forbidden):
                wanted = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
                return openai_error(error, wanted)
            headers = {f"{_HEADER}completion-id": completion, OVERHEAD: overhead(began)}
            return openai_error(error, headers)
        return await self._gateway.complete(body, context, began=began)

    def models(self) -> dict[str, Any]:
        """The route and every checkpoint, in OpenAI's shape."""
        ids = [ROUTE, *(each.id for each in self._checkpoints.all())]
        entries = [{"id": each, "object": "model", "owned_by": "thumbwheel"} for each in ids]
        return {"object": "list", "data": entries}

    def add(self, checkpoint: Checkpoint) -> dict[str, Any]:
        self._checkpoints.add(checkpoint)
        return checkpoint.public()

    def all(self) -> dict[str, Any]:
        checkpoints = [each.public() for each in self._checkpoints.all()]
        return {"checkpoints": checkpoints, "aliases": self._checkpoints.aliases()}

    def get(self, id: str) -> dict[str, Any]:
        return self._checkpoints.get(id).public()

    def alias(self, id: str, wanted: NewAlias) -> dict[str, Any]:
        self._checkpoints.alias(id, wanted.alias)
        return {"id": id, "alias": wanted.alias}


def _body(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise Unreadable("the body is not JSON") from error
    if not isinstance(body, dict):
        raise Unreadable("expected one JSON object")
    if deeper_than(body, MAX_DEPTH):
        raise Unreadable(f"nested more than {MAX_DEPTH} deep")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise BadInput.of("model", f"name the route {ROUTE!r}, an alias or a checkpoint id")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise BadInput.of("messages", "expected a list with at least one message")
    return body


def _number(text: str) -> float:
    """Engines and facts take no infinite numbers: NaN, Infinity and 1e999 are refused."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def _context(headers: Mapping[str, str], completion: str) -> Context:
    def said(name: str) -> str:
        value = _utf8(headers.get(_HEADER + name, "")).strip()
        if len(value) > _MAX_HEADER:
            # Cut, two callers could become one.
            raise BadInput.of(_HEADER + name, f"longer than {_MAX_HEADER} characters")
        return value

    consent = said("consent") or "metrics"
    if consent not in CONSENT_LEVELS:
        raise BadInput.of(f"{_HEADER}consent", f"choose from {', '.join(CONSENT_LEVELS)}")
    return Context(
        completion=completion,
        user=said("user"),
        organization=said("organization"),
        conversation=said("conversation"),
        turn=said("turn"),
        consent=consent,
        simulated=said("simulated") == "true",
        attributes=_attributes(said("attributes")),
    )


def _attributes(text: str) -> dict[str, Any]:
    """What experiments may be targeted at. Raises: BadInput."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or any(isinstance(v, dict | list) for v in found.values()):
        raise BadInput.of(
            f"{_HEADER}attributes", 'send a flat JSON object, such as {"language": "python"}'
        )
    return found


def _utf8(value: str) -> str:
    """The header's text: UTF-8 where it is, so that ids match those in facts, else Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value
