"""The one door facts come in by: judged one by one, then durable together, then acknowledged."""

import json
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

from ingest._judge import MAX_EVENT_BYTES, Status, Verdict, judge, judge_kept
from ingest._known import FactId, Known
from ingest._packed import pack, unpack
from ingest.errors import BadInput, Unavailable, Unreadable
from ingest.events import key_of
from ingest.log import Consumer, Entry, Log
from ingest.wire import Raw, read_one

__all__ = ["MAX_EVENT_BYTES", "FactId", "Facts", "Intake", "Receipt", "Verdict"]

logger = logging.getLogger(__name__)

_REMEMBERED = 200_000
_UNASKED_S = 5.0


@dataclass(frozen=True)
class Receipt:
    """What became of each event, in the order sent. The accepted ones are durable at `position`."""

    results: tuple[Verdict, ...]
    position: str | None

    def count(self, status: Status) -> int:
        return sum(verdict.status == status for verdict in self.results)


class Facts(Protocol):
    """What the door asks the store: which of these it already has."""

    def known(self, ids: Sequence[FactId]) -> set[FactId]: ...


@dataclass
class Intake:
    """Takes facts. Safe to call from many threads; sending the same fact again is safe."""

    log: Log
    store: Facts
    refine: Callable[[Sequence[Raw]], Sequence[Raw]] = lambda batch: batch
    """What is kept instead of what was sent, in the same order: redacted, pseudonymous, with large
    values elsewhere. One that it gives a `problem` is rejected for that."""
    known_as: Callable[[str], str] = lambda source: source
    """The source under which a fact is kept, where `refine` changes it."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """Events by status since the process started."""
    rejections: Counter[str] = field(default_factory=Counter, init=False)
    """Rejected events by the kind of reason since the process started."""
    stored: Known | None = field(default=None, init=False)
    """Of a store that nobody else fills: without it every new fact is looked up there."""
    _seen: OrderedDict[FactId, None] = field(default_factory=OrderedDict, init=False)
    _ask_at: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def take(
        self,
        batch: Sequence[Raw],
        *,
        sent_at: datetime | None = None,
        trusted: bool = True,
        look_up: bool = True,
        remembered: bool = True,
    ) -> Receipt:
        """Every accepted event is in the log when this returns.

        Who is not `trusted` cannot bring facts that only a server mints. Without `look_up` only
        facts taken lately are known as duplicates; the store keeps one row of each all the same.
        Without `remembered` only what the store has is a duplicate.

        Raises: Unavailable when the log did not take them; then nothing of the batch was taken.
        """
        judged = [self._judge(raw, trusted) for raw in batch]
        known = self._known(
            [each for each in judged if isinstance(each, FactId)], look_up, remembered
        )
        fresh: dict[FactId, Raw] = {}
        for each, raw in zip(judged, batch, strict=True):
            if isinstance(each, FactId) and each not in known:
                fresh.setdefault(each, raw)
        refused, position = self._keep(fresh, sent_at) if fresh else ({}, None)
        results: list[Verdict] = []
        for each in judged:
            if isinstance(each, Verdict):
                results.append(each)
            elif each in refused:
                results.append(refused[each])
            else:
                first = fresh.pop(each, None) is not None
                results.append(Verdict(each.id, "accepted" if first else "duplicate"))
        self._count(results)
        return Receipt(tuple(results), position)

    def take_own(self, *facts: Mapping[str, Any]) -> Receipt:
        """As `take`, for facts that this server minted itself.

        Raises: BadInput when a name that a client gave may not be kept; Unavailable.
        """
        own = [read_one(json.dumps(fact, separators=(",", ":")).encode()) for fact in facts]
        receipt = self.take(own, look_up=False)
        for verdict in receipt.results:
            if verdict.kind == "content":
                raise BadInput(verdict.reason or "")
            if verdict.status == "rejected":
                raise ValueError(f"this server minted a fact it refuses: {verdict.reason}")
        return receipt

    def recall(self, consumer: Consumer) -> None:
        """Facts that the log has and the store has not are known as duplicates again.

        For the start of a process: it reads what was not drained, as far as it remembers, and
        leaves the consumer where it was. Raises: Unavailable.
        """
        while len(self._seen) < _REMEMBERED and (
            records := consumer.poll(max_records=1_000, max_bytes=32 << 20, timeout_s=0)
        ):
            for record in records:
                self._remember(_identities(record.value))
        consumer.rewind()

    def _judge(self, raw: Raw, trusted: bool) -> FactId | Verdict:
        found = judge(raw, trusted=trusted)
        if isinstance(found, Verdict):
            return found
        return FactId(self.known_as(found.source), found.id)

    def _keep(
        self, fresh: Mapping[FactId, Raw], sent_at: datetime | None
    ) -> tuple[dict[FactId, Verdict], str | None]:
        """Those that may not be kept; the others are durable at the position."""
        refused: dict[FactId, Verdict] = {}
        kept: dict[str, list[Raw]] = {}
        for fact, raw in zip(fresh, self.refine(list(fresh.values())), strict=True):
            if verdict := judge_kept(raw, fact):
                refused[fact] = verdict
            else:
                kept.setdefault(key_of(raw.clean), []).append(raw)
        if not kept:
            return refused, None
        received_at = self.now()
        position = self.log.append(
            [Entry(key, pack(facts, received_at, sent_at)) for key, facts in kept.items()]
        )
        self._remember(fact for fact in fresh if fact not in refused)
        return refused, position

    def _known(self, facts: Sequence[FactId], look_up: bool, remembered: bool) -> set[FactId]:
        with self._lock:
            known = {fact for fact in facts if remembered and fact in self._seen}
        if not look_up:
            return known
        maybe = [fact for fact in facts if fact not in known]
        if self.stored is not None and remembered:  # what is remembered is not in it yet
            maybe = [fact for fact in maybe if self.stored.may_have(fact)]
        if not maybe or time.monotonic() < self._ask_at:
            return known
        try:
            return known | self.store.known(maybe)
        except Unavailable as error:
            # What the log can take is taken: the store keeps one row of each all the same. A store
            # that hangs must not hold up every request.
            self._ask_at = time.monotonic() + _UNASKED_S
            logger.warning("duplicates are not looked up: %s", error)
            return known

    def _remember(self, facts: Iterable[FactId]) -> None:
        with self._lock:
            self._seen.update(dict.fromkeys(facts))
            forgotten = list(islice(self._seen, max(0, len(self._seen) - _REMEMBERED)))
            if self.stored is not None:
                self.stored.add(forgotten)
            for fact in forgotten:
                del self._seen[fact]

    def _count(self, results: Sequence[Verdict]) -> None:
        with self._lock:
            self.counts.update(verdict.status for verdict in results)
            self.rejections.update(verdict.kind for verdict in results if verdict.kind)


def _identities(value: bytes) -> list[FactId]:
    try:
        wires = [fact.clean for fact in unpack(value).facts()]
    except (Unreadable, ValueError, KeyError, TypeError):
        return []  # the drain makes a dead letter of it
    return [FactId(wire["source"], wire["id"]) for wire in wires if _has_identity(wire)]


def _has_identity(wire: object) -> bool:
    return isinstance(wire, dict) and {"source", "id"} <= wire.keys()
