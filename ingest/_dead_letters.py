"""What the drain could not read as a fact: listed, shown, and sent through the one door again."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple
from uuid import uuid4

from pydantic import AwareDatetime, Field, TypeAdapter

from ingest._cursor import read, written
from ingest._rows import WHOLE_RECORD
from ingest.errors import NotFound, TooLarge, Unreadable
from ingest.intake import Intake, Verdict
from ingest.store import Store
from ingest.wire import Raw, read_one, split_batch

MAX_CHUNK_BYTES = 8 << 20
MAX_CHUNK = 500
_WHOLE = "whole"
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2262, 1, 1, tzinfo=UTC)
_ID = re.compile(r"([A-Za-z0-9._-]{1,249}):([0-9]{1,10}):([0-9]{1,20}):([0-9]{1,10}|whole)")

_NEWEST = """
SELECT position, fact, received_at, reason, size, status, verdict, replayed_at
FROM dead_letter_states
WHERE (received_at, position, fact) <
    ({time:DateTime64(6, 'UTC')}, {position:String}, {fact:UInt32})
AND ({status:String} = '' OR status = {status:String})
ORDER BY received_at DESC, position DESC, fact DESC
LIMIT {limit:UInt32}
"""
_ONE = """
SELECT position, fact, received_at, reason, size, status, verdict, replayed_at, raw
FROM dead_letter_states WHERE position = {position:String} AND fact = {fact:UInt32}
"""
_WAITING = """
SELECT position, fact, received_at, size FROM dead_letter_states
WHERE status = 'waiting' AND (received_at, position, fact) >
    ({time:DateTime64(6, 'UTC')}, {position:String}, {fact:UInt32})
ORDER BY received_at, position, fact
LIMIT {limit:UInt32}
"""
_SOME = """
SELECT position, fact, raw FROM dead_letter_states
WHERE (position, fact) IN arrayZip({positions:Array(String)}, {facts:Array(UInt32)})
"""
_COUNTS = "SELECT status, count() AS n FROM dead_letter_states GROUP BY status"


class _Place(NamedTuple):
    """Where a listing goes on."""

    time: Annotated[AwareDatetime, Field(ge=_EARLIEST, le=_LATEST)]
    position: str
    fact: Annotated[int, Field(ge=0, le=WHOLE_RECORD)]


_FIRST = _Place(_EARLIEST, "", 0)
_LAST = _Place(_LATEST, "", 0)
_PLACE: TypeAdapter[_Place] = TypeAdapter(_Place)


class _Letter(NamedTuple):
    position: str
    fact: int
    raw: bytes

    def facts(self) -> list[Raw]:
        """What it holds, as a batch: a whole record may be one event, or an array of them.

        Raises: Unreadable.
        """
        if self.fact == WHOLE_RECORD and self.raw.lstrip()[:1] == b"[":
            return split_batch(self.raw)
        return [read_one(self.raw)]


@dataclass(frozen=True)
class Outcome:
    """What became of one letter. `rejected` waits on, with the new reason."""

    id: str
    verdict: Literal["accepted", "duplicate", "rejected"]
    reason: str = ""


@dataclass(frozen=True)
class DeadLetters:
    store: Store
    intake: Intake

    def newest(
        self, *, limit: int, after: str = "", status: str = ""
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Letters without their bytes, newest first, and the cursor of the next page, if any.

        Raises: BadInput for a cursor that is none, Unavailable.
        """
        place = read(after, _PLACE) if after else _LAST
        rows = self.store.rows(_NEWEST, **place._asdict(), status=status, limit=limit + 1)
        following = _cursor(rows[limit - 1]) if len(rows) > limit else None
        return [_public(row) for row in rows[:limit]], following

    def show(self, id: str) -> dict[str, Any]:
        """One letter with its bytes: as text where they are UTF-8, else in base64.

        Raises: NotFound, Unavailable.
        """
        row = self._one(id)
        encoded = row.pop("raw")
        try:
            raw, encoding = base64.b64decode(encoded).decode(), "utf-8"
        except UnicodeDecodeError:
            raw, encoding = encoded, "base64"
        return _public(row) | {"encoding": encoding, "raw": raw}

    def replay(self, id: str) -> Outcome:
        """The letter went through the door again; the store knows what became of it.

        One that is resolved is left alone. Doing it again is safe, also after a crash half-way: what
        was taken is a duplicate then.

        Raises: NotFound, Unavailable.
        """
        row = self._one(id)
        if row["status"] == "resolved":
            return Outcome(id, row["verdict"])
        (outcome,) = self._send([_letter(row)])
        return outcome

    def replay_some(self, after: str = "") -> tuple[list[Outcome], str | None]:
        """A chunk of the waiting letters, oldest first; the cursor of the next, None after the last.

        Raises: BadInput for a cursor that is none, Unavailable.
        """
        place = read(after, _PLACE) if after else _FIRST
        rows = self.store.rows(_WAITING, **place._asdict(), limit=MAX_CHUNK + 1)
        chunk = _what_fits(rows[:MAX_CHUNK])
        if not chunk:
            return [], None
        found = self.store.rows(
            _SOME,
            positions=[row["position"] for row in chunk],
            facts=[row["fact"] for row in chunk],
        )
        letters = {(row["position"], row["fact"]): _letter(row) for row in found}
        keys = [(row["position"], row["fact"]) for row in chunk]
        outcomes = self._send([letters[key] for key in keys if key in letters])
        return outcomes, _cursor(chunk[-1]) if len(chunk) < len(rows) else None

    def counts(self) -> dict[str, int]:
        """Letters by status. Raises: Unavailable."""
        found = {row["status"]: row["n"] for row in self.store.rows(_COUNTS)}
        return {status: found.get(status, 0) for status in ("waiting", "resolved")}

    def _one(self, id: str) -> dict[str, Any]:
        named = _ID.fullmatch(id)
        rows = self.store.rows(_ONE, **_key_of(named)) if named else []
        if not rows:
            raise NotFound(f"no dead letter {id[:300]}; `thumbwheel dead-letters list` shows them")
        return rows[0]

    def _send(self, letters: Sequence[_Letter]) -> list[Outcome]:
        """Taken first, marked after: a crash between them repeats what is safe to repeat."""
        at = datetime.now(UTC)
        outcomes = self._take(letters)
        self.store.insert(
            "dead_letter_replays",
            ("position", "fact", "at", "verdict", "reason"),
            [
                (letter.position, letter.fact, at, outcome.verdict, outcome.reason)
                for letter, outcome in zip(letters, outcomes, strict=True)
            ],
            token=uuid4().hex,
        )
        return outcomes

    def _take(self, letters: Sequence[_Letter]) -> list[Outcome]:
        """All at once, for one write of the log; alone where together they are too large for it."""
        contents = [_facts_or_reason(letter) for letter in letters]
        batch = [raw for facts in contents if not isinstance(facts, str) for raw in facts]
        try:
            verdicts = iter(self.intake.take(batch, remembered=False).results)
        except TooLarge as error:
            if len(letters) == 1:
                return [Outcome(_id(*letters[0][:2]), "rejected", error.detail)]
            return [outcome for letter in letters for outcome in self._take([letter])]
        return [
            Outcome(_id(letter.position, letter.fact), "rejected", facts)
            if isinstance(facts, str)
            else _outcome(_id(letter.position, letter.fact), [next(verdicts) for _ in facts])
            for letter, facts in zip(letters, contents, strict=True)
        ]


