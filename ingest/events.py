"""Facts: CloudEvents 1.0 with typed `data`, one discriminated union for all of them.

The wire form is kept whole all the way. Types and minor versions we do not know are taken as
they are (`UnknownEvent`): a newer editor must never lose its facts to an older server.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue

from ingest import _diff_facts as diff
from ingest import _editor_facts as editor
from ingest import _server_facts as server
from ingest._facts import CONSENT_LEVELS, Consent, Data, content_names

__all__ = [
    "CONSENT_LEVELS",
    "CONTENT_FIELDS",
    "DATA_TYPES",
    "KNOWN_TYPES",
    "SCHEMA_URI",
    "SERVER_TYPES",
    "Consent",
    "Envelope",
    "Event",
    "Fact",
    "UnknownEvent",
    "content_in",
    "conversation_of",
    "json_schema",
    "key_of",
    "parse",
]

SCHEMA_URI = "urn:thumbwheel:events:1.0"
_SCHEMA_VERSION = re.compile(r"[:/](\d{1,9})\.(\d{1,9})$")
_MINOR = 0

_TypeName = TypeVar("_TypeName", bound=str)
_Body = TypeVar("_Body", bound=Data)
_Name = Annotated[str, Field(min_length=1, max_length=800)]


class Envelope(BaseModel):
    """What every fact carries around its `data`; further CloudEvents attributes are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    specversion: Literal["1.0"]
    id: _Name
    """Made when the thing happened; a retry carries the same one."""
    source: _Name
    """`/ext/<install>/<session>`. (source, id) is what makes a fact the same fact."""
    time: AwareDatetime | None = None
    """The client's wall clock when it happened; kept as it is, flagged when it cannot be right."""
    subject: str | None = None
    dataschema: str | None = None
    datacontenttype: str | None = None
    sequence: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Per session, from 1; orders facts that share a time."""
    monoms: Annotated[float, Field(ge=0)] | None = None
    """Milliseconds since session start on a monotonic clock."""
    traceparent: str | None = None
    consent: Consent = "metrics"
    """As in force when the thing happened."""
    consentver: str | None = None
    assignid: str | None = None
    partitionkey: str | None = None
    user: str | None = None
    organization: str | None = None


class Fact(Envelope, Generic[_TypeName, _Body]):
    type: _TypeName
    data: _Body


class UnknownEvent(Envelope):
    """A type, or a minor version of a type, that this server does not know; stored as it is."""

    type: _Name
    data: Any = None


Event = Annotated[
    Fact[Literal["thumbwheel.session.started.v1"], editor.SessionStarted]
    | Fact[Literal["thumbwheel.session.ended.v1"], editor.SessionEnded]
    | Fact[Literal["thumbwheel.consent.changed.v1"], editor.ConsentChanged]
    | Fact[Literal["thumbwheel.turn.submitted.v1"], editor.TurnSubmitted]
    | Fact[Literal["thumbwheel.inference.completed.v1"], editor.InferenceCompleted]
    | Fact[Literal["thumbwheel.turn.completed.v1"], editor.TurnEnded]
    | Fact[Literal["thumbwheel.turn.cancelled.v1"], editor.TurnEnded]
    | Fact[Literal["thumbwheel.tool.called.v1"], editor.ToolCalled]
    | Fact[Literal["thumbwheel.diff.proposed.v1"], diff.DiffProposed]
    | Fact[Literal["thumbwheel.diff.shown.v1"], diff.DiffShown]
    | Fact[Literal["thumbwheel.diff.decided.v1"], diff.DiffDecided]
    | Fact[Literal["thumbwheel.diff.first_edit.v1"], diff.DiffFirstEdit]
    | Fact[Literal["thumbwheel.diff.survival.v1"], diff.DiffSurvival]
    | Fact[Literal["thumbwheel.diff.reverted.v1"], diff.DiffReverted]
    | Fact[Literal["thumbwheel.diff.committed.v1"], diff.DiffCommitted]
    | Fact[Literal["thumbwheel.completion.shown.v1"], editor.CompletionSeen]
    | Fact[Literal["thumbwheel.completion.accepted.v1"], editor.CompletionSeen]
    | Fact[Literal["thumbwheel.completion.partially_accepted.v1"], editor.CompletionSeen]
    | Fact[Literal["thumbwheel.completion.ended.v1"], editor.CompletionSeen]
    | Fact[Literal["thumbwheel.completion.finished.v1"], server.CompletionFinished]
    | Fact[Literal["thumbwheel.answer.action.v1"], editor.AnswerAction]
    | Fact[Literal["thumbwheel.feedback.submitted.v1"], editor.FeedbackSubmitted]
    | Fact[Literal["thumbwheel.feedback.withdrawn.v1"], editor.FeedbackWithdrawn]
    | Fact[Literal["thumbwheel.feedback.shown.v1"], editor.FeedbackShown]
    | Fact[Literal["thumbwheel.feedback.asked.v1"], server.FeedbackAsked]
    | Fact[Literal["thumbwheel.experiment.exposed.v1"], server.ExperimentExposed]
    | Fact[Literal["thumbwheel.report.filed.v1"], editor.ReportFiled]
    | Fact[Literal["thumbwheel.privacy.redacted.v1"], editor.PrivacyRedacted]
    | Fact[Literal["thumbwheel.queue.dropped.v1"], editor.QueueDropped]
    | Fact[Literal["thumbwheel.client.error.v1"], editor.ClientError]
    | Fact[Literal["thumbwheel.import.recorded.v1"], server.ImportRecorded],
    Field(discriminator="type"),
]
_EVENT: TypeAdapter[Envelope] = TypeAdapter(Event)


def json_schema() -> JsonSchemaValue:
    """JSON Schema of all known facts by their wire names; the editor's types come from it."""
    schema = _EVENT.json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_URI} | schema


