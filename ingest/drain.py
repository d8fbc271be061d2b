"""From log to store: offsets are committed after the store has taken the batch."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ingest._rows import COLUMNS, DEAD_COLUMNS, rows_of
from ingest.errors import Unavailable
from ingest.log import Consumer, Record

log = logging.getLogger(__name__)

GROUP = "store"
MAX_RECORDS = 2_000
MAX_BYTES = 32 << 20
LINGER_S = 0.3
"""Between small batches: the store prefers few inserts, a reader of reports can wait that long."""
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class Sink(Protocol):
    """Where a batch goes."""

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        token: str,
    ) -> None: ...


@dataclass
class Drain:
    """Moves facts from the log to the store, each at least once; the store keeps one row of each.

    A record that is no fact becomes a dead letter and holds up nothing. While the store is away the
    same batch is tried again; nothing more is read, so memory stays bounded.
    """

    consumer: Consumer
    store: Sink
    stop: threading.Event = field(default_factory=threading.Event)
    stored: int = 0
    dead: int = 0

    def run(self) -> None:
        """Until `stop` is set; the batch in hand is finished first."""
        failures = 0
        while not self.stop.is_set():
            try:
                if 0 < self.step(timeout_s=0.5) < MAX_RECORDS:
                    self.stop.wait(LINGER_S)
                failures = 0
            except Unavailable as error:
                pause = _PAUSES_S[min(failures, len(_PAUSES_S) - 1)]
                failures += 1
                log.warning("drain waits %.1f s: %s", pause, error)
                self._rewind()
                self.stop.wait(pause)

    def step(self, *, timeout_s: float) -> int:
        """One batch is stored and committed; how many records it had. Raises: Unavailable."""
        records = self.consumer.poll(
            max_records=MAX_RECORDS, max_bytes=MAX_BYTES, timeout_s=timeout_s
        )
        if records:
            self._keep(records)
            self.consumer.commit()
        return len(records)

    def _keep(self, records: Sequence[Record]) -> None:
        parts = [rows_of(record) for record in records]
        events = [row for part in parts for row in part.events]
        dead = [row for part in parts for row in part.dead]
        token = _token(records)
        if events:
            self.store.insert("events", COLUMNS, events, token=token)
        if dead:
            self.store.insert("dead_letters", DEAD_COLUMNS, dead, token=token)
            log.error("%d dead letters in %s: %s", len(dead), token, dead[0][2])
        self.stored += len(events)
        self.dead += len(dead)

    def _rewind(self) -> None:
        try:
            self.consumer.rewind()
        except Unavailable as error:
            log.warning("rewinding: %s", error)


def _token(records: Sequence[Record]) -> str:
    """Names the batch by its offset ranges, so that a repeated batch is the same insert."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for record in records:
        place = (record.topic, record.partition)
        first, _ = spans.get(place, (record.offset, record.offset))
        spans[place] = (first, record.offset)
    return ",".join(f"{topic}/{partition}/{a}-{b}" for (topic, partition), (a, b) in spans.items())
