"""HTTP: facts that other tools send in their own form."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from ingest import _otlp
from ingest._continue import facts_of as facts_of_report
from ingest._continue import posted
from ingest._otlp_spans import facts_of as facts_of_span
from ingest.api import answer
from ingest.errors import BadInput, WrongType
from ingest.events import Consent
from ingest.intake import Intake, Verdict
from ingest.keys import Keys, Principal
from ingest.web import read_body, requires
from ingest.wire import MAX_DEPTH, Raw, read_one

_MOST_FACTS = 1_000
_MOST_CHARACTERS = 4 << 20
_REASONS = 3


class DoorsApi:
    """The routes of OTLP and Continue, bound to what they need."""

    def __init__(self, intake: Intake, keys: Keys) -> None:
        self._intake, self._keys = intake, keys
        self.spans: Counter[str] = Counter()
        """Since the process started: `taken`, `refused`, and `left_out` for those that are none of
        ours, having no attribute gen_ai.*."""

    def router(self) -> APIRouter:
        router = APIRouter(tags=["facts"])
        may_send = requires(self._keys, "ingest")
        router.add_api_route(
            "/v1/traces",
            self._traces(may_send),
            methods=["POST"],
            openapi_extra=_EXPORT,
            responses=_EXPORTED,
            response_class=Response,
        )
        router.add_api_route(
            "/v1/continue", self._continue(may_send), methods=["POST"], openapi_extra=_REPORT
        )
        return router

    def _traces(self, may_send: Any) -> Any:  # noqa: ANN401 - FastAPI reads the signature
        async def traces(
            request: Request,
            _who: Annotated[Principal, Depends(may_send)],
            content_type: Annotated[str, Header()] = "",
        ) -> Response:
            """Every fact of the export is durable, but for those the answer counts as rejected."""
            kind = content_type.partition(";")[0].strip().lower()
            if kind not in (_otlp.JSON, _otlp.PROTOBUF):
                raise WrongType(f"content-type {kind!r}; send {_otlp.PROTOBUF} or {_otlp.JSON}")
            body = await read_body(request)
            answer = await run_in_threadpool(self._take_export, body, kind)
            return Response(answer, media_type=kind)

        return traces

    def _continue(self, may_send: Any) -> Any:  # noqa: ANN401 - FastAPI reads the signature
        async def report(
            request: Request,
            _who: Annotated[Principal, Depends(may_send)],
            x_thumbwheel_consent: Annotated[Consent, Header()] = "metrics",
            x_thumbwheel_user: Annotated[str, Header(max_length=800)] = "",
        ) -> dict[str, Any]:
            """A verdict for each fact of one of Continue's reports; the accepted are durable."""
            raw = read_one(await read_body(request))
            if raw.problem:
                raise BadInput(f"the report: {raw.problem}")
            event = posted(raw.value, consent=x_thumbwheel_consent, user=x_thumbwheel_user or None)
            batch = [_raw(fact) for fact in facts_of_report(event)]
            receipt = await run_in_threadpool(self._intake.take, batch, trusted=False)
            return answer(receipt)

        return report

    def _take_export(self, body: bytes, kind: str) -> bytes:
        told = [facts_of_span(reported) for reported in _otlp.read_export(body, kind)]
        verdicts = iter(self._take([_raw(fact) for each in told for fact in each.facts]))
        reasons: Counter[str] = Counter()
        refused = cut = 0
        for each in told:
            own = [next(verdicts) for _ in each.facts]
            why = each.refused + [v.reason or "" for v in own if v.status == "rejected"]
            reasons.update(why)
            refused += bool(why)
            cut += each.was_cut
            self.spans["refused" if why else "taken" if own else "left_out"] += 1
        return _otlp.answer(refused, _message(reasons, cut), kind)

    def _take(self, facts: list[Raw]) -> list[Verdict]:
        """Several takes where there are many: should one fail, sending all again adds the rest."""
        return [
            verdict
            for batch in _batches(facts)
            for verdict in self._intake.take(batch, trusted=False).results
        ]


def _raw(fact: Mapping[str, Any]) -> Raw:
    """The fact as if it had been sent, so that it is judged in the same way."""
    try:
        text = json.dumps(fact, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        body = text.encode()
    except ValueError:  # half a character, which an escape carries; or a number that is none
        return read_one(json.dumps(fact, separators=(",", ":")).encode())
    if text.count("{") + text.count("[") > MAX_DEPTH:
        return read_one(body)
    return Raw(text, fact)


def _batches(facts: list[Raw]) -> Iterator[list[Raw]]:
    batch: list[Raw] = []
    size = 0
    for fact in facts:
        if batch and (len(batch) == _MOST_FACTS or size + len(fact.text) > _MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(fact)
        size += len(fact.text)
    if batch:
        yield batch


def _message(reasons: Counter[str], cut: int) -> str:
    """For whoever reads the exporter's log: why spans were rejected, and what else to know."""
    parts = [f"{count} × {reason}" for reason, count in reasons.most_common(_REASONS)]
    if len(reasons) > _REASONS:
        parts.append(f"{len(reasons) - _REASONS} reasons more")
    if cut:
        parts.append(
            f"content of {cut} spans was left out: it needs the attribute thumbwheel.consent"
            " 'code' or 'training' on the span or its resource"
        )
    return "; ".join(parts)


_EXPORT = {
    "requestBody": {
        "required": True,
        "content": {
            _otlp.PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
            _otlp.JSON: {
                "schema": {
                    "type": "object",
                    "properties": {"resourceSpans": {"type": "array", "items": {"type": "object"}}},
                }
            },
        },
    }
}
_EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Taken, but for what partial_success counts.",
        "content": {
            _otlp.PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
            _otlp.JSON: {"schema": {"type": "object"}},
        },
    }
}
_REPORT = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["name", "data"],
                    "properties": {
                        "name": {"type": "string", "minLength": 1, "maxLength": 200},
                        "data": {"type": "object"},
                        "schema": {"type": "string"},
                        "level": {"type": "string", "examples": ["all", "noCode"]},
                        "profileId": {"type": "string"},
                    },
                }
            }
        },
    }
}
