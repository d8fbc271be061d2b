"""The ClickHouse store: an engine in this process (`chdb:///folder`) or a server, the same SQL."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import clickhouse_connect
import clickhouse_connect.common
import numpy as np
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from ingest._known import FactId, Hashes
from ingest._schema import lifetimes, migrations, on_cluster
from ingest._store_wall import is_torn, store_wall
from ingest.errors import Unavailable

_NAME = "0123456789abcdefghijklmnopqrstuvwxyz_"
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2262, 1, 1, tzinfo=UTC)
"""What a column of times can hold."""
_MIGRATION_S = 30
_MOST_ASKED = 30_000
"""Characters, each of which may be three bytes, quoted and in a url."""
_OF_IDS = "WHERE (source, id) IN arrayZip({sources:Array(String)}, {ids:Array(String)})"
_PATIENCE: dict[str, Any] = {"connect_timeout": 5, "send_receive_timeout": 60}
"""Seconds; by default a server that hangs would hold a stop up for five minutes."""
_AS_WRITTEN = {
    "query_plan_join_swap_table": "false",  # it guesses badly which side of a join is the smaller one
    "optimize_and_compare_chain": "0",  # of a report's statement it takes longer than to parse it
}
_INSERT = {
    "async_insert": 0,  # an answer before the rows are stored would let offsets run ahead
    "optimize_on_insert": 1,  # a part holds a fact once; reports rest on it
    "distributed_foreground_insert": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
}


def _exact(value: object) -> object:
    """The client cuts times to the second when it binds them; as text they keep their microseconds."""
    if not isinstance(value, datetime):
        return value
    return min(max(value, EARLIEST), LATEST).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _part(name: str) -> str:
    """The name of a part as the engine gave it, which takes no bound value there."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise Unavailable(f"store: no part is called {name[:100]!r}")
    return name


def _askable(ids: Sequence[FactId]) -> Iterator[Sequence[FactId]]:
    """Parts that a server takes as one bound value: it refuses more than 128 KiB."""
    first = size = 0
    for number, fact in enumerate(ids):
        size += max(len(fact.source), len(fact.id)) + 4
        if size > _MOST_ASKED:
            yield ids[first:number]
            first, size = number, 0
    if first < len(ids):
        yield ids[first:]


