"""Feedback that means what its rater last said: revised, withdrawn, early or years late."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from sqlalchemy import Column, Engine, Integer, String, Table, delete, insert, select

from ingest._editor_facts import Target
from ingest.control import METADATA, writing
from ingest.errors import BadInput, NotFound
from ingest.events import SCHEMA_URI, Consent
from ingest.intake import Intake

SOURCE = "/feedback"
_FEEDBACK = Table(
    "feedback",
    METADATA,
    Column("id", String, primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("said", String, nullable=False),
    Column("fact", String),  # null once withdrawn
)


class Rating(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Target
    name: Annotated[str, Field(min_length=1, max_length=200)] = "thumb"
    value: StrictBool | StrictInt | StrictFloat | StrictStr
    comment: Annotated[str, Field(max_length=100_000)] | None = None
    reasons: Annotated[tuple[str, ...], Field(max_length=50)] = ()
    rater: Annotated[str, Field(min_length=1, max_length=800)] | None = None
    source: Literal["human", "model", "code"] = "human"
    consent: Consent | None = None
    """Defaults to what the rating needs: who types a comment here wants it read."""


@dataclass(frozen=True)
class Given:
    id: str
    revision: int
    event: str | None
    """The id of the fact that says so; its source is SOURCE. None once withdrawn."""


@dataclass(frozen=True)
class Feedback:
    """Gives ratings their identity and revision; the facts themselves go through the one door."""

    engine: Engine
    intake: Intake

    def give(self, rating: Rating, *, rater: str) -> Given:
        """The rating is durable and is the rater's current one; the same again changes nothing.

        Raises: BadInput for a comment that the stated consent forbids, Unavailable.
        """
        if rating.comment and rating.consent == "metrics":
            raise BadInput.of("comment", "is content; needs consent 'code' or 'training'")
        key = _digest(rater, rating.target.kind, rating.target.id, rating.name)
        said = _digest(rating.model_dump_json(exclude={"rater"}))
        with writing(self.engine) as connection:
            row = connection.execute(select(_FEEDBACK).where(_FEEDBACK.c.id == key)).one_or_none()
            if row is not None and row.said == said and row.fact is not None:
                return Given(key, row.revision, row.fact)
            revision = row.revision + 1 if row else 1
            # Said is part of the id: after a crash before commit, another value is another fact.
            fact = f"{key}-{revision}-{said[:8]}"
            self.intake.take_own(
                _submitted(rating, rater, fact, revision, row.fact if row else None)
            )
            connection.execute(delete(_FEEDBACK).where(_FEEDBACK.c.id == key))
            connection.execute(
                insert(_FEEDBACK).values(id=key, revision=revision, said=said, fact=fact)
            )
        return Given(key, revision, fact)

    def withdraw(self, feedback_id: str) -> Given:
        """The rating no longer counts; its history is kept. Raises: NotFound, Unavailable."""
        with writing(self.engine) as connection:
            row = connection.execute(
                select(_FEEDBACK).where(_FEEDBACK.c.id == feedback_id)
            ).one_or_none()
            if row is None:
                raise NotFound(f"no feedback {feedback_id}")
            if row.fact is not None:
                self.intake.take_own(
                    _envelope("withdrawn", f"{row.fact}-withdrawn", feedback_id)
                    | {"data": {"supersedes": row.fact}}
                )
                connection.execute(
                    _FEEDBACK.update().where(_FEEDBACK.c.id == feedback_id).values(fact=None)
                )
        return Given(feedback_id, row.revision, None)


def _submitted(
    rating: Rating, rater: str, fact: str, revision: int, supersedes: str | None
) -> Mapping[str, Any]:
    value, label = _score(rating.value)
    data: dict[str, Any] = {
        "target": rating.target.model_dump(),
        "gen_ai.evaluation.name": rating.name,
        "gen_ai.evaluation.score.value": value,
        "gen_ai.evaluation.score.label": label,
        "gen_ai.evaluation.explanation": rating.comment,
        "rater": rater,
        "rater_source": rating.source,
        "reasons": list(rating.reasons),
        "revision": revision,
        "supersedes": supersedes,
    }
    consent = rating.consent or ("code" if rating.comment else "metrics")
    return _envelope("submitted", fact, rating.target.id) | {
        "consent": consent,
        "data": {name: field for name, field in data.items() if field not in (None, [])},
    }


def _score(value: bool | float | str) -> tuple[float | None, str | None]:
    """A thumb is 1 or 0 with its label; a word is a label without a number."""
    if isinstance(value, bool):
        return float(value), "up" if value else "down"
    return (None, value) if isinstance(value, str) else (float(value), None)


def _envelope(verb: str, fact: str, subject: str) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": fact,
        "source": SOURCE,
        "type": f"thumbwheel.feedback.{verb}.v1",
        "time": datetime.now(UTC).isoformat(),
        "subject": subject,
        "dataschema": SCHEMA_URI,
        "partitionkey": subject,
    }


def _digest(*parts: str) -> str:
    text = json.dumps(parts).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
