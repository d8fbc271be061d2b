"""Log records as rows of the store."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ingest._judge import explain
from ingest._packed import Packed, unpack
from ingest.errors import Unreadable
from ingest.events import conversation_of, parse
from ingest.log import Record, position
from ingest.wire import Raw

COLUMNS = (
    "source", "id", "type", "time", "sent_at", "received_at", "clock", "sequence", "subject",
    "user", "organization", "conversation", "turn", "completion", "diff", "experiment", "variant",
    "consent", "position", "body", "raw",
)  # fmt: skip
DEAD_COLUMNS = ("position", "fact", "reason", "raw")
WHOLE_RECORD = 2**32 - 1

_INTEGER: TypeAdapter[int] = TypeAdapter(int)
_TIME: TypeAdapter[datetime] = TypeAdapter(datetime)
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST = datetime(2262, 1, 1, tzinfo=UTC)
"""What the store's clock column can hold; the body keeps what the client said."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TOLERANCE = timedelta(minutes=5)

DeadRow = tuple[str, int, str, bytes]


class Placed(NamedTuple):
    """A row, and which fact of its record it is."""

    row: tuple[Any, ...]
    fact: int

    def dead(self, reason: str) -> DeadRow:
        """The same as a dead letter."""
        named = dict(zip(COLUMNS, self.row, strict=True))
        return named["position"], self.fact, reason, (named["raw"] or named["body"]).encode()


class Rows(NamedTuple):
    events: list[Placed]
    dead: list[DeadRow]


class _Context(NamedTuple):
    """What all facts of a record share."""

    received_at: datetime
    received_ticks: int
    sent_ticks: int | None
    skewed: bool
    position: str


def rows_of(records: Sequence[Record]) -> Rows:
    """Every fact of the records as a row, or as a dead letter with the reason."""
    rows = Rows([], [])
    for record in records:
        _add(rows, record)
    return rows


def _add(rows: Rows, record: Record) -> None:
    where = position(record)
    try:
        packed = unpack(record.value)
        facts = list(packed.facts())
    except (Unreadable, ValueError, KeyError, TypeError) as error:
        reason = f"not a record of ours: {type(error).__name__}"
        rows.dead.append((where, WHOLE_RECORD, reason, record.value))
        return
    context = _context(packed, where)
    for index, fact in enumerate(facts):
        try:
            if not packed.judged:
                # In a shared log others may write too, and one odd field would make the store
                # refuse its whole batch.
                parse(fact.clean)
            rows.events.append(Placed(_row(fact, context), index))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Its own words would quote what was sent, and a list of letters shows reasons.
            reason = explain(error) if isinstance(error, ValidationError) else type(error).__name__
            rows.dead.append((where, index, f"not a fact: {reason}", fact.text.encode()))


def _context(packed: Packed, where: str) -> _Context:
    sent_at, received_at = packed.sent_at, packed.received_at
    skewed = sent_at is not None and abs(sent_at - received_at) > _TOLERANCE
    return _Context(received_at, _micros(received_at), _ticks(sent_at), skewed, where)


def _row(fact: Raw, context: _Context) -> tuple[Any, ...]:
    wire = fact.clean
    given = wire.get("data")
    data: Mapping[str, Any] = given if isinstance(given, dict) else {}
    time = _time(wire.get("time"))
    return (
        _name(wire["source"]),
        _name(wire["id"]),
        _name(wire["type"]),
        _ticks(time),
        context.sent_ticks,
        context.received_ticks,
        _clock(time, context),
        _sequence(wire.get("sequence")),
        _text(wire, "subject"),
        _text(wire, "user"),
        _text(wire, "organization"),
        conversation_of(wire),
        _text(data, "turn.id"),
        _text(data, "completion.id"),
        _text(data, "diff.id"),
        _text(data, "experiment"),
        _text(data, "assigned") or _text(data, "variant"),
        _text(wire, "consent") or "metrics",
        context.position,
        fact.text if fact.plain else json.dumps(wire, ensure_ascii=False, separators=(",", ":")),
        "" if fact.plain else fact.text,
    )


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a name belongs")
    return value


def _sequence(value: object) -> int:
    return value if isinstance(value, int) else _INTEGER.validate_python(value or 0)


def _time(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)  # type: ignore[arg-type] # the next line knows the rest
    except (ValueError, TypeError):
        return _TIME.validate_python(value)
    return time if time.tzinfo else _TIME.validate_python(value)


def _ticks(time: datetime | None) -> int | None:
    """Microseconds since 1970, as the store's columns count, within what they can hold."""
    return _micros(min(max(time, _EARLIEST), _LATEST)) if time else None


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _clock(time: datetime | None, context: _Context) -> str:
    """Why the client's clock cannot be right, or "". Late is no reason: outboxes wait for days."""
    if time and not _EARLIEST <= time <= _LATEST:
        return "out of range"
    if time and time > context.received_at + _TOLERANCE:
        return "ahead"
    return "skewed" if context.skewed else ""
