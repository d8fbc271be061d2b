"""Erasing a person: everything stored so far that is theirs is gone, and a scan proves it."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import Engine

from ingest._audit import SERVER
from ingest._erasure_proof import Place, Search, inactive_parts, report
from ingest._erasures import Book, Job, Marked, Stage
from ingest._known import FactId
from ingest._mentions import Mentions
from ingest._ownership import Ownership
from ingest.control import utc_now
from ingest.drain import GROUP
from ingest.errors import ThumbwheelError, Unavailable
from ingest.log import Log
from ingest.settings import Settings
from ingest.store import Store

log = logging.getLogger(__name__)

_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)

_DRAINED_BEYOND = (
    "SELECT count() > 0 AS beyond FROM events "
    "WHERE received_at > {until:DateTime64(6, 'UTC')} AND startsWith(position, 'local/')"
)
_DEAD_LETTERS = (
    "SELECT DISTINCT hex(sipHash128(position, fact)) AS digest FROM dead_letters "
    "WHERE match(raw, {pattern:String})"
)
# Lightweight deletes only hide rows: their bytes stay until some later merge. These rewrite the
# parts. The statements name facts by digests, for the engine keeps its latest hundred changes.
_ERASE = (
    "ALTER TABLE events DELETE WHERE hex(sipHash128(source, id)) IN {digests:Array(String)}",
    "ALTER TABLE pointers DELETE WHERE hex(sipHash128(source, id)) IN {digests:Array(String)}",
)
_ERASE_LETTERS = (
    (
        "ALTER TABLE dead_letters DELETE "
        "WHERE hex(sipHash128(position, fact)) IN {digests:Array(String)}"
    ),
    (
        "ALTER TABLE dead_letter_replays DELETE "
        "WHERE hex(sipHash128(position, fact)) IN {digests:Array(String)}"
    ),
)


class Blobs(Protocol):
    """Where large values are."""

    def forget(self, source: str, id: str) -> object:
        """No value of this fact is kept any more; there may have been none."""


Derived = Callable[[str, Collection[FactId]], Mapping[str, Sequence[str]]]
"""Marks what was made from these facts and removes its rows; the names of it by kind. The same
erasure again gives the same answer."""


@dataclass
class Erasures:
    """Carries erasures out, one at a time, each stage again until it succeeds.

    Every stage may be repeated, so a crash at any point loses nothing: `resume` at the next start.
    """

    control: Engine
    store: Store
    log: Log
    blobs: Blobs
    settings: Settings
    pseudonym: Callable[[str], str] = lambda user: user
    derived: Derived | None = None
    """Erasures wait for a server that has one: what was made from facts must not be missed."""
    forget_user: Callable[[str], None] = lambda _: None
    """Of rooms that keep people's names in the control database themselves."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _running: threading.Lock = field(default_factory=threading.Lock, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)

    @property
    def _book(self) -> Book:
        return Book(self.control)

    def begin(self, user: str, *, by: str = SERVER) -> str:
        """Durably asked for; `start` or `resume` carries it out. While it runs, the same user again
        is the same erasure. Raises: Unavailable.
        """
        return self._book.begin(user, self.now(), by=by)

    def state(self, erasure: str) -> dict[str, Any]:
        """How far it is, and its proof. Raises: NotFound, Unavailable."""
        state = self._book.shown(erasure)
        if state["proof"]:
            at = datetime.fromisoformat(state["proof"]["at"])
            state["inactive_parts"] = inactive_parts(self.store, at)
        return state

    def all(self) -> list[dict[str, Any]]:
        """Newest first, without proofs. Raises: Unavailable."""
        return self._book.all()

    def start(self) -> None:
        """What was asked for is carried out in the background."""
        thread = threading.Thread(target=self.resume, name="erasures", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def resume(self) -> None:
        """All that was asked for is carried out, or `close` was called."""
        with self._running:
            failures = 0
            job: Job | None = None
            while not self._stop.is_set():
                try:
                    job = job or self._book.next()
                    if job is None:
                        return
                    if self._carry_out(job):
                        job = None
                    failures = 0
                except ThumbwheelError as error:
                    self._note(job, error.detail, failures)
                    job = None  # it may be another server's by now
                    self._stop.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
                    failures += 1

    def close(self) -> None:
        """No stage is under way any more; what is not done waits for `resume`."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _carry_out(self, job: Job) -> bool:
        """One stage is over; whether it was the last."""
        stages: Mapping[Stage, Callable[[Job], None]] = {
            "drain": self._drain,
            "collect": self._collect,
            "blobs": self._forget_blobs,
            "store": self._erase,
            "feedback": self._book.forget_feedback,
            "log": self._trim,
            "derived": self._mark_derived,
            "proof": self._prove,
            "forget": self._forget,
        }
        last = job.stage == "forget"
        stages[job.stage](job)
        return last

    def _note(self, job: Job | None, problem: str, failures: int) -> None:
        if failures != len(_PAUSES_S):
            return
        log.warning("erasure %s waits: %s", job.id if job else "", problem)
        if job:
            try:
                self._book.hindered(job, problem)
            except Unavailable as error:
                log.warning("erasure %s: %s", job.id, error.detail)

    def _drain(self, job: Job) -> None:
        """What was acknowledged before the request is stored."""
        waiting = self.log.lag(GROUP)
        # One partition is stored in order, so a later fact is a sign too, while others keep coming.
        if waiting and not self.store.rows(_DRAINED_BEYOND, until=job.until)[0]["beyond"]:
            raise Unavailable(f"{waiting} log records are not stored yet; is a drain running?")
        self._book.advance(job)

    def _collect(self, job: Job) -> None:
        names = self._names(job)
        owned = Ownership(self.store, names).facts(until=job.until)
        facts = [Marked(fact.digest, fact.source, fact.id) for fact in owned]
        found = self.store.rows(_DEAD_LETTERS, pattern=Mentions(names).pattern)
        letters = [Marked(row["digest"]) for row in found]
        self._book.mark(job, "fact", facts)
        self._book.mark(job, "dead letter", letters)
        self._book.advance(job, facts=len(facts), dead_letters=len(letters))

    def _forget_blobs(self, job: Job) -> None:
        for facts in self._book.marked(job, "fact"):
            for fact in facts:
                self.blobs.forget(fact.source, fact.id)
        self._book.advance(job)

    def _erase(self, job: Job) -> None:
        for facts in self._book.marked(job, "fact"):
            for statement in _ERASE:
                self.store.command(statement, digests=_digests(facts))
        for letters in self._book.marked(job, "dead letter"):
            for statement in _ERASE_LETTERS:
                self.store.command(statement, digests=_digests(letters))
        self._book.advance(job)

    def _mark_derived(self, job: Job) -> None:
        if self.derived is None:
            raise Unavailable("waits for a server with all rooms, which knows the datasets")
        for name in self._names(job):
            self.forget_user(name)
        facts = {
            FactId(fact.source, fact.id)
            for facts in self._book.marked(job, "fact")
            for fact in facts
        }
        derived = {kind: list(names) for kind, names in self.derived(job.id, facts).items()}
        counts = {kind: len(names) for kind, names in derived.items()}
        self._book.advance(job, derived=derived, **counts)

    def _trim(self, job: Job) -> None:
        self.log.trim(GROUP)
        self._book.advance(job)

    def _prove(self, job: Job) -> None:
        """All but the control database, which holds the name until it is forgotten."""
        digests = [_digests(facts) for facts in self._book.marked(job, "fact")]
        places = self._search(job).everywhere_but_control(digests)
        self._book.advance(job, proof=[asdict(place) for place in places])

    def _forget(self, job: Job) -> None:
        self._book.forget_name(job)
        places = [Place(**place) for place in self._book.places(job)]
        search = self._search(job)
        limits = search.limits()
        if job.name is None:
            limits.append(
                "the server stopped while it forgot the name: erase again to scan control"
            )
        else:
            places += search.in_control()
        proof = report(job.id, job.digest, places, at=utc_now(), limits=limits)
        self._book.complete(job, proof | {"complete": job.name is not None})

    def _search(self, job: Job) -> Search:
        mentions = Mentions(self._names(job))
        return Search(self.store, self.control, self.settings, mentions, job.until)

    def _names(self, job: Job) -> tuple[str, ...]:
        known = [] if job.name is None else [job.name, self.pseudonym(job.name)]
        return tuple(dict.fromkeys(known))


def _digests(marked: Iterable[Marked]) -> list[str]:
    return [each.digest for each in marked]
