"""The value of one log record: facts as their own texts, and what the server knows of them."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from ingest.wire import Raw, read_one, split_batch


class Packed(NamedTuple):
    """What a record says; `facts` are read anew when it does not say how long each is."""

    received_at: datetime
    sent_at: datetime | None
    body: str
    lengths: Sequence[int]
    odd: frozenset[int]

    def facts(self) -> Iterator[Raw]:
        """Raises: Unreadable for a record that others wrote badly."""
        if not self.lengths:
            yield from split_batch(self.body.encode())
            return
        for index, text in enumerate(self.texts()):
            yield _odd(text) if index in self.odd else _plain(text)

    def texts(self) -> Iterator[str]:
        """Of facts whose lengths are known."""
        at = 1
        for length in self.lengths:
            yield self.body[at : at + length]
            at += length + 1

    @property
    def judged(self) -> bool:
        """Every fact was judged at the door, and would be found good again."""
        return bool(self.lengths)


def pack(facts: Sequence[Raw], received_at: datetime, sent_at: datetime | None) -> bytes:
    """The value of one log record: the facts' own texts, with when they were sent and received."""
    head = {
        "received_at": received_at.isoformat(),
        "sent_at": sent_at.isoformat() if sent_at else None,
        "lengths": [len(raw.text) for raw in facts],
        "odd": [index for index, raw in enumerate(facts) if not raw.plain],
    }
    return f"{json.dumps(head)}\n[{','.join(raw.text for raw in facts)}]".encode()


def unpack(value: bytes) -> Packed:
    """The inverse of `pack`. Raises: ValueError, KeyError or TypeError for other bytes."""
    head, _, body = value.decode().partition("\n")
    try:
        said: dict[str, Any] = json.loads(head)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    lengths = said.get("lengths", ())
    if sum(lengths) + len(lengths) + 1 != len(body):
        lengths = ()  # not ours: it is read like what a stranger sends
    return Packed(
        _aware(said["received_at"]),
        _aware(said["sent_at"]) if said["sent_at"] else None,
        body,
        lengths,
        frozenset(said.get("odd", ())),
    )


def _aware(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without its zone")
    return time


def _plain(text: str) -> Raw:
    try:
        return Raw(text, orjson.loads(text))
    except orjson.JSONDecodeError:  # a number beyond what it reads
        return _odd(text)


def _odd(text: str) -> Raw:
    return read_one(text.encode())
