"""What is kept about erasures: how far each is, and, while it runs, whom and what it is about."""

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Row,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from ingest import feedback
from ingest._audit import Audit
from ingest.control import METADATA, reading, utc_now, writing
from ingest.errors import NotFound, Unavailable

Stage = Literal[
    "drain", "collect", "blobs", "store", "feedback", "log", "derived", "proof", "forget"
]
STAGES: tuple[Stage, ...] = get_args(Stage)
_AT_ONCE = 2_000

_ERASURES = Table(
    "erasures",
    METADATA,
    Column("id", String, primary_key=True),
    Column("person", Text),  # their name as JSON; null once nothing is left to do
    Column("digest", String, nullable=False),
    Column("salt", String, nullable=False),
    Column("state", String, nullable=False),
    Column("stage", String, nullable=False),
    Column("requested_at", String, nullable=False),
    Column("finished_at", String),
    Column("counts", Text, nullable=False),
    Column("derived", Text, nullable=False),
    Column("proof", Text),
    Column("problem", Text),
)
_FACTS = Table(
    "erasure_facts",
    METADATA,
    Column("erasure", String, primary_key=True),
    Column("kind", String, primary_key=True),  # fact or dead letter
    Column("digest", String, primary_key=True),
    Column("source", String, nullable=False),
    Column("id", String, nullable=False),
)

Kind = Literal["fact", "dead letter"]


class Marked(NamedTuple):
    """What goes. `digest` names it in statements of the store; a dead letter has no more."""

    digest: str
    source: str = ""
    id: str = ""


