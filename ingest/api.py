"""HTTP intake: facts."""

from collections import Counter
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from ingest._listing import as_stored
from ingest.errors import Conflict, NotFound, WrongType
from ingest.intake import FactId, Intake, Receipt
from ingest.keys import Keys, Principal
from ingest.store import Store
from ingest.web import read_body, requires
from ingest.wire import Raw, read_one, split_batch

MAX_EVENTS = 1_000
_BATCH = "application/cloudevents-batch+json"
_SINGLE = "application/cloudevents+json"


class AuditedFact(BaseModel):
    source: str
    id: str


class AuditQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    facts: Annotated[list[AuditedFact], Field(min_length=1, max_length=10_000)]


class IngestApi:
    """The routes of this room, bound to what they need."""

    def __init__(self, intake: Intake, store: Store, keys: Keys) -> None:
        self._intake, self._store, self._keys = intake, store, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["facts"])
        may_send = requires(self._keys, "ingest")
        read = Depends(requires(self._keys, "analyst"))
        router.add_api_route(
            "/v1/events", self._accept(may_send), methods=["POST"], openapi_extra=_BODY
        )
        router.add_api_route("/v1/events/audit", self.audit, methods=["POST"], dependencies=[read])
        router.add_api_route("/v1/events/{id}", self.event, dependencies=[read])
        # An id may hold a slash; but no line break is part of a path.
        router.add_api_route(
            "/v1/events/{id:path}", self.event, dependencies=[read], include_in_schema=False
        )
        return router

    def _accept(self, may_send: Any) -> Any:  # noqa: ANN401 - FastAPI reads the signature
        async def accept(
            request: Request,
            who: Annotated[Principal, Depends(may_send)],
            content_type: Annotated[str, Header()] = "application/json",
            thumbwheel_sent_at: Annotated[AwareDatetime | None, Header()] = None,
        ) -> Response:
            """A verdict for each event, in the order sent; the accepted ones are durable."""
            batch = await _batch(request, content_type)
            trusted = "admin" in who.scopes
            receipt = await run_in_threadpool(
                self._intake.take, batch, sent_at=thumbwheel_sent_at, trusted=trusted
            )
            return Response(orjson.dumps(answer(receipt)), media_type="application/json")

        return accept

    def audit(self, question: AuditQuestion) -> dict[str, Any]:
        """Which of these facts are queryable, and whether each is there once."""
        counts = self._store.counts([FactId(each.source, each.id) for each in question.facts])
        wanted = {(each.source, each.id): each.model_dump() for each in question.facts}
        return {
            "asked": len(wanted),
            "stored": len(counts),
            "missing": [each for fact, each in wanted.items() if fact not in counts],
            "repeated": [each for fact, each in wanted.items() if counts.get(FactId(*fact), 0) > 1],
        }

    def event(self, id: str, source: str | None = None) -> Response:
        """The fact as stored, with when and where it was received."""
        found = self._store.events(id, source=source)
        if not found:
            raise NotFound(f"no event {id} is queryable yet")
        if len(found) > 1:
            raise Conflict(f"several sources have an event {id}; add ?source=…")
        return Response(as_stored(found[0]), media_type="application/json")


_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            _BATCH: {
                "schema": {"type": "array", "items": {"type": "object"}, "maxItems": MAX_EVENTS}
            },
            _SINGLE: {"schema": {"type": "object"}},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
        },
    }
}


async def _batch(request: Request, content_type: str) -> list[Raw]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (_BATCH, _SINGLE, "application/json"):
        raise WrongType(f"content-type {kind!r}; send {_BATCH} or {_SINGLE}")
    body = await read_body(request)
    return [read_one(body)] if kind == _SINGLE else split_batch(body, most=MAX_EVENTS)


def answer(receipt: Receipt) -> dict[str, Any]:
    """The receipt as a client reads it."""
    results = [
        {"id": v.id, "status": v.status} | ({"reason": v.reason} if v.reason else {})
        for v in receipt.results
    ]
    counts = Counter(verdict.status for verdict in receipt.results)
    return {
        "results": results,
        "accepted": counts["accepted"],
        "duplicate": counts["duplicate"],
        "rejected": counts["rejected"],
        "position": receipt.position,
    }
