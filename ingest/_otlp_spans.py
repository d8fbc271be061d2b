"""Spans as facts. The same span gives the same facts, however often and in whatever company."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ingest._otlp import Attributes, Reported, attributes_of
from ingest._otlp_content import Happening, Held, with_content, without_content
from ingest.events import CONSENT_LEVELS, SCHEMA_URI

_EVALUATION = "gen_ai.evaluation.result"
_GENERATES = ("chat", "generate_content", "text_completion")
_OLDER = {
    "gen_ai.system": "gen_ai.provider.name",
    "gen_ai.usage.prompt_tokens": "gen_ai.usage.input_tokens",
    "gen_ai.usage.completion_tokens": "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_BESIDE = ("error.type", "server.address", "server.port")
_KINDS = {"execute_tool": "tool.called"} | dict.fromkeys(_GENERATES, "inference.completed")
_OTHER = "span.ended"


@dataclass
class Told:
    """What one span became."""

    facts: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why something of it is no fact."""
    was_cut: bool = False
    """Whether content was left out for want of consent."""


def facts_of(reported: Reported) -> Told:
    """At most one fact of the span itself, and one of each evaluation among its events.

    A span without any attribute `gen_ai.*` is none of ours and gives none.
    """
    if reported.span is None:
        return Told(refused=["a span is not in OTLP's form"])
    return _Reading(reported.span, reported.resource).told()