# Read off the types: to make the JSON Schema takes a fifth of the server's start.
CONTENT_FIELDS: frozenset[str] = frozenset(content_names(Event))
DATA_TYPES: Mapping[str, type[Data]] = {
    name: fact.model_fields["data"].annotation
    for fact in get_args(get_args(Event)[0])
    for name in get_args(fact.model_fields["type"].annotation)
}
KNOWN_TYPES: frozenset[str] = frozenset(DATA_TYPES)
SERVER_TYPES: frozenset[str] = frozenset(
    {
        "thumbwheel.completion.finished.v1",
        "thumbwheel.experiment.exposed.v1",
        "thumbwheel.feedback.asked.v1",
    }
)


def parse(wire: object) -> Envelope:
    """The fact that a decoded JSON value is.

    Raises: pydantic.ValidationError naming the fields that are wrong.
    """
    kind = wire.get("type") if isinstance(wire, dict) else None
    if not isinstance(wire, dict) or not isinstance(kind, str) or kind not in KNOWN_TYPES:
        return UnknownEvent.model_validate(wire)
    try:
        return _EVENT.validate_python(wire)
    except ValidationError:
        if _is_newer_minor(wire.get("dataschema")):
            return UnknownEvent.model_validate(wire)
        raise


def _is_newer_minor(dataschema: object) -> bool:
    version = _SCHEMA_VERSION.search(dataschema) if isinstance(dataschema, str) else None
    return version is not None and int(version[2]) > _MINOR


def content_in(data: object) -> list[str]:
    """Names of filled content fields in a fact's `data`, also inside its lists."""
    if not isinstance(data, Mapping):
        return []
    found = [name for name in data if name in CONTENT_FIELDS and data[name] not in (None, "", [])]
    for value in data.values():
        if isinstance(value, list):
            found += [name for item in value for name in content_in(item)]
    return found


def conversation_of(wire: Mapping[str, Any]) -> str:
    """The conversation a fact belongs to, or "" where it names none."""
    named = wire.get("partitionkey")
    if not named:
        data = wire.get("data")
        named = data.get("gen_ai.conversation.id") if isinstance(data, dict) else None
    return named if isinstance(named, str) else str(named or "")


def key_of(wire: Mapping[str, Any]) -> str:
    """What keeps facts in order relative to each other: the conversation, else the source."""
    return conversation_of(wire) or str(wire["source"])
