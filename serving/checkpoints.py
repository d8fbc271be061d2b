"""The registry of checkpoints: which engine answers for which, and who is champion."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, TypeAdapter, field_validator
from sqlalchemy import Column, Engine, String, Table, Text, delete, insert, select
from sqlalchemy.exc import IntegrityError

from ingest.control import METADATA, reading, utc_now, writing
from ingest.errors import Conflict, NotFound

_ID = "[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}"
ROUTE = "agent"
"""The model name that lets experiments choose the checkpoint."""
CHAMPION = "champion"

_CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    Column("id", String, primary_key=True),
    Column("definition", Text, nullable=False),
    Column("created_at", String, nullable=False),
)
_ALIASES = Table(
    "checkpoint_aliases",
    METADATA,
    Column("alias", String, primary_key=True),
    Column("checkpoint", String, nullable=False),
)


class EngineAt(BaseModel):
    """An OpenAI-compatible engine that runs already; `url` ends before `/chat/completions`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["openai", "vllm", "transformers"] = "openai"
    url: AnyHttpUrl
    model: str | None = None
    """What the engine calls it; the checkpoint's id when left out."""
    api_key: Annotated[str, Field(pattern=r"^[!-~]*$")] | None = Field(None, repr=False)
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 600

    @field_validator("url")
    @classmethod
    def _url_holds_no_secret(cls, url: AnyHttpUrl) -> AnyHttpUrl:
        if url.username or url.password:
            raise ValueError("the url is shown to others; put the engine's key in `api_key`")
        return url


class Checkpoint(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=f"^{_ID}$")]
    engine: EngineAt
    parent: str | None = None
    dataset: str | None = None
    run: str | None = None

    def public(self) -> dict[str, Any]:
        """Without the engine's secret."""
        known = self.model_dump(mode="json")
        known["engine"]["api_key"] = "set" if self.engine.api_key else None
        return known


_CHECKPOINT: TypeAdapter[Checkpoint] = TypeAdapter(Checkpoint)


@dataclass(frozen=True)
class Checkpoints:
    engine: Engine

    def add(self, checkpoint: Checkpoint) -> None:
        """Registered for good: what a checkpoint is never changes. Raises: Conflict."""
        if checkpoint.id == ROUTE or checkpoint.id in self.aliases():
            raise Conflict(f"{checkpoint.id!r} is the route or an alias; use another id")
        try:
            with writing(self.engine) as connection:
                connection.execute(
                    insert(_CHECKPOINTS).values(
                        id=checkpoint.id,
                        definition=checkpoint.model_dump_json(),
                        created_at=utc_now(),
                    )
                )
        except IntegrityError as error:
            raise Conflict(f"checkpoint {checkpoint.id!r} exists; use another id") from error

    def get(self, checkpoint_id: str) -> Checkpoint:
        """Raises: NotFound."""
        question = select(_CHECKPOINTS.c.definition).where(_CHECKPOINTS.c.id == checkpoint_id)
        definition = None
        # Other names may hold what no database takes: NUL, half a character.
        if re.fullmatch(_ID, checkpoint_id):
            with reading(self.engine) as connection:
                definition = connection.execute(question).scalar_one_or_none()
        if definition is None:
            raise NotFound(
                f"no checkpoint {checkpoint_id[:200]!r}; `thumbwheel checkpoint list` shows them"
            )
        return _CHECKPOINT.validate_json(definition)

    def exists(self, checkpoint_id: str) -> bool:
        question = select(_CHECKPOINTS.c.id).where(_CHECKPOINTS.c.id == checkpoint_id)
        with reading(self.engine) as connection:
            return connection.execute(question).one_or_none() is not None

    def all(self) -> list[Checkpoint]:
        """Oldest first."""
        question = select(_CHECKPOINTS.c.definition).order_by(_CHECKPOINTS.c.created_at)
        with reading(self.engine) as connection:
            return [
                _CHECKPOINT.validate_json(text) for text in connection.execute(question).scalars()
            ]

    def alias(self, checkpoint_id: str, alias: str) -> None:
        """The alias means this checkpoint from now on. Raises: NotFound, Conflict."""
        self.get(checkpoint_id)
        if alias == ROUTE or any(alias == each.id for each in self.all()):
            raise Conflict(f"{alias!r} is the route or a checkpoint; use another alias")
        with writing(self.engine) as connection:
            connection.execute(delete(_ALIASES).where(_ALIASES.c.alias == alias))
            connection.execute(insert(_ALIASES).values(alias=alias, checkpoint=checkpoint_id))

    def aliases(self) -> dict[str, str]:
        """Checkpoint id by alias."""
        with reading(self.engine) as connection:
            rows = connection.execute(select(_ALIASES)).all()
            return {row.alias: row.checkpoint for row in rows}