@dataclass
class Job:
    """An erasure under way. `name` is None if it was forgotten already."""

    id: str
    name: str | None
    digest: str
    stage: Stage
    until: datetime
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Book:
    """Every change is durable when its call returns. All raise Unavailable."""

    engine: Engine

    def begin(self, name: str, until: datetime, *, by: str) -> str:
        """Its id: the same person again, while it runs, is the same erasure."""
        with writing(self.engine) as connection:
            salt = connection.execute(select(_ERASURES.c.salt).limit(1)).scalar()
            salt = salt or secrets.token_hex(16)
            digest = _digest(name, salt)
            same = select(_ERASURES.c.id).where(
                _ERASURES.c.digest == digest, _ERASURES.c.state == "running"
            )
            if running := connection.execute(same).scalar():
                return str(running)
            erasure = secrets.token_hex(8)
            connection.execute(
                insert(_ERASURES).values(
                    id=erasure,
                    person=json.dumps(name),
                    digest=digest,
                    salt=salt,
                    state="running",
                    stage=STAGES[0],
                    requested_at=until.isoformat(),
                    counts="{}",
                    derived="{}",
                )
            )
            Audit(self.engine).note("user.erase", erasure, key_id=by, within=connection)
        return erasure

    def next(self) -> Job | None:
        """The oldest erasure that is not done."""
        question = (
            select(_ERASURES)
            .where(_ERASURES.c.state == "running")
            .order_by(_ERASURES.c.requested_at, _ERASURES.c.id)
            .limit(1)
        )
        with reading(self.engine) as connection:
            row = connection.execute(question).one_or_none()
        if row is None:
            return None
        name = json.loads(row.person) if row.person else None
        until = datetime.fromisoformat(row.requested_at)
        return Job(row.id, name, row.digest, row.stage, until, json.loads(row.counts))

    def mark(self, job: Job, kind: Kind, rows: Sequence[Marked]) -> None:
        """These go, and nothing else of this kind."""
        with writing(self.engine) as connection:
            connection.execute(
                delete(_FACTS).where(_FACTS.c.erasure == job.id, _FACTS.c.kind == kind)
            )
            for start in range(0, len(rows), _AT_ONCE):
                values = [row._asdict() for row in rows[start : start + _AT_ONCE]]
                connection.execute(
                    insert(_FACTS), [{"erasure": job.id, "kind": kind, **each} for each in values]
                )

    def marked(self, job: Job, kind: Kind) -> Iterator[list[Marked]]:
        """What goes, in lists that one statement can take."""
        question = select(_FACTS.c.digest, _FACTS.c.source, _FACTS.c.id).where(
            _FACTS.c.erasure == job.id, _FACTS.c.kind == kind
        )
        last = ""
        while True:
            page = question.where(_FACTS.c.digest > last).order_by(_FACTS.c.digest).limit(_AT_ONCE)
            with reading(self.engine) as connection:
                rows = [Marked(*row) for row in connection.execute(page)]
            if not rows:
                return
            last = rows[-1].digest
            yield rows

    def advance(self, job: Job, **found: object) -> None:
        """The stage is over; `found` are numbers, or columns of the table as JSON."""
        with writing(self.engine) as connection:
            self._advance(connection, job, found)

    def forget_feedback(self, job: Job) -> None:
        """The stage is over: no rating or used link is known whose fact goes."""
        said, used = METADATA.tables["feedback"], METADATA.tables["feedback_links_used"]
        facts = [
            fact.id
            for page in self.marked(job, "fact")
            for fact in page
            if fact.source == feedback.SOURCE
        ]
        gone = 0
        with writing(self.engine) as connection:
            for start in range(0, len(facts), _AT_ONCE):
                some = facts[start : start + _AT_ONCE]
                threads = {fact.partition("-")[0] for fact in some}
                withdrawn = said.c.fact.is_(None) & said.c.id.in_(threads)
                rows = connection.execute(delete(said).where(said.c.fact.in_(some) | withdrawn))
                links = connection.execute(delete(used).where(used.c.fact.in_(some)))
                gone += rows.rowcount + links.rowcount
            self._advance(connection, job, {"feedback": gone})

    def forget_name(self, job: Job) -> None:
        """Neither the name nor what went is in the database, nor, on SQLite, in its files."""
        with writing(self.engine) as connection:
            if self._is_sqlite:
                connection.exec_driver_sql("PRAGMA secure_delete = ON")
            connection.execute(
                update(_ERASURES).where(_ERASURES.c.id == job.id).values(person=None)
            )
            connection.execute(delete(_FACTS).where(_FACTS.c.erasure == job.id))
        if self._is_sqlite:
            with reading(self.engine) as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()

    def places(self, job: Job) -> list[dict[str, Any]]:
        """What the proof found before the name was forgotten."""
        question = select(_ERASURES.c.proof).where(_ERASURES.c.id == job.id)
        with reading(self.engine) as connection:
            return list(json.loads(connection.execute(question).scalar_one()))

    def complete(self, job: Job, proof: Mapping[str, Any]) -> None:
        values = {"state": "done", "stage": "", "finished_at": utc_now(), "problem": None}
        with writing(self.engine) as connection:
            connection.execute(
                update(_ERASURES)
                .where(_ERASURES.c.id == job.id)
                .values(proof=json.dumps(proof), **values)
            )

    def hindered(self, job: Job, problem: str) -> None:
        """Shown until the stage is over."""
        with writing(self.engine) as connection:
            connection.execute(
                update(_ERASURES).where(_ERASURES.c.id == job.id).values(problem=problem)
            )

    def shown(self, erasure: str) -> dict[str, Any]:
        """What anybody may see of it, the proof included. Raises: NotFound."""
        with reading(self.engine) as connection:
            question = select(_ERASURES).where(_ERASURES.c.id == erasure)
            row = connection.execute(question).one_or_none()
            if row is None:
                raise NotFound(f"no erasure {erasure[:40]!r}; GET /v1/erasures lists them")
            same = select(_ERASURES.c.id).where(
                _ERASURES.c.digest == row.digest, _ERASURES.c.id != erasure
            )
            others = list(connection.execute(same).scalars())
        proof = json.loads(row.proof) if row.state == "done" else None
        return _public(row) | {"proof": proof, "others_of_this_person": others}

    def all(self) -> list[dict[str, Any]]:
        """Newest first, without proofs."""
        newest = select(_ERASURES).order_by(_ERASURES.c.requested_at.desc(), _ERASURES.c.id)
        with reading(self.engine) as connection:
            return [_public(row) for row in connection.execute(newest)]

    @property
    def _is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def _advance(self, connection: Connection, job: Job, found: Mapping[str, Any]) -> None:
        texts = {name: json.dumps(found[name]) for name in ("derived", "proof") if name in found}
        counts = job.counts | {name: each for name, each in found.items() if name not in texts}
        stage = STAGES[STAGES.index(job.stage) + 1]
        mine = (_ERASURES.c.id == job.id) & (_ERASURES.c.stage == job.stage)
        change = update(_ERASURES).where(mine, _ERASURES.c.state == "running")
        values = {"stage": stage, "counts": json.dumps(counts), "problem": None, **texts}
        if connection.execute(change.values(**values)).rowcount == 0:
            raise Unavailable("another server carries this erasure out")
        job.stage, job.counts = stage, counts


def _public(row: Row[Any]) -> dict[str, Any]:
    shown = ("id", "state", "stage", "requested_at", "finished_at", "problem")
    return {
        **{name: getattr(row, name) for name in shown},
        "person": row.digest,
        "counts": json.loads(row.counts),
        "derived": json.loads(row.derived),
    }


def _digest(name: str, salt: str) -> str:
    # Slow on purpose: names are few and easily guessed by whoever has the salt.
    key = hashlib.scrypt(name.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=16)
    return key.hex()
