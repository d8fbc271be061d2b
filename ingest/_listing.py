"""Facts in the order in which the log took them, page by page, without missing one.

Clocks jump, and a fact may become queryable long after it was received, so no time can tell what a
reader has seen. The log's positions can: the drain stores each partition in its own order, so what
is queryable of a partition is always its beginning, and a cursor holds how far it was read.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter

from ingest._cursor import read, written
from ingest.store import Store

END = "end"
MAX_PAGE_BYTES = 8 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_NEXT = """
WITH
    splitByChar('/', position) AS parts,
    concat(parts[1], '/', parts[2]) AS place,
    toUInt64OrZero(parts[3]) AS offset,
    sipHash64(source, id) AS tie,
    indexOf({places:Array(String)}, place) AS known
SELECT source, id, position, place, offset, sequence, tie
FROM events
WHERE (
    known = 0 OR (offset, sequence, tie) >
    ({offsets:Array(UInt64)}[known], {sequences:Array(UInt64)}[known], {ties:Array(UInt64)}[known])
)
AND ({type:String} = '' OR type = {type:String})
AND ({user:String} = '' OR user = {user:String})
AND ({conversation:String} = '' OR conversation = {conversation:String})
AND received_at >= {since:DateTime64(6, 'UTC')}
ORDER BY offset, place, sequence, tie
LIMIT {limit:UInt32}
"""
_SIZES = """
SELECT source, id, position, length(body) + length(raw) AS bytes FROM events
WHERE (source, id) IN arrayZip({sources:Array(String)}, {ids:Array(String)})
"""
_TEXTS = """
SELECT source, id, position, received_at, sent_at, clock, if(raw = '', body, raw) AS text
FROM events WHERE (source, id) IN arrayZip({sources:Array(String)}, {ids:Array(String)})
"""
_ENDS = """
WITH splitByChar('/', position) AS parts
SELECT concat(parts[1], '/', parts[2]) AS place, max(toUInt64OrZero(parts[3])) AS offset
FROM events GROUP BY place
"""


_LAST = 2**64 - 1
_UInt64 = Annotated[int, Field(ge=0, le=_LAST)]


class _Seen(NamedTuple):
    """The last fact that was read of one partition; facts of one record are told apart."""

    offset: _UInt64
    sequence: _UInt64
    tie: _UInt64


_CURSOR: TypeAdapter[dict[str, _Seen]] = TypeAdapter(dict[str, _Seen])


@dataclass(frozen=True)
class Wanted:
    """Which facts; an empty text stands for any."""

    type: str = ""
    user: str = ""
    conversation: str = ""
    since: datetime = _EPOCH
    """By time of receipt."""


class Page(NamedTuple):
    facts: list[str]
    """Each as JSON, with when and where it was received."""
    after: str
    """The cursor of the next page."""
    more: bool
    """Whether that page holds something already."""


@dataclass(frozen=True)
class Listing:
    store: Store

    def page(self, wanted: Wanted, *, after: str, limit: int) -> Page:
        """The facts that follow a cursor; "" is before the first, END after the last of now.

        At most `limit`, and fewer where they are large; values kept as blobs are references here.
        A fact that was sent twice may come twice, until the store has merged its rows.

        Raises: BadInput for a cursor that is none, Unavailable.
        """
        if after == END:
            return Page([], self._end(), more=False)
        seen = read(after, _CURSOR) if after else {}
        found = self.store.rows(
            _NEXT,
            places=list(seen),
            offsets=[each.offset for each in seen.values()],
            sequences=[each.sequence for each in seen.values()],
            ties=[each.tie for each in seen.values()],
            type=wanted.type,
            user=wanted.user,
            conversation=wanted.conversation,
            since=wanted.since,
            limit=limit + 1,
        )
        shown = self._what_fits(found[:limit])
        for row in shown:
            seen[row["place"]] = _Seen(row["offset"], row["sequence"], row["tie"])
        return Page(self._texts(shown), written(seen, _CURSOR), more=len(found) > len(shown))

    def _end(self) -> str:
        rows = self.store.rows(_ENDS)
        ends = {row["place"]: _Seen(row["offset"], _LAST, _LAST) for row in rows}
        return written(ends, _CURSOR)

    def _what_fits(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        if not rows:
            return rows
        sizes = {_row_key(row): row["bytes"] for row in self.store.rows(_SIZES, **_ids(rows))}
        left = MAX_PAGE_BYTES
        for count, row in enumerate(rows):
            left -= sizes.get(_row_key(row), 0)
            if left < 0:
                return rows[: max(count, 1)]
        return rows

    def _texts(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        if not rows:
            return []
        texts = {_row_key(row): as_stored(row) for row in self.store.rows(_TEXTS, **_ids(rows))}
        # One that was merged away or erased since is there under its twin's position, or no more.
        return [texts[key] for row in rows if (key := _row_key(row)) in texts]


def as_stored(row: dict[str, Any]) -> str:
    """The event's own text with when and where it was received; re-encoding could change it."""
    extra = {
        "received_at": _utc(row["received_at"]),
        "sent_at": _utc(row["sent_at"]),
        "clock": row["clock"] or None,
        "position": row["position"],
    }
    return str(row["text"]).rstrip()[:-1] + "," + json.dumps(extra)[1:]


def _utc(time: datetime | None) -> str | None:
    return time.replace(tzinfo=UTC).isoformat() if time else None


def _row_key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["source"], row["id"], row["position"]


def _ids(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    return {"sources": [row["source"] for row in rows], "ids": [row["id"] for row in rows]}
