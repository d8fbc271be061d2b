"""Whether one event may be taken, and if not, why: the field and the fix, never what was sent."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from ingest._known import FactId
from ingest.events import SERVER_TYPES, content_in, parse
from ingest.wire import Raw

MAX_EVENT_BYTES = 1 << 20

_IDENTITY = ("id", "source", "type", "user", "organization", "partitionkey", "subject")

Status = Literal["accepted", "duplicate", "rejected"]


class Verdict(NamedTuple):
    id: str | None
    status: Status
    reason: str | None = None
    kind: str = ""
    """Of a rejection, for counting: json, identity, field, consent, forged, content or size."""


def judge(raw: Raw, *, trusted: bool) -> FactId | Verdict:
    """The identity of a fact that may be taken, or why it may not."""
    if raw.problem:
        return _rejected(raw, "json", raw.problem)
    if not raw.plain and (problem := _identity_problem(raw)):
        return _rejected(raw, "identity", problem)
    wire = raw.clean
    try:
        event = parse(wire)
    except ValidationError as error:
        return _rejected(raw, "field", explain(error))
    if problem := _consent_problem(wire):
        return _rejected(raw, "consent", problem)
    if not trusted and wire["type"] in SERVER_TYPES:
        # Exposures and completions decide experiments: an editor's key must not write them.
        fix = f"only a server mints {wire['type']}; replaying it needs a key with scope 'admin'"
        return _rejected(raw, "forged", f"type: {fix}")
    return FactId(event.source, event.id)


def judge_kept(raw: Raw, fact: FactId) -> Verdict | None:
    """Why what would be kept of a fact may not be, or None."""
    if raw.problem:
        # It may name a field that holds half a character.
        reason = raw.problem.encode("utf-8", "replace").decode()
        return Verdict(fact.id, "rejected", reason, "content")
    if len(raw.text) > MAX_EVENT_BYTES // 4 and len(raw.text.encode()) > MAX_EVENT_BYTES:
        fix = f"larger than {MAX_EVENT_BYTES} bytes; split the event or shorten its content"
        return Verdict(fact.id, "rejected", fix, "size")
    return None


def _rejected(raw: Raw, kind: str, reason: str) -> Verdict:
    named = raw.clean.get("id") if isinstance(raw.clean, dict) else None
    return Verdict(named if isinstance(named, str) else None, "rejected", reason, kind)


def _identity_problem(raw: Raw) -> str | None:
    """Names that join facts must survive every engine; content may hold anything."""
    if not isinstance(raw.value, dict):
        return None
    for name in _IDENTITY:
        if raw.value.get(name) != raw.clean.get(name):
            return f"{name}: holds half a character (a lone surrogate)"
    return None


def _consent_problem(wire: Mapping[str, Any]) -> str | None:
    content = content_in(wire.get("data")) if wire.get("consent", "metrics") == "metrics" else []
    if not content:
        return None
    return (
        f"data.{content[0]}: content needs consent 'code' or 'training', this event has 'metrics'"
    )


def explain(error: ValidationError) -> str:
    """The wrong fields in plain words, at most three."""
    problems = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
        path = ".".join(str(part) for part in problem["loc"] if "thumbwheel." not in str(part))
        problems.append(f"{path or 'event'}: {problem['msg'].lower()}")
    return "; ".join(problems)
