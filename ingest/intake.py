"""The one door facts come in by: judged one by one, then durable together, then acknowledged."""

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import ValidationError

from ingest.errors import Unreadable
from ingest.events import SERVER_TYPES, content_in, key_of, parse
from ingest.log import Consumer, Entry, Log
from ingest.wire import Raw, split_batch

MAX_EVENT_BYTES = 1 << 20
_REMEMBERED = 200_000
_IDENTITY = ("id", "source", "type", "user", "organization", "partitionkey", "subject")

Status = Literal["accepted", "duplicate", "rejected"]


class FactId(NamedTuple):
    source: str
    id: str


@dataclass(frozen=True, slots=True)
class Verdict:
    id: str | None
    status: Status
    reason: str | None = None


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
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """Events by status since the process started."""
    _seen: OrderedDict[FactId, None] = field(default_factory=OrderedDict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def take(
        self,
        batch: Sequence[Raw],
        *,
        sent_at: datetime | None = None,
        trusted: bool = True,
        look_up: bool = True,
    ) -> Receipt:
        """Every accepted event is in the log when this returns.

        Who is not `trusted` cannot bring facts that only a server mints. Without `look_up` only
        facts taken lately are known as duplicates; the store keeps one row of each all the same.

        Raises: Unavailable when the log did not take them; then nothing of the batch was taken.
        """
        judged = [_judge(raw, trusted) for raw in batch]
        known = self._known([each for each in judged if isinstance(each, FactId)], look_up)
        results: list[Verdict] = []
        fresh: list[FactId] = []
        entries: dict[str, list[str]] = {}
        for raw, fact in zip(batch, judged, strict=True):
            if isinstance(fact, Verdict):
                results.append(fact)
            elif fact in known:
                results.append(Verdict(fact.id, "duplicate"))
            else:
                known.add(fact)
                fresh.append(fact)
                entries.setdefault(key_of(raw.clean), []).append(raw.text)
                results.append(Verdict(fact.id, "accepted"))
        position = self._append(entries, sent_at) if entries else None
        self._remember(fresh)
        with self._lock:
            self.counts.update(verdict.status for verdict in results)
        return Receipt(tuple(results), position)

    def take_own(self, *facts: Mapping[str, Any]) -> Receipt:
        """As `take`, for facts that this server minted itself."""
        texts = [json.dumps(fact, separators=(",", ":")) for fact in facts]
        receipt = self.take([Raw(text, json.loads(text)) for text in texts], look_up=False)
        for verdict in receipt.results:
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

    def _append(self, facts: Mapping[str, Sequence[str]], sent_at: datetime | None) -> str:
        received_at = self.now()
        return self.log.append(
            [Entry(key, pack(texts, received_at, sent_at)) for key, texts in facts.items()]
        )

    def _known(self, facts: Sequence[FactId], look_up: bool) -> set[FactId]:
        with self._lock:
            known = {fact for fact in facts if fact in self._seen}
        unseen = [fact for fact in facts if fact not in known]
        return known | self.store.known(unseen) if unseen and look_up else known

    def _remember(self, facts: Sequence[FactId]) -> None:
        with self._lock:
            self._seen.update(dict.fromkeys(facts))
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)


def _identities(value: bytes) -> list[FactId]:
    try:
        facts = unpack(value).facts
    except (Unreadable, ValueError, KeyError, TypeError):
        return []  # the drain makes a dead letter of it
    wires = (fact.clean for fact in facts)
    return [FactId(wire["source"], wire["id"]) for wire in wires if _has_identity(wire)]


def _has_identity(wire: object) -> bool:
    return isinstance(wire, dict) and {"source", "id"} <= wire.keys()


def _judge(raw: Raw, trusted: bool) -> FactId | Verdict:
    """The identity of a fact that may be taken, or why it may not."""
    wire = raw.clean
    named = wire.get("id") if isinstance(wire, dict) else None
    reason = raw.problem or _size_problem(raw) or _identity_problem(raw)
    if reason is None:
        try:
            event = parse(wire)
        except ValidationError as error:
            reason = _explain(error)
        else:
            reason = _consent_problem(wire) or (None if trusted else _forgery_problem(wire))
            if reason is None:
                return FactId(event.source, event.id)
    return Verdict(named if isinstance(named, str) else None, "rejected", reason)


def _size_problem(raw: Raw) -> str | None:
    if len(raw.text) > MAX_EVENT_BYTES // 4 and len(raw.text.encode()) > MAX_EVENT_BYTES:
        return f"larger than {MAX_EVENT_BYTES} bytes; split the event or shorten its content"
    return None


def _identity_problem(raw: Raw) -> str | None:
    """Names that join facts must survive every engine; content may hold anything."""
    if raw.clean is raw.value or not isinstance(raw.value, dict):
        return None
    for name in _IDENTITY:
        if raw.value.get(name) != raw.clean.get(name):
            return f"{name}: holds half a character (a lone surrogate)"
    return None


def _consent_problem(wire: Mapping[str, Any]) -> str | None:
    content = content_in(wire.get("data")) if wire.get("consent", "metrics") == "metrics" else []
    if not content:
        return None
    return (
        f"data.{content[0]}: content needs consent 'code' or 'training', this event has 'metrics'"
    )


def _forgery_problem(wire: Mapping[str, Any]) -> str | None:
    """Exposures and completions decide experiments: an editor's key must not be able to write them."""
    if wire["type"] not in SERVER_TYPES:
        return None
    return f"type: only a server mints {wire['type']}; replaying it needs a key with scope 'admin'"


def _explain(error: ValidationError) -> str:
    """The wrong fields in plain words, at most three, without echoing what was sent."""
    problems = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False)[:3]:
        path = ".".join(str(part) for part in problem["loc"] if "thumbwheel." not in str(part))
        problems.append(f"{path or 'event'}: {problem['msg'].lower()}")
    return "; ".join(problems)


def pack(texts: Iterable[str], received_at: datetime, sent_at: datetime | None) -> bytes:
    """The value of one log record: the facts' own texts, with when they were sent and received."""
    head = json.dumps(
        {
            "received_at": received_at.isoformat(),
            "sent_at": sent_at.isoformat() if sent_at else None,
        }
    )
    return f"{head}\n[{','.join(texts)}]".encode()


class Packed(NamedTuple):
    received_at: datetime
    sent_at: datetime | None
    facts: list[Raw]


def unpack(value: bytes) -> Packed:
    """The inverse of `pack`. Raises: Unreadable, ValueError or KeyError for other bytes."""
    head, _, facts = value.partition(b"\n")
    times = json.loads(head)
    sent_at = times["sent_at"]
    return Packed(
        datetime.fromisoformat(times["received_at"]),
        datetime.fromisoformat(sent_at) if sent_at else None,
        split_batch(facts),
    )
