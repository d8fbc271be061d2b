"""From log to store: offsets are committed after the store has taken the batch."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from ingest._packed import unpack
from ingest._rows import COLUMNS, DEAD_COLUMNS, DeadRow, Rows, rows_of
from ingest.errors import Refused, Unavailable
from ingest.log import Consumer, Record

log = logging.getLogger(__name__)

GROUP = "store"
MAX_RECORDS = 2_000
MAX_BYTES = 32 << 20
SMALL_ROWS = 1_000
LINGER_S = 0.3
"""Between small batches: the store prefers few inserts, a reader of reports can wait that long."""
_TRIES = 3
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class Sink(Protocol):
    """Where a batch goes."""

    def insert_columns(
        self, table: str, columns: Mapping[str, Sequence[object]], *, token: str
    ) -> None: ...

    def holds_any(self, columns: Mapping[str, Sequence[Any]]) -> bool: ...


class Batch(NamedTuple):
    """What was moved at once, for whoever watches."""

    rows: int
    seconds: float
    """That the store took."""


@dataclass
class Drain:
    """Moves facts from the log to the store, each at least once; the store keeps one row of each.

    A record that is no fact becomes a dead letter and holds up nothing. While the store is away the
    same batch is tried again; nothing more is read, so memory stays bounded.
    """

    consumer: Consumer
    store: Sink
    watch: Callable[[Batch], None] = lambda _: None
    pauses_s: Sequence[float] = PAUSES_S
    """Before the store is asked again; the last one for as long as it is away."""
    stop: threading.Event = field(default_factory=threading.Event)
    stored: int = 0
    dead: int = 0
    _blamed: Counter[str] = field(default_factory=Counter, init=False)
    """How often the store has refused the rows of an insert, by its token."""
    oldest_waiting: datetime | None = None
    """When the first fact of the batch in hand was received; None between batches."""

    def run(self) -> None:
        """Until `stop` is set; the batch in hand is finished first."""
        failures = 0
        while not self.stop.is_set():
            try:
                self._turn()
                failures = 0
            except (Unavailable, Refused) as error:
                pause = self.pauses_s[min(failures, len(self.pauses_s) - 1)]
                failures += 1
                log.warning("drain waits %.1f s: %s", pause, error)
                self._rewind()
                self.stop.wait(pause)

    def step(self, *, timeout_s: float) -> int:
        """One batch of one partition is stored and committed; how many records it had.

        Raises: Unavailable.
        """
        return len(self._step(timeout_s))

    def _turn(self) -> None:
        """A batch of each partition that has any, then a rest, unless there is much to do."""
        met: set[int] = set()
        timeout_s = 0.5
        while not self.stop.is_set():
            before = self.stored
            records = self._step(timeout_s)
            if not records or (records[0].partition in met and self.stored - before < SMALL_ROWS):
                break
            met.add(records[0].partition)
            timeout_s = 0
        if met:
            self.stop.wait(LINGER_S)

    def _step(self, timeout_s: float) -> Sequence[Record]:
        records = self.consumer.poll(
            max_records=MAX_RECORDS, max_bytes=MAX_BYTES, timeout_s=timeout_s
        )
        if records:
            # An insert that is repeated after a crash must name the same rows by the same token.
            again = self.consumer.intend()
            self._keep(records, again=again)
            self.consumer.commit()
            self.oldest_waiting = None
        return records

    def _keep(self, records: Sequence[Record], *, again: bool) -> None:
        self.oldest_waiting = _received_at(records[0])
        rows = rows_of(records)
        token = _token(records)
        began = time.monotonic()
        blamed = self._blamed[token] >= _TRIES
        dead = rows.dead + self._insert(rows, token, again=again, blamed=blamed)
        self._blamed.pop(token, None)
        if dead:
            letters = dict(zip(DEAD_COLUMNS, zip(*dead, strict=True), strict=True))
            self.store.insert_columns("dead_letters", letters, token=token)
            log.error("%d dead letters in %s", len(dead), token)
        self.stored += len(rows.facts)
        self.dead += len(dead)
        self.watch(Batch(len(rows.facts), time.monotonic() - began))

    def _insert(self, rows: Rows, token: str, *, again: bool, blamed: bool) -> list[DeadRow]:
        """All are stored but those that the store will never take, which are given back.

        Raises: Unavailable until the rows were `blamed` several times: a broken connection can look
            like broken rows.
        """
        if not rows.facts:
            return []
        try:
            columns = dict(zip(COLUMNS, rows.events, strict=True))
            self.store.insert_columns("events", columns, token=token)
            if again and not self.store.holds_any(columns):
                # ClickHouse notes a token before it stores the rows. When it dies in between, or
                # cannot write, it takes these rows for stored ever after.
                self.store.insert_columns("events", columns, token=f"{token}!{uuid4().hex}")
        except Refused as error:
            if not blamed:
                self._blamed[token] += 1
                raise Unavailable(error.detail) from error
            if len(rows.facts) == 1:
                return [rows.letter(error.detail)]
            first, second = rows.halves()
            return [
                *self._insert(first, f"{token}<", again=again, blamed=True),
                *self._insert(second, f"{token}>", again=again, blamed=True),
            ]
        return []

    def _rewind(self) -> None:
        try:
            self.consumer.rewind()
        except Unavailable as error:
            log.warning("rewinding: %s", error)


def _received_at(record: Record) -> datetime | None:
    try:
        return unpack(record.value).received_at
    except (ValueError, KeyError, TypeError):
        return None


def _token(records: Sequence[Record]) -> str:
    """Names the rows, so that an insert that is repeated is the same insert.

    A log that was made anew has the offsets of the one before, but not its records.
    """
    first, last = records[0], records[-1]
    content = blake2b(first.value, digest_size=8).hexdigest()
    return f"{first.topic}/{first.partition}/{first.offset}-{last.offset}/{content}"
