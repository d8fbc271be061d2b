"""Log records as rows of the store."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ingest._columns import Named, read_all, read_loosely
from ingest._judge import explain
from ingest._packed import Packed, unpack
from ingest.errors import Unreadable
from ingest.events import parse
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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TOLERANCE = timedelta(minutes=5)
_NO_FACT = (ValueError, KeyError, TypeError, AttributeError)

Row = tuple[Any, ...]
DeadRow = tuple[str, int, str, bytes]


class Rows(NamedTuple):
    """What becomes of records, for two tables."""

    events: list[list[Any]]
    """The values of each of COLUMNS, so that no row is an object for long."""
    facts: list[int]
    """Which fact of its record each row is."""
    dead: list[DeadRow]

    def letter(self, reason: str) -> DeadRow:
        """The first row as a dead letter."""
        named = {name: values[0] for name, values in zip(COLUMNS, self.events, strict=True)}
        raw: str = named["raw"] or named["body"]
        return named["position"], self.facts[0], reason, raw.encode()

    def halves(self) -> tuple["Rows", "Rows"]:
        """The rows, without what is dead already."""
        half = len(self.facts) // 2
        return (
            Rows([values[:half] for values in self.events], self.facts[:half], []),
            Rows([values[half:] for values in self.events], self.facts[half:], []),
        )


class _Context(NamedTuple):
    """What all facts of a record share."""

    latest: datetime
    """What a client's clock may show."""
    received_ticks: int
    sent_ticks: int | None
    skewed: bool
    position: str


def rows_of(records: Sequence[Record]) -> Rows:
    """Every fact of the records as a row, or as a dead letter with the reason."""
    rows = Rows([[] for _ in COLUMNS], [], [])
    for record in records:
        _add(rows, record)
    return rows


def _add(rows: Rows, record: Record) -> None:
    where = position(record)
    try:
        packed = unpack(record.value)
        context = _context(packed, where)
        found = _quick(packed, context)
        facts: Sequence[int] = range(len(found))
        if not found:
            found, facts = _one_by_one(packed, context, rows.dead)
    except (Unreadable, OverflowError, *_NO_FACT) as error:
        reason = f"not a record of ours: {type(error).__name__}"
        rows.dead.append((where, WHOLE_RECORD, reason, record.value))
        return
    for column, values in zip(rows.events, zip(*found, strict=True), strict=False):
        column.extend(values)
    rows.facts.extend(facts)


def _quick(packed: Packed, context: _Context) -> list[Row]:
    """A row for each fact; none if any of them is unusual."""
    if not packed.judged or packed.odd:
        return []
    try:
        facts = zip(read_all(packed.body), packed.texts(), strict=True)
        return [_row(fact, context, text, "") for fact, text in facts]
    except ValueError:
        return []


def _one_by_one(
    packed: Packed, context: _Context, dead: list[DeadRow]
) -> tuple[list[Row], list[int]]:
    """The rows and which facts they are; what is no fact is put to the `dead`. Raises: Unreadable."""
    rows: list[Row] = []
    good: list[int] = []
    for index, fact in enumerate(list(packed.facts())):
        try:
            if not packed.judged:
                # In a shared log others may write too, and one odd field would make the store
                # refuse its whole batch.
                parse(fact.clean)
            rows.append(_row_of(fact, context))
            good.append(index)
        except _NO_FACT as error:
            # Its own words would quote what was sent, and a list of letters shows reasons.
            reason = explain(error) if isinstance(error, ValidationError) else type(error).__name__
            dead.append((context.position, index, f"not a fact: {reason}", fact.text.encode()))
    return rows, good


def _context(packed: Packed, where: str) -> _Context:
    sent_at, received_at = packed.sent_at, packed.received_at
    skewed = sent_at is not None and abs(sent_at - received_at) > _TOLERANCE
    return _Context(received_at + _TOLERANCE, _micros(received_at), _ticks(sent_at), skewed, where)


def _row_of(fact: Raw, context: _Context) -> Row:
    named = read_loosely(fact.clean)
    if fact.plain:
        return _row(named, context, fact.text, "")
    body = json.dumps(fact.clean, ensure_ascii=False, separators=(",", ":"))
    return _row(named, context, body, fact.text)


def _row(fact: Named, context: _Context, body: str, raw: str) -> Row:
    time = _time(fact.time)
    return (
        fact.source,
        fact.id,
        fact.type,
        _ticks(time),
        context.sent_ticks,
        context.received_ticks,
        _clock(time, context),
        fact.sequence or 0,
        *fact.texts(),
        context.position,
        body,
        raw,
    )


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
    if time is None:
        return None
    # The comparison is a tenth of what min and max cost, for each fact.
    return _micros(time if _EARLIEST <= time <= _LATEST else min(max(time, _EARLIEST), _LATEST))


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _clock(time: datetime | None, context: _Context) -> str:
    """Why the client's clock cannot be right, or "". Late is no reason: outboxes wait for days."""
    if time and not _EARLIEST <= time <= _LATEST:
        return "out of range"
    if time and time > context.latest:
        return "ahead"
    return "skewed" if context.skewed else ""
