"""The file of a local log: its tables, its settings, and what remains of what was deleted."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from ingest.errors import Unavailable

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    offset INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL, value BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS offsets (
    grp TEXT PRIMARY KEY, offset INTEGER NOT NULL, intended INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""
_LOCKED_S = 2.0
"""How long a write waits for another program that holds the file, a backup for instance."""
_WAL_BYTES = 32 * 1024 * 1024
"""After so much a commit also moves what was written to the file itself."""
_CHUNK_BYTES = 2 * 1024 * 1024
"""What is trimmed in one transaction: appends wait for no more than that."""


class Progress(NamedTuple):
    """Last offsets: of what a group has done, and of the batch that it intends after that."""

    committed: int = 0
    intended: int = 0


class Committed(NamedTuple):
    """Records that a group has done and that are there still: the last, keys and values."""

    last: int = 0
    size: int = 0


class Chunk(NamedTuple):
    """What goes in one transaction: all before it that is left, too."""

    last: int
    size: int


@contextmanager
def sqlite_wall(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Unavailable(f"{doing}: {error}") from error


def connect(path: str) -> sqlite3.Connection:
    """A connection for any thread, one at a time; transactions are begun by hand."""
    return sqlite3.connect(path, timeout=_LOCKED_S, isolation_level=None, check_same_thread=False)


def prepare(connection: sqlite3.Connection) -> int:
    """The tables are there and every commit waits for the disk. Gives the last offset in use."""
    # Of a new file. Measured with values of 30 kB: a third more appends than with the usual 4 kB.
    connection.execute("PRAGMA page_size = 16384")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # On macOS fsync leaves data in the drive's cache; elsewhere this does nothing.
    connection.execute("PRAGMA fullfsync = ON")
    # Values are tens of kB: at the usual 4 MB every hundredth append would pay for a checkpoint.
    page = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_BYTES // page}")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    # What is trimmed is overwritten, not only let go of.
    connection.execute("PRAGMA secure_delete = ON")
    connection.executescript(_SCHEMA)
    if len(connection.execute("PRAGMA table_info(offsets)").fetchall()) == 2:
        # A file from before batches were intended.
        connection.execute("ALTER TABLE offsets ADD COLUMN intended INTEGER NOT NULL DEFAULT 0")
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'").fetchone()
    return int(row[0]) if row else 0


def measured(connection: sqlite3.Connection, before: Committed, last: int) -> Committed:
    """What is committed when the last such record is `last`. Only what came since is read."""
    known = before if before.last <= last else Committed()
    sql = """
        SELECT coalesce(sum(length(key) + length(value)), 0) FROM records
        WHERE offset > ? AND offset <= ?
    """
    size = connection.execute(sql, (known.last, last)).fetchone()[0]
    return Committed(last, known.size + size)


def chunks(connection: sqlite3.Connection, committed: Committed, keep_bytes: int) -> list[Chunk]:
    """The oldest records, until at most `keep_bytes` remain."""
    found: list[Chunk] = []
    left = committed.size
    last = size = 0
    sql = "SELECT offset, length(key) + length(value) FROM records WHERE offset <= ? ORDER BY 1"
    with closing(connection.execute(sql, (committed.last,))) as rows:
        while (left > keep_bytes or not keep_bytes) and (row := rows.fetchone()):
            last, size, left = row[0], size + row[1], left - row[1]
            if size > _CHUNK_BYTES:
                found.append(Chunk(last, size))
                size = 0
    return [*found, Chunk(last, size)] if last else found


def rewrite(connection: sqlite3.Connection) -> None:
    """Only what is in the log is in its files, and they are no larger than that.

    A page keeps copies of rows that SQLite moved to a neighbour, and the WAL has every page.
    Appends wait meanwhile. Raises: Unavailable when another program reads the file.
    """
    connection.execute("VACUUM")
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise Unavailable("trim the log: another program reads the file")