class _Reading:
    def __init__(self, span: Span, resource: Attributes) -> None:
        self._span = span
        self._resource = resource
        self._all = attributes_of(span.attributes)
        self._events = [
            Happening(event.name, attributes_of(event.attributes), event.time_unix_nano)
            for event in span.events
        ]
        self._service = str(resource.get("service.name") or "unknown")
        self._trace, self._id = self._ids()
        self._own = _renamed(_own(self._all))
        self._kind = _kind(self._own) if self._own else None
        self._conversation = self._named("gen_ai.conversation.id", "session.id")
        consent = self._named("thumbwheel.consent")
        self._consent = consent if consent in CONSENT_LEVELS else "metrics"

    def told(self) -> Told:
        told = Told()
        if self._kind:
            held = self._held(self._own, self._events)
            told.facts.append(self._fact(self._kind, self._key, self._end, self._data(held)))
            told.was_cut = held.was_cut
        for event in self._events:
            if event.name == _EVALUATION:
                if not event.attributes.get("gen_ai.evaluation.name"):
                    told.refused.append(f"{_EVALUATION}: has no gen_ai.evaluation.name")
                    continue
                held = self._held(_own(event.attributes), ())
                told.facts.append(self._evaluation(event, held))
                told.was_cut |= held.was_cut
        return told

    def _held(self, attributes: Attributes, events: Any) -> Held:  # noqa: ANN401
        hold = without_content if self._consent == "metrics" else with_content
        return hold(attributes, events)

    @property
    def _key(self) -> str:
        return f"{self._trace}-{self._id}"

    @property
    def _end(self) -> int:
        return self._span.end_time_unix_nano or self._span.start_time_unix_nano

    @property
    def _completion(self) -> str | None:
        """Of a generation. What a provider calls its answer is no key: such ids repeat."""
        given = self._all.get("thumbwheel.completion.id")
        if isinstance(given, str) and given:
            return given
        return self._key if self._kind == "inference.completed" else None

    def _ids(self) -> tuple[str, str]:
        """Of trace and span; where one is not valid, it comes from what the span says.

        So a span without a trace is the same fact however often it is sent.
        """
        trace, span = self._span.trace_id, self._span.span_id
        has_trace = len(trace) == 16 and any(trace)
        has_span = len(span) == 8 and any(span)
        if has_trace and has_span:
            return trace.hex(), span.hex()
        said = self._service.encode() + self._span.SerializeToString(deterministic=True)
        made = hashlib.blake2b(said, digest_size=16).hexdigest()
        return trace.hex() if has_trace else made, span.hex() if has_span else made[:16]

    def _named(self, *names: str) -> str | None:
        for holder in (self._all, self._resource):
            for name in names:
                if holder.get(name) not in (None, ""):
                    return str(holder[name])
        return None

    def _data(self, held: Held) -> dict[str, Any]:
        span = self._span
        data = held.attributes | {n: self._all[n] for n in _BESIDE if n in self._all}
        reasons = data.get("gen_ai.response.finish_reasons")
        if isinstance(reasons, str):
            data["gen_ai.response.finish_reasons"] = [reasons]
        begun = span.start_time_unix_nano
        took = span.end_time_unix_nano - begun
        data |= {
            "completion.id": self._completion,
            "duration_s": took / 1e9 if begun and took >= 0 else None,
            "span.parent_id": span.parent_span_id.hex() or None,
        }
        failed = span.status.code == Status.STATUS_CODE_ERROR
        if failed:
            data.setdefault("error.type", self._exception())
        if self._consent != "metrics":
            data |= {"span.name": span.name, "span.status_message": span.status.message or None}
        if self._kind != "inference.completed":
            data["outcome"] = "error" if failed or data.get("error.type") else "ok"
        return data

    def _exception(self) -> str:
        kinds = [event.attributes.get("exception.type") for event in self._events]
        return next((str(kind) for kind in kinds if kind), "_OTHER")

    def _evaluation(self, event: Happening, held: Held) -> dict[str, Any]:
        said = event.attributes
        rater = str(said.get("thumbwheel.rater") or self._service)
        name, response = str(said["gen_ai.evaluation.name"]), said.get("gen_ai.response.id")
        data = held.attributes | {
            "target": self._target(response),
            "gen_ai.evaluation.name": name,
            "rater": rater,
            "rater_source": "model",
        }
        score = data.pop("gen_ai.evaluation.score.value", None)
        if isinstance(score, int | float):
            data["gen_ai.evaluation.score.value"] = float(score)
        which = hashlib.blake2b(repr((name, rater, response)).encode(), digest_size=8).hexdigest()
        return self._fact("feedback.submitted", f"{self._key}-{which}", event.unix_nano, data)

    def _target(self, response: object) -> dict[str, str]:
        """The span's own answer, unless the evaluation names another."""
        own = self._own.get("gen_ai.response.id")
        of_another = bool(response) and response != own
        if self._completion and not of_another:
            return {"kind": "completion", "id": self._completion}
        if response:
            return {"kind": "completion", "id": str(response)}
        return {"kind": "turn", "id": self._trace}

    def _fact(
        self, kind: str, identity: str, unix_nano: int, data: dict[str, Any]
    ) -> dict[str, Any]:
        data |= {"turn.id": self._trace, "gen_ai.conversation.id": self._conversation}
        attributes = {
            "specversion": "1.0",
            "id": identity,
            "source": "/otlp/" + quote(self._service, safe="@+ "),
            "type": f"thumbwheel.{kind}.v1",
            "time": _time(unix_nano),
            "dataschema": SCHEMA_URI,
            "traceparent": f"00-{self._trace}-{self._id}-{self._span.flags & 0xFF:02x}",
            "consent": self._consent,
            "partitionkey": self._conversation,
            "user": self._named("user.id", "enduser.id"),
            "data": {name: value for name, value in data.items() if value is not None},
        }
        return {name: value for name, value in attributes.items() if value is not None}


def _own(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name.startswith("gen_ai.")}


def _renamed(attributes: dict[str, Any]) -> dict[str, Any]:
    """Older names are the present ones, unless those are there too."""
    for older, name in _OLDER.items():
        if older in attributes and name not in attributes:
            attributes[name] = attributes.pop(older)
    return attributes


def _kind(attributes: Mapping[str, Any]) -> str:
    """What the span is. Agents repeat the usage of their generations: they are never one."""
    operation = attributes.get("gen_ai.operation.name")
    if operation is not None:
        return _KINDS.get(operation, _OTHER) if isinstance(operation, str) else _OTHER
    used = any(name.startswith("gen_ai.usage.") for name in attributes)
    named = "gen_ai.provider.name" in attributes and "gen_ai.request.model" in attributes
    return (
        "inference.completed"
        if used and named and "gen_ai.agent.name" not in attributes
        else _OTHER
    )


def _time(unix_nano: int) -> str | None:
    """RFC 3339 to the microsecond."""
    if not unix_nano:
        return None
    seconds, nano = divmod(unix_nano, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=nano // 1000).isoformat()
