"""The proof of an erasure: every place is scanned for the names, and what was scanned is said."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pyarrow.parquet as pq
from sqlalchemy import Engine, MetaData, String, select

from ingest._mentions import Mentions
from ingest.control import reading
from ingest.errors import Unavailable
from ingest.settings import Settings
from ingest.store import Store

LIMITS = (
    "backups and copies that people made, downloaded datasets among them, are not seen",
    "checkpoints trained before keep what they learned; `derived` lists what they were made from",
    "logs of this server and of a ClickHouse or PostgreSQL server may hold names until they rotate",
    "inactive parts of the store's tables stay on disk until the engine removes them",
    "a file system or a drive may keep freed blocks",
)
KAFKA_LIMIT = (
    "Kafka: records are out of reach of readers; segment files go when brokers delete them"
)
POSTGRESQL_LIMIT = "PostgreSQL: rows that were changed stay in its files until a vacuum"

_COLUMNS = """
SELECT table, name, startsWith(type, 'Array') OR startsWith(type, 'Map') AS nested,
    table IN (
        SELECT table FROM system.columns WHERE database = currentDatabase() AND name = 'received_at'
    ) AS dated
FROM system.columns
WHERE database = currentDatabase() AND type LIKE '%String%' AND table IN (
    SELECT name FROM system.tables WHERE database = currentDatabase()
      AND (engine LIKE '%MergeTree' OR engine = 'Distributed') AND NOT endsWith(name, '_local')
)
ORDER BY table, position
"""
_PLAIN, _NESTED = "toString({column:Identifier})", "toJSONString({column:Identifier})"
_RECEIVED, _NEVER = "received_at", "toDateTime64('1970-01-01 00:00:00', 6, 'UTC')"
_COUNT = (
    "SELECT count() AS scanned, "
    "countIf(found AND received <= {until:DateTime64(6, 'UTC')}) AS hits, "
    "countIf(found AND received > {until:DateTime64(6, 'UTC')}) AS later FROM (SELECT "
    "TEXT AS text, RECEIVED AS received, "
    "text IN {names:Array(String)} OR match(text, {pattern:String}) AS found "
    "FROM {table:Identifier})"
)
_BY_IDENTITY = (
    "SELECT count() AS scanned, countIf(hex(sipHash128(source, id)) IN {digests:Array(String)} "
    "AND received_at <= {until:DateTime64(6, 'UTC')}) AS hits FROM events"
)
_STATEMENTS = (
    "SELECT count() AS scanned, countIf(match(command, {pattern:String})) AS hits "
    "FROM system.mutations WHERE database = currentDatabase()"
)
_INACTIVE = (
    "SELECT count() AS parts, sum(bytes_on_disk) AS bytes FROM system.parts WHERE NOT active "
    "AND database = currentDatabase() AND remove_time <= {until:DateTime64(6, 'UTC')}"
)


@dataclass(frozen=True)
class Place:
    """What was scanned, and how often a name was found: `later` in facts received after the request."""

    place: str
    how: str
    unit: str
    scanned: int
    hits: int
    later: int = 0


@dataclass(frozen=True)
class Search:
    """Looks for the names, wherever this server writes."""

    store: Store
    control: Engine
    settings: Settings
    mentions: Mentions
    until: datetime
    """When erasing was asked for: facts received later are not what it was about."""

    def everywhere_but_control(self, digests: Sequence[Sequence[str]]) -> Iterator[Place]:
        """Store, log, blobs, datasets. `digests` of the erased facts, in lists of bounded length.

        Raises: Unavailable.
        """
        yield from self._tables()
        yield self._by_identity(digests)
        (row,) = self.store.rows(_STATEMENTS, pattern=self.mentions.pattern)
        yield Place("store: statements", "the engine's list of changes, searched", "rows", **row)
        if database := sqlite_path(self.settings.log):
            yield from self._files("log", database)
        yield self._folder("blobs", self.settings.blobs)
        yield self._folder("datasets", f"file://{self.settings.data / 'datasets'}")

    def in_control(self) -> Iterator[Place]:
        """The control database, once it holds no name of a running erasure. Raises: Unavailable."""
        tables = MetaData()
        with reading(self.control) as connection:
            tables.reflect(connection)
            for table in tables.sorted_tables:
                texts = [column for column in table.columns if isinstance(column.type, String)]
                rows = hits = 0
                for row in connection.execute(select(*texts)) if texts else ():
                    rows += 1
                    hits += any(value and self.mentions.in_text(value) for value in row)
                yield Place(f"control: {table.name}", "each text compared", "rows", rows, hits)
        if self.control.dialect.name == "sqlite" and self.control.url.database:
            yield from self._files("control", Path(self.control.url.database))

    def limits(self) -> list[str]:
        kafka = [] if sqlite_path(self.settings.log) else [KAFKA_LIMIT]
        postgresql = [POSTGRESQL_LIMIT] if self.control.dialect.name == "postgresql" else []
        return [*LIMITS, *kafka, *postgresql]

    def _tables(self) -> Iterator[Place]:
        for row in self.store.rows(_COLUMNS):
            count = _COUNT.replace("TEXT", _NESTED if row["nested"] else _PLAIN)
            count = count.replace("RECEIVED", _RECEIVED if row["dated"] else _NEVER)
            table, column = row["table"], row["name"]
            (found,) = self.store.rows(
                count,
                table=table,
                column=column,
                names=list(self.mentions.names),
                pattern=self.mentions.pattern,
                until=self.until,
            )
            yield Place(
                f"store: {table}.{column}", "each value compared and searched", "rows", **found
            )

    def _by_identity(self, digests: Sequence[Sequence[str]]) -> Place:
        scanned = hits = 0
        for some in digests:
            (row,) = self.store.rows(_BY_IDENTITY, digests=some, until=self.until)
            scanned, hits = row["scanned"], hits + row["hits"]
        how = "each fact compared with the identities of the erased ones"
        return Place("store: events by identity", how, "rows", scanned, hits)

    def _files(self, name: str, database: Path) -> Iterator[Place]:
        """A SQLite database with what it keeps beside it."""
        for ending in ("", "-wal", "-shm"):
            file = database.with_name(database.name + ending)
            if file.exists():
                with file.open("rb") as stream:
                    size, hits = self.mentions.count(stream)
                yield Place(f"{name}: {file.name}", "every byte searched", "bytes", size, hits)

    def _folder(self, name: str, url: str) -> Place:
        files, path = fsspec.url_to_fs(url)
        size = hits = 0
        try:
            for file in files.find(path):
                with files.open(file, "rb") as stream:
                    read, found = _contents(file)(self.mentions, stream)
                size, hits = size + read, hits + found
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise Unavailable(f"{name}: reading failed") from error
        return Place(
            f"{name}: folder", "every byte searched, packed files unpacked", "bytes", size, hits
        )


def report(
    erasure: str, person: str, places: Sequence[Place], *, at: str, limits: Sequence[str]
) -> dict[str, Any]:
    """The proof, to be read and filed: `sha256` is of all the rest as JSON with sorted names.

    It names nobody: `person` is the salted digest that the erasure keeps.
    """
    proof = {
        "erasure": erasure,
        "person": person,
        "at": at,
        "places": [asdict(place) for place in places],
        "hits": sum(place.hits for place in places),
        "later": sum(place.later for place in places),
        "limits": list(limits),
    }
    text = json.dumps(proof, sort_keys=True, separators=(",", ":"))
    return proof | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def inactive_parts(store: Store, until: datetime) -> dict[str, Any]:
    """Parts that the engine replaced up to then and has not removed yet. Raises: Unavailable."""
    (row,) = store.rows(_INACTIVE, until=until)
    return row


def sqlite_path(url: str) -> Path | None:
    """The file behind a url of a log; None for another kind."""
    scheme, _, path = url.partition(":///")
    return Path(path) if scheme == "sqlite" else None


def _contents(file: str) -> Callable[[Mentions, BinaryIO], tuple[int, int]]:
    return _READERS.get(Path(file).suffix, Mentions.count)


def _unpacked(mentions: Mentions, stream: BinaryIO) -> tuple[int, int]:
    with gzip.GzipFile(fileobj=stream) as inner:
        return mentions.count(inner)  # type: ignore[arg-type] # it reads like any other


def _rows(mentions: Mentions, stream: BinaryIO) -> tuple[int, int]:
    size = hits = 0
    for batch in pq.ParquetFile(stream).iter_batches():
        size += batch.nbytes
        for row in batch.to_pylist():
            hits += mentions.in_text(json.dumps(row, default=str))
    return size, hits


_READERS = {".gz": _unpacked, ".parquet": _rows}