def _facts_or_reason(letter: _Letter) -> list[Raw] | str:
    try:
        return letter.facts() or "holds no event"
    except Unreadable as error:
        return error.detail


def _outcome(id: str, verdicts: Sequence[Verdict]) -> Outcome:
    refused = [verdict.reason or "" for verdict in verdicts if verdict.status == "rejected"]
    if refused:
        of = f"{len(refused)} of {len(verdicts)} events: " if len(verdicts) > 1 else ""
        return Outcome(id, "rejected", of + refused[0])
    taken = any(verdict.status == "accepted" for verdict in verdicts)
    return Outcome(id, "accepted" if taken else "duplicate")


def _what_fits(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    left = MAX_CHUNK_BYTES
    for count, row in enumerate(rows):
        left -= row["size"]
        if left < 0:
            return rows[: max(count, 1)]
    return rows


def _letter(row: dict[str, Any]) -> _Letter:
    return _Letter(row["position"], row["fact"], base64.b64decode(row["raw"]))


def _public(row: dict[str, Any]) -> dict[str, Any]:
    replayed = row["replayed_at"]
    return {
        "id": _id(row["position"], row["fact"]),
        "status": row["status"],
        "reason": row["reason"],
        "position": row["position"],
        "fact": None if row["fact"] == WHOLE_RECORD else row["fact"],
        "size": row["size"],
        "received_at": row["received_at"].replace(tzinfo=UTC).isoformat(),
        "replayed_at": replayed.replace(tzinfo=UTC).isoformat() if replayed else None,
        "verdict": row["verdict"] or None,
    }


def _id(position: str, fact: int) -> str:
    return f"{position.replace('/', ':')}:{_WHOLE if fact == WHOLE_RECORD else fact}"


def _key_of(named: re.Match[str]) -> dict[str, Any]:
    topic, partition, offset, fact = named.groups()
    index = WHOLE_RECORD if fact == _WHOLE else min(int(fact), WHOLE_RECORD)
    return {"position": f"{topic}/{partition}/{offset}", "fact": index}


def _cursor(row: dict[str, Any]) -> str:
    return written(
        _Place(row["received_at"].replace(tzinfo=UTC), row["position"], row["fact"]), _PLACE
    )