@dataclass
class Store:
    """Facts, kept. Safe to share between threads; the engine in the process queues its callers."""

    _client: Client
    _database: str
    _cluster: str = ""
    torn: bool = field(default=False, init=False)
    """A question met a part that cannot be read."""
    restore: Callable[[str], str] = str
    """An event's text with the large values that are kept elsewhere in their places."""

    @classmethod
    def open(
        cls, dsn: str, *, database: str = "thumbwheel", cluster: str = "", keep: str = ""
    ) -> Self:
        """Ready for questions, with every migration applied.

        Args:
            dsn: `chdb:///folder` (one process per folder) or `clickhouse://user:secret@host:port`.
            database: Its name there; made when missing.
            cluster: The ClickHouse cluster that holds the tables, replicated and sharded; none if "".
            keep: How many days facts are kept, by consent, as `Settings.keep` has it.

        Raises: Unavailable; its text never holds the secret of the dsn. BadInput for cluster, keep.
        """
        if not database or set(database) - set(_NAME):
            raise ValueError("database: use a-z, 0-9 and _")
        # A session would let one question of this process wait for another.
        clickhouse_connect.common.set_setting("autogenerate_session_id", False)
        with store_wall("opening"):
            patience: dict[str, Any] = {} if dsn.startswith("chdb:") else _PATIENCE
            client = clickhouse_connect.get_client(dsn=dsn, **patience)
            where = f" ON CLUSTER {cluster}" if cluster else ""
            client.command(f"CREATE DATABASE IF NOT EXISTS {database}{where}")
            # Not by a second client: to open the engine in this process takes half a second.
            client.database = database
        store = cls(client, database, cluster)
        store.migrate()
        store.keep(keep)
        return store

    def migrate(self) -> None:
        """Numbered files of `ingest/migrations`, each once, in order; another's are waited for."""
        with store_wall("migrating"):
            self._client.command(
                "CREATE TABLE IF NOT EXISTS migrations (name String, at DateTime DEFAULT now()) "
                "ENGINE = MergeTree ORDER BY name"
            )
            for name, statements in migrations():
                try:
                    self._migrate(name, statements)
                except ClickHouseError as error:
                    if "Code: 57" not in str(error):  # TABLE_ALREADY_EXISTS
                        raise
                    self._await_migration(name, error)

    def _migrate(self, name: str, statements: Sequence[str]) -> None:
        if not self._migrated(name):
            for statement in statements:
                self._run(statement)
            self._client.insert("migrations", [[name]], column_names=["name"])

    def _migrated(self, name: str) -> bool:
        sql = "SELECT count() FROM migrations WHERE name = {name:String}"
        return bool(self._client.query(sql, parameters={"name": name}).result_rows[0][0])

    def _await_migration(self, name: str, error: ClickHouseError) -> None:
        """A process that started at the same moment makes the same tables."""
        ends = time.monotonic() + _MIGRATION_S
        while not self._migrated(name):
            if time.monotonic() > ends:
                raise error
            time.sleep(0.1)

    def keep(self, keep: str) -> None:
        """Facts go when the days of their consent are over. Raises: BadInput, Unavailable."""
        wanted = lifetimes(keep)
        with store_wall("setting how long facts are kept"):
            for table in ("events", "pointers"):
                had = self._client.command(
                    f"SHOW CREATE TABLE {table}{'_local' if self._cluster else ''}"
                )
                if wanted:
                    self._run(f"ALTER TABLE {table} MODIFY TTL {wanted}")
                elif "\\nTTL " in str(had):
                    self._run(f"ALTER TABLE {table} REMOVE TTL")

    def _run(self, statement: str) -> None:
        for each in on_cluster(statement, self._cluster):
            self._client.command(each)

    @property
    def _asking(self) -> dict[str, Any]:
        # A table over all shards may be asked within a question to another.
        asking = {"distributed_product_mode": "global"} if self._cluster else {}
        known = self._client.server_settings
        return asking | {name: value for name, value in _AS_WRITTEN.items() if name in known}

    def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, token: str
    ) -> None:
        """As `insert_columns`, for few rows."""
        values = dict(zip(columns, zip(*rows, strict=True), strict=True))
        self.insert_columns(table, values, token=token)

    def insert_columns(
        self, table: str, columns: Mapping[str, Sequence[Any]], *, token: str
    ) -> None:
        """The rows are stored; the same token again inserts nothing.

        Raises: Unavailable; Refused when it is the rows that the store cannot take.
        """
        with store_wall(f"inserting into {table}"):
            self._client.insert(
                table,
                list(columns.values()),
                column_names=list(columns),
                column_oriented=True,
                settings=_INSERT | {"insert_deduplication_token": token},
            )

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """The answer to a question; values are bound as `{name:Type}`. Raises: Unavailable."""
        with store_wall("reading"), self._doubting():
            bound = {name: _exact(value) for name, value in parameters.items()}
            answer = self._client.query(sql, parameters=bound, settings=self._asking)
            return list(answer.named_results())

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        try:
            yield
        except ClickHouseError as error:
            self.torn = self.torn or is_torn(error)
            raise

    def detach_part(self, table: str, part: str) -> None:
        """The part is set aside, and no question meets it. Raises: Unavailable."""
        self.command(f"ALTER TABLE {table} DETACH PART '{_part(part)}'")

    def drop_part(self, table: str, part: str) -> None:
        """A part that was set aside is gone. Raises: Unavailable."""
        self.command(
            f"ALTER TABLE {table} DROP DETACHED PART '{_part(part)}' SETTINGS allow_drop_detached=1"
        )

    def command(self, sql: str, **parameters: object) -> None:
        """The statement has been carried out, mutations included. Raises: Unavailable."""
        bound = {name: _exact(value) for name, value in parameters.items()}
        with store_wall("changing"):
            for each in on_cluster(sql, self._cluster):
                self._client.command(each, parameters=bound, settings={"mutations_sync": 2})

    def known(self, ids: Sequence[FactId]) -> set[FactId]:
        """Which of these facts are stored."""
        return set(self._count(ids, "events"))

    def counts(self, ids: Sequence[FactId]) -> dict[FactId, int]:
        """How many rows a question finds for each of these facts: 1, or no entry."""
        return self._count(ids, "events FINAL")

    def _count(self, ids: Sequence[FactId], table: str) -> dict[FactId, int]:
        sql = f"SELECT source, id, count() AS n FROM {table} " + _OF_IDS + " GROUP BY source, id"
        return {FactId(row["source"], row["id"]): row["n"] for row in self._asked(ids, sql)}

    def holds_any(self, columns: Mapping[str, Sequence[Any]]) -> bool:
        """Whether one of these rows is stored, with its place in the log. Rows that were inserted
        together are stored together, but may give way to earlier copies. Raises: Unavailable.
        """
        ids = list(map(FactId, columns["source"], columns["id"]))
        found = self._asked(ids, "SELECT DISTINCT position FROM events " + _OF_IDS)
        places = set(columns["position"])
        return any(row["position"] in places for row in found)

    def _asked(self, ids: Sequence[FactId], sql: str) -> Iterator[dict[str, Any]]:
        for part in _askable(ids):
            sources, names = map(list, zip(*part, strict=True))
            yield from self.rows(sql, sources=sources, ids=names)

    def hashes(self) -> Iterator[Hashes]:
        """Of all facts, block by block, as `Known` wants them. Raises: Unavailable."""
        sql = (
            "SELECT reinterpretAsUInt64(substring(hash, 1, 8)), "
            "reinterpretAsUInt64(substring(hash, 9, 8)) FROM "
            "(SELECT murmurHash3_128(concat(source, char(0), id)) AS hash FROM events)"
        )
        with store_wall("reading"), self._client.query_np_stream(sql) as blocks:
            for block in blocks:
                yield np.asarray(block, dtype=np.uint64)

    def events(self, id: str, *, source: str | None = None) -> list[dict[str, Any]]:
        """Stored facts with this id: one, unless several sources chose the same id."""
        found = self.rows(
            "SELECT source, received_at, sent_at, clock, position, if(raw = '', body, raw) AS text "
            "FROM events FINAL WHERE id = {id:String} "
            "AND ({source:String} = '' OR source = {source:String}) LIMIT 2",
            id=id,
            source=source or "",
        )
        return [row | {"text": self.restore(row["text"])} for row in found]

    def drop(self) -> None:
        """The database and every fact in it are gone, and the store is closed."""
        with store_wall("dropping"):
            self._client.command(f"DROP DATABASE {self._database}")
        self.close()

    def close(self) -> None:
        self._client.close()
