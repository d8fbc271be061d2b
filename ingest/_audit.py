"""What operators did, and what was refused to those who are none. It never holds a secret."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Engine, Integer, String, Table, insert, select

from ingest.control import METADATA, reading, utc_now, writing

SERVER = "server"
"""Stands for the key where the server itself acts."""

_AUDIT = Table(
    "audit",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("at", String, nullable=False),
    Column("key_id", String, nullable=False),
    Column("action", String, nullable=False),
    Column("target", String, nullable=False),
    Column("outcome", String, nullable=False),
)


@dataclass(frozen=True)
class Audit:
    """Entries are added and read, never changed."""

    engine: Engine

    def note(
        self,
        action: str,
        target: str,
        *,
        key_id: str = SERVER,
        outcome: str = "done",
        within: Connection | None = None,
    ) -> None:
        """The entry is kept; `within` the transaction of the change where it has one.

        Args:
            action: A noun and a verb: `key.create`, `dead_letter.replay`, `user.erase`.
            target: What it was done to: an id, never content and never a secret.
            key_id: Of the key that asked.
            outcome: `done`, `refused`, or what came of it.
            within: The open transaction of the change.

        Raises: Unavailable.
        """
        entry = insert(_AUDIT).values(
            at=utc_now(), key_id=key_id, action=action, target=target[:800], outcome=outcome[:800]
        )
        if within is not None:
            within.execute(entry)
            return
        with writing(self.engine) as connection:
            connection.execute(entry)

    def newest(self, *, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """Entries with a number under `before`, newest first. Raises: Unavailable."""
        question = select(_AUDIT).order_by(_AUDIT.c.number.desc()).limit(limit)
        if before is not None:
            question = question.where(_AUDIT.c.number < before)
        with reading(self.engine) as connection:
            return [dict(row) for row in connection.execute(question).mappings()]
