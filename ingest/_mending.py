"""Puts back what a torn disk took out of the engine in this process, from the log that still has it.

The engine notices a part that was written badly when it reads it or when it starts, and sets it
aside with all the facts in it. The log keeps the last of them for longer than that takes.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ingest.drain import Drain, Sink
from ingest.errors import Unavailable
from ingest.log import Log
from ingest.store import Store

logger = logging.getLogger(__name__)

_TABLES = ["events", "pointers", "dead_letters", "dead_letter_replays"]
_PARTS = """
SELECT table, name FROM system.parts
WHERE active AND database = currentDatabase() AND table IN {tables:Array(String)}
"""
_ASIDE = """
SELECT table, name, ifNull(reason, '') AS reason FROM system.detached_parts
WHERE database = currentDatabase() AND table IN {tables:Array(String)}
ORDER BY table, name
"""
_READ = "SELECT count() FROM {table} WHERE _part = {{part:String}} AND NOT ignore(*)"


@dataclass(frozen=True)
class _Again:
    """The store, for batches that it has taken before: their own tokens would insert nothing."""

    store: Sink
    name: str

    def insert_columns(
        self, table: str, columns: Mapping[str, Sequence[object]], *, token: str
    ) -> None:
        self.store.insert_columns(table, columns, token=f"{token}/{self.name}")

    def holds_any(self, _: Mapping[str, Sequence[Any]]) -> bool:
        # What other batches brought before is at the same places of the log.
        return False


@dataclass
class Mending:
    """Of a store that is a folder of this process. A server's parts are its own replicas' business."""

    log: Log
    store: Store

    def turn(self) -> int:
        """No part is set aside; how many records of the log were stored again for that.

        Raises: Unavailable; the rest is done at the next turn, after a crash as well.
        """
        if self.store.torn:
            self._set_aside()
            self.store.torn = False
        aside = self.store.rows(_ASIDE, tables=_TABLES)
        if not aside:
            return 0
        logger.error(
            "the disk has torn %d parts of the store: %s; storing again what the log has",
            len(aside),
            ", ".join(f"{part['table']}/{part['name']}" for part in aside),
        )
        stored = self._store_again(str(aside))
        for part in aside:
            self.store.drop_part(part["table"], part["name"])
        logger.warning("%d records of the log were stored again", stored)
        return stored

    def _set_aside(self) -> None:
        for part in self.store.rows(_PARTS, tables=_TABLES):
            try:
                self.store.rows(_READ.format(table=part["table"]), part=part["name"])
            except Unavailable:
                self.store.detach_part(part["table"], part["name"])

    def _store_again(self, parts: str) -> int:
        # A group of its own starts where the log does, and after a crash goes on where it was.
        name = blake2b(parts.encode(), digest_size=8).hexdigest()
        group = f"mending-{name}"
        consumer = self.log.consumer(group)
        stored = 0
        try:
            job = Drain(consumer, _Again(self.store, name))
            while self.log.lag(group):
                stored += job.step(timeout_s=1)
        finally:
            consumer.close()
        return stored
