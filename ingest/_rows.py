"""A log record as rows of the store."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ingest.errors import Unreadable
from ingest.events import conversation_of, parse
from ingest.intake import unpack
from ingest.log import Record, position
from ingest.wire import Raw

COLUMNS = (
    "source", "id", "type", "time", "sent_at", "received_at", "clock", "sequence", "subject",
    "user", "organization", "conversation", "turn", "completion", "diff", "experiment", "variant",
    "consent", "position", "body", "raw",
)  # fmt: skip
DEAD_COLUMNS = ("position", "fact", "reason", "raw")
WHOLE_RECORD = 2**32 - 1

_TIME: TypeAdapter[datetime] = TypeAdapter(datetime)
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST = datetime(2262, 1, 1, tzinfo=UTC)
"""What the store's clock column can hold; the body keeps what the client said."""
_TOLERANCE = timedelta(minutes=5)


class Rows(NamedTuple):
    events: list[tuple[Any, ...]]
    dead: list[tuple[Any, ...]]


def rows_of(record: Record) -> Rows:
    """Every fact of the record as a row, or as a dead letter with the reason."""
    where = position(record)
    try:
        packed = unpack(record.value)
    except (Unreadable, ValueError, KeyError, TypeError) as error:
        return Rows([], [(where, WHOLE_RECORD, f"not a record of ours: {error}", record.value)])
    rows = Rows([], [])
    for index, fact in enumerate(packed.facts):
        try:
            # Judged again: in a shared log, others may write too, and one odd field would make the
            # store refuse its whole batch for ever.
            parse(fact.clean)
        except ValidationError as error:
            rows.dead.append((where, index, f"not a fact: {error}", fact.text.encode()))
        else:
            rows.events.append(_row(fact, packed.received_at, packed.sent_at, where))
    return rows


def _row(fact: Raw, received_at: datetime, sent_at: datetime | None, where: str) -> tuple[Any, ...]:
    wire = fact.clean
    exact = wire is fact.value or wire == fact.value
    data = wire.get("data")
    data = data if isinstance(data, Mapping) else {}
    time = _TIME.validate_python(wire["time"]) if wire.get("time") else None
    return (
        wire["source"],
        wire["id"],
        wire["type"],
        _storable(time),
        _storable(sent_at),
        received_at,
        _clock(time, sent_at, received_at),
        int(wire.get("sequence") or 0),
        wire.get("subject") or "",
        wire.get("user") or "",
        wire.get("organization") or "",
        conversation_of(wire),
        _text(data, "turn.id"),
        _text(data, "completion.id"),
        _text(data, "diff.id"),
        _text(data, "experiment"),
        _text(data, "assigned") or _text(data, "variant"),
        wire.get("consent") or "metrics",
        where,
        fact.text if exact else json.dumps(wire, ensure_ascii=False, separators=(",", ":")),
        "" if exact else fact.text,
    )


def _storable(time: datetime | None) -> datetime | None:
    return min(max(time, _EARLIEST), _LATEST) if time else None


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _clock(time: datetime | None, sent_at: datetime | None, received_at: datetime) -> str:
    """Why the client's clock cannot be right, or "". Late is no reason: outboxes wait for days."""
    if time and not _EARLIEST <= time <= _LATEST:
        return "out of range"
    if time and time > received_at + _TOLERANCE:
        return "ahead"
    if sent_at and abs(sent_at - received_at) > _TOLERANCE:
        return "skewed"
    return ""
