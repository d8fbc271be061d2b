"""The ClickHouse store: an engine in this process (`chdb:///folder`) or a server, the same SQL."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Self

import clickhouse_connect
import clickhouse_connect.common
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from ingest.errors import Unavailable
from ingest.intake import FactId

log = logging.getLogger(__name__)

_CODE = re.compile(r"Code: \d+")
_NAME = "0123456789abcdefghijklmnopqrstuvwxyz_"


@contextmanager
def _boundary(doing: str) -> Iterator[None]:
    try:
        yield
    except (ClickHouseError, OSError) as error:
        # The engine's own words hold the statement; they are for the log, not for a client.
        log.warning("store: %s: %s", doing, error)
        code = _CODE.search(str(error))
        raise Unavailable(f"store: {doing} failed{f' ({code[0]})' if code else ''}") from error


def _exact(value: object) -> object:
    """The client cuts times to the second when it binds them; as text they keep their microseconds."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return value


@dataclass
class Store:
    """Facts, kept. Safe to share between threads; the engine in the process queues its callers."""

    _client: Client
    _database: str

    @classmethod
    def open(cls, dsn: str, *, database: str = "thumbwheel") -> Self:
        """Ready for questions, with every migration applied.

        Args:
            dsn: `chdb:///folder` (one process per folder) or `clickhouse://user:secret@host:port`.
            database: Its name there; made when missing.

        Raises: Unavailable; its text never holds the secret of the dsn.
        """
        if not database or set(database) - set(_NAME):
            raise ValueError("database: use a-z, 0-9 and _")
        # A session would let one question of this process wait for another.
        clickhouse_connect.common.set_setting("autogenerate_session_id", False)
        with _boundary("opening"):
            admin = clickhouse_connect.get_client(dsn=dsn)
            admin.command(f"CREATE DATABASE IF NOT EXISTS {database}")
            admin.close()
            client = clickhouse_connect.get_client(dsn=dsn, database=database)
        store = cls(client, database)
        store.migrate()
        return store

    def migrate(self) -> None:
        """Numbered files of `ingest/migrations`, each once, in order."""
        with _boundary("migrating"):
            self._client.command(
                "CREATE TABLE IF NOT EXISTS migrations (name String, at DateTime DEFAULT now()) "
                "ENGINE = MergeTree ORDER BY name"
            )
            done = {row[0] for row in self._client.query("SELECT name FROM migrations").result_rows}
            folder = files("ingest") / "migrations"
            for file in sorted(folder.iterdir(), key=lambda file: file.name):
                if file.name.endswith(".sql") and file.name not in done:
                    for statement in file.read_text().split(";\n"):
                        if statement.strip():
                            self._client.command(statement)
                    self._client.insert("migrations", [[file.name]], column_names=["name"])

    def insert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, token: str
    ) -> None:
        """The rows are stored; the same token again inserts nothing. Raises: Unavailable."""
        with _boundary(f"inserting into {table}"):
            self._client.insert(
                table, rows, column_names=columns, settings={"insert_deduplication_token": token}
            )

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        """The answer to a question; values are bound as `{name:Type}`. Raises: Unavailable."""
        with _boundary("reading"):
            bound = {name: _exact(value) for name, value in parameters.items()}
            return list(self._client.query(sql, parameters=bound).named_results())

    def command(self, sql: str, **parameters: object) -> None:
        """The statement has been carried out, mutations included. Raises: Unavailable."""
        with _boundary("changing"):
            bound = {name: _exact(value) for name, value in parameters.items()}
            self._client.command(sql, parameters=bound, settings={"mutations_sync": 2})

    def known(self, ids: Sequence[FactId]) -> set[FactId]:
        """Which of these facts are stored."""
        return set(self._count(ids, "events"))

    def counts(self, ids: Sequence[FactId]) -> dict[FactId, int]:
        """How many rows a question finds for each of these facts: 1, or no entry."""
        return self._count(ids, "events FINAL")

    def _count(self, ids: Sequence[FactId], table: str) -> dict[FactId, int]:
        rows = self.rows(
            f"SELECT source, id, count() AS n FROM {table} "
            "WHERE (source, id) IN arrayZip({sources:Array(String)}, {ids:Array(String)}) "
            "GROUP BY source, id",
            sources=[fact.source for fact in ids],
            ids=[fact.id for fact in ids],
        )
        return {FactId(row["source"], row["id"]): row["n"] for row in rows}

    def events(self, id: str, *, source: str | None = None) -> list[Mapping[str, Any]]:
        """Stored facts with this id: one, unless several sources chose the same id."""
        return list(
            self.rows(
                "SELECT source, received_at, sent_at, clock, position, if(raw = '', body, raw) AS text "
                "FROM events FINAL WHERE id = {id:String} "
                "AND ({source:String} = '' OR source = {source:String}) LIMIT 2",
                id=id,
                source=source or "",
            )
        )

    def drop(self) -> None:
        """The database and every fact in it are gone, and the store is closed."""
        with _boundary("dropping"):
            self._client.command(f"DROP DATABASE {self._database}")
        self.close()

    def close(self) -> None:
        self._client.close()
