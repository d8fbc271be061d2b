"""Decisions as they were made: stored, and made again to the byte from the same facts."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import Column, Engine, Row, String, Table, Text, insert, select, update
from sqlalchemy.exc import IntegrityError

from experiments.plans import Experiment, Strict
from experiments.report import Report, policy_of, report
from ingest.control import METADATA, reading, utc_now, writing
from ingest.errors import NotFound
from ingest.store import Store

_DECISIONS = Table(
    "decisions",
    METADATA,
    Column("id", String, primary_key=True),
    Column("experiment", String, nullable=False, index=True),
    Column("as_of", String, nullable=False),
    Column("record", Text, nullable=False),
    Column("recorded_at", String, nullable=False),
    Column("override", Text),
)


class Override(Strict):
    """What people decided instead. The automatic verdict stays beside it."""

    verdict: Literal["ship", "rollback", "continue", "inconclusive"]
    variant: str | None = None
    reason: Annotated[str, Field(min_length=1, max_length=2000)]


@dataclass(frozen=True)
class Recorded:
    """A stored decision. `record` is JSON text, `id` the SHA-256 of its bytes."""

    id: str
    as_of: str
    record: str
    recorded_at: str
    override: dict[str, Any] | None

    @property
    def version(self) -> int:
        """Of the experiment: the phase that was decided on."""
        return int(json.loads(self.record)["version"])

    def public(self) -> dict[str, Any]:
        return asdict(self) | {"record": json.loads(self.record)}


def record_of(experiment: Experiment, found: Report) -> str:
    """The decision with all it was made from, as JSON: the same facts give the same bytes.

    What is not known from the facts and the plan (whether the experiment was stopped since) is not
    in it. `inputs` is the SHA-256 of health and metrics: two records differ in it exactly when they
    were made from other numbers.
    """
    evidence = {
        "health": asdict(found.health),
        "metrics": [asdict(each) for each in found.metrics],
    }
    plan = experiment.plan.model_dump(mode="json")
    return _json(
        {
            "experiment": experiment.plan.key,
            "version": experiment.version,
            "as_of": found.as_of,
            "plan": sha256(_json(plan).encode()).hexdigest(),
            "inputs": sha256(_json(evidence).encode()).hexdigest(),
            "policy": asdict(policy_of(experiment.plan)),
            "reading": experiment.plan.reading,
            "alpha": experiment.plan.alpha,
            "comparisons": [
                {"metric": each.metric.key, "role": each.role, "margin": each.margin}
                | {name: getattr(arm, name) for name in _SHOWN}
                for each in found.metrics
                for arm in each.comparisons
            ],
            "decision": asdict(found.decision),
        }
    )


_SHOWN = (
    "variant", "effect", "interval", "p_value", "adjusted_p", "harm_bound", "safety", "method",
    "reason",
)  # fmt: skip


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Decisions:
    """The decisions of all experiments, oldest first; none is ever changed, only overridden."""

    control: Engine
    store: Store

    def make(self, experiment: Experiment, as_of: datetime | None = None) -> Recorded:
        """The decision as of that time (now) is stored, once. Raises: Unavailable."""
        record = record_of(experiment, report(self.store, experiment, as_of=as_of))
        return self.keep(experiment.plan.key, record)

    def keep(self, key: str, record: str) -> Recorded:
        """The record is stored; one that is there already stays as it is."""
        name = sha256(record.encode()).hexdigest()
        said = json.loads(record)
        entry = insert(_DECISIONS).values(
            id=name, experiment=key, as_of=said["as_of"], record=record, recorded_at=utc_now()
        )
        with suppress(IntegrityError), writing(self.control) as connection:
            connection.execute(entry)
        return self.get(key, name)

    def make_again(self, experiment: Experiment, name: str) -> dict[str, Any]:
        """The stored decision beside the one that today's store gives for the same time.

        Raises: NotFound, Unavailable.
        """
        stored = self.get(experiment.plan.key, name)
        as_of = datetime.fromisoformat(stored.as_of)
        again = record_of(experiment, report(self.store, experiment, as_of=as_of))
        return {
            "id": name,
            "identical": again == stored.record,
            "stored": json.loads(stored.record),
            "again": json.loads(again),
        }

    def override(self, key: str, name: str, wanted: Override, *, by: str) -> Recorded:
        """What people decided, beside the record. Raises: NotFound."""
        self.get(key, name)
        said = wanted.model_dump() | {"by": by, "at": datetime.now(UTC).isoformat()}
        with writing(self.control) as connection:
            connection.execute(
                update(_DECISIONS).where(_DECISIONS.c.id == name).values(override=_json(said))
            )
        return self.get(key, name)

    def get(self, key: str, name: str) -> Recorded:
        """Raises: NotFound."""
        question = select(_DECISIONS).where(_DECISIONS.c.experiment == key, _DECISIONS.c.id == name)
        with reading(self.control) as connection:
            row = connection.execute(question).one_or_none()
        if row is None:
            raise NotFound(f"{key!r} has no decision {name[:100]!r}")
        return _read(row)

    def all(self, key: str) -> list[Recorded]:
        """Of one experiment."""
        question = (
            select(_DECISIONS)
            .where(_DECISIONS.c.experiment == key)
            .order_by(_DECISIONS.c.as_of, _DECISIONS.c.recorded_at)
        )
        with reading(self.control) as connection:
            return [_read(row) for row in connection.execute(question)]


def _read(row: Row[Any]) -> Recorded:
    return Recorded(
        id=row.id,
        as_of=row.as_of,
        record=row.record,
        recorded_at=row.recorded_at,
        override=json.loads(row.override) if row.override else None,
    )
