"""Feedback that means what its rater last said: revised, withdrawn, early or years late."""

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from sqlalchemy import Column, Connection, Engine, Integer, String, Table, insert, select, update

from ingest._editor_facts import Target
from ingest.control import METADATA, utc_now, writing
from ingest.errors import BadInput, Conflict, NotFound, ThumbwheelError, Unavailable
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
_USED_LINKS = Table(
    "feedback_links_used",
    METADATA,
    Column("id", String, primary_key=True),  # of link and rater: no person is named here
    Column("feedback", String, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("said", String, nullable=False),
    Column("fact", String, nullable=False),
    Column("at", String, nullable=False),
)

Name = Annotated[str, Field(min_length=1, max_length=200)]
Rater = Annotated[str, Field(min_length=1, max_length=800)]
Comment = Annotated[str, Field(max_length=60_000)]
Value = (
    StrictBool
    | Annotated[StrictInt, Field(ge=-(2**53), le=2**53)]
    | Annotated[StrictFloat, Field(allow_inf_nan=False)]
    | Annotated[StrictStr, Field(min_length=1, max_length=1000)]
)


class Rated(Target):
    """What a rating is of."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(min_length=1, max_length=800)]


class Rating(BaseModel):
    """What a client sends. Its limits keep the fact within the 1 MiB of an event."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Rated
    name: Name = "thumb"
    value: Value
    comment: Comment | None = None
    reasons: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=50)] = ()
    rater: Rater | None = None
    source: Literal["human", "model", "code"] = "human"
    consent: Consent | None = None
    """Defaults to what the rating needs: who types a comment here wants it read."""


@dataclass(frozen=True)
class Given:
    id: str
    revision: int
    event: str | None
    """The id of the fact that says so; its source is SOURCE. None once withdrawn."""


class _Word(NamedTuple):
    rating: Rating
    rater: str
    link: str | None
    given: "Future[Given]"


@dataclass(frozen=True)
class Feedback:
    """Gives ratings their identity and revision; the facts themselves go through the one door.

    Ratings that come at the same time share a transaction and two fsyncs.
    """

    engine: Engine
    intake: Intake
    _queue: list[_Word] = field(default_factory=list, init=False)
    _queueing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def give(self, rating: Rating, *, rater: str, link: str | None = None) -> Given:
        """The rating is durable and is the rater's current one; the same again changes nothing.

        Through a `link`, which each rater can use once, only the same again is taken again.

        Raises: BadInput for a comment that the stated consent forbids, Conflict for a link that
            this rater used to say something else, Unavailable.
        """
        if rating.comment and rating.consent == "metrics":
            raise BadInput.of("comment", "is content; needs consent 'code' or 'training'")
        mine = _Word(rating, rater, link, Future())
        with self._queueing:
            self._queue.append(mine)
            leads = len(self._queue) == 1
        if leads:
            # All who come while the words before are being kept wait for this one to take theirs.
            with self._writing:
                with self._queueing:
                    words = self._queue[:]
                    self._queue.clear()
                self._keep(words)
        return mine.given.result()

    def _keep(self, words: Sequence[_Word]) -> None:
        """Each word has its outcome; those that were taken are durable."""
        answers: list[Given | Conflict] = []
        failed: ThumbwheelError = Unavailable("feedback: interrupted")
        try:
            with writing(self.engine) as connection:
                facts: list[Mapping[str, Any]] = []
                answers = [self._answer(connection, word, facts) for word in words]
                if facts:
                    self.intake.take_own(*facts)
            for word, answer in zip(words, answers, strict=True):
                if isinstance(answer, Given):
                    word.given.set_result(answer)
                else:
                    word.given.set_exception(answer)
        except Unavailable as error:
            failed = error
        except BadInput as error:
            failed = error
            if len(words) > 1:  # one of them: the others are as good as alone
                for word in words:
                    self._keep([word])
        finally:
            for word in words:
                if not word.given.done():
                    word.given.set_exception(failed)

    def _answer(
        self, connection: Connection, word: _Word, facts: list[Mapping[str, Any]]
    ) -> Given | Conflict:
        """What the word comes to; what has to be taken for it is added to `facts`."""
        said = _digest(word.rating.model_dump_json(exclude={"rater"}))
        use = _digest(word.link, word.rater) if word.link else None
        if use:
            used = connection.execute(
                select(_USED_LINKS).where(_USED_LINKS.c.id == use)
            ).one_or_none()
            if used is not None:
                same = used.said == said
                return Given(used.feedback, used.revision, used.fact) if same else _used_up()
        given = self._revise(connection, word, said, facts)
        if use:
            mark = {"id": use, "feedback": given.id, "revision": given.revision, "said": said}
            connection.execute(insert(_USED_LINKS).values(fact=given.event, at=utc_now(), **mark))
        return given

    def _revise(
        self, connection: Connection, word: _Word, said: str, facts: list[Mapping[str, Any]]
    ) -> Given:
        rating = word.rating
        key = _digest(word.rater, rating.target.kind, rating.target.id, rating.name)
        row = connection.execute(select(_FEEDBACK).where(_FEEDBACK.c.id == key)).one_or_none()
        if row is not None and row.said == said and row.fact is not None:
            return Given(key, row.revision, row.fact)
        revision = row.revision + 1 if row else 1
        # Said is part of the id: after a crash before commit, another value is another fact.
        fact = f"{key}-{revision}-{said[:8]}"
        envelope = self._envelope("submitted", fact, rating.target.id)
        facts.append(envelope | _submitted(rating, word.rater, revision, row.fact if row else None))
        state = {"revision": revision, "said": said, "fact": fact}
        change = update(_FEEDBACK).where(_FEEDBACK.c.id == key) if row else insert(_FEEDBACK)
        connection.execute(change.values(id=key, **state))
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
                    self._envelope("withdrawn", f"{row.fact}-withdrawn", feedback_id)
                    | {"data": {"supersedes": row.fact}}
                )
                connection.execute(
                    update(_FEEDBACK).where(_FEEDBACK.c.id == feedback_id).values(fact=None)
                )
        return Given(feedback_id, row.revision, None)

    def _envelope(self, verb: str, fact: str, subject: str) -> dict[str, Any]:
        return {
            "specversion": "1.0",
            "id": fact,
            "source": SOURCE,
            "type": f"thumbwheel.feedback.{verb}.v1",
            "time": self.intake.now().isoformat(),
            "subject": subject,
            "dataschema": SCHEMA_URI,
            "partitionkey": subject,
        }


def _used_up() -> Conflict:
    return Conflict(
        "this rater used this link before and said something else; "
        "ask for a new link, or change the rating in the editor"
    )


def _submitted(rating: Rating, rater: str, revision: int, supersedes: str | None) -> dict[str, Any]:
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
    return {
        "consent": rating.consent or ("code" if rating.comment else "metrics"),
        "data": {name: field for name, field in data.items() if field not in (None, [])},
    }


def _score(value: Value) -> tuple[float | None, str | None]:
    """A thumb is 1 or 0 with its label; a word is a label without a number."""
    if isinstance(value, bool):
        return float(value), "up" if value else "down"
    return (None, value) if isinstance(value, str) else (float(value), None)


def _digest(*parts: str) -> str:
    text = json.dumps(parts).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
