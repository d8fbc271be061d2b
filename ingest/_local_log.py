"""The log of one machine: one SQLite file that one process has open."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from ingest.errors import TooLarge, Unavailable
from ingest.log import MAX_ENTRY_BYTES, Consumer, Entry, Record, position

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    offset INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL, value BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS offsets (grp TEXT PRIMARY KEY, offset INTEGER NOT NULL) WITHOUT ROWID;
"""
_LOCKED_S = 2.0
"""How long a write waits for another program that holds the file, a backup for instance."""


@contextmanager
def _sqlite_wall(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Unavailable(f"{doing}: {error}") from error


def _connect(path: str) -> sqlite3.Connection:
    """A connection for any thread, one at a time; transactions are begun by hand."""
    return sqlite3.connect(path, timeout=_LOCKED_S, isolation_level=None, check_same_thread=False)


class _Append(NamedTuple):
    entries: Sequence[Entry]
    outcome: "Future[str]"


class LocalLog:
    """A Log with one partition. It shares each fsync among the appends that came meanwhile."""

    def __init__(self, path: str, connection: sqlite3.Connection, last: int) -> None:
        self._path = path
        self._connection = connection
        self._writing = threading.Lock()
        self._queueing = threading.Lock()
        self._queue: list[_Append] = []
        self._last = last
        self._appended = threading.Condition()

    @classmethod
    def open(cls, path: str) -> Self:
        """The log in the file at `path`; file and folder are there afterwards.

        Raises: Unavailable when the file cannot be opened, or is something else.
        """
        file = Path(path).absolute()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"open the log {path}: {error}") from error
        with _sqlite_wall(f"open the log {path}"):
            connection = _connect(str(file))
            try:
                last = _prepare(connection)
            except sqlite3.Error:
                connection.close()
                raise
        return cls(str(file), connection, last)

    def append(self, entries: Sequence[Entry]) -> str:
        if not entries:
            return ""
        for entry in entries:
            if len(entry.value) > MAX_ENTRY_BYTES:
                raise TooLarge(f"{len(entry.value)} bytes; a record holds {MAX_ENTRY_BYTES}")
        mine = _Append(entries, Future())
        with self._queueing:
            self._queue.append(mine)
        # Whoever gets here next writes all that queued up during the write before. Those who
        # waited for that find their own done, and have paid for no fsync.
        with self._writing:
            if not mine.outcome.done():
                with self._queueing:
                    queue, self._queue = self._queue, []
                self._write(queue)
        return mine.outcome.result()

    def _write(self, queue: Sequence[_Append]) -> None:
        """Each outcome is set, all alike: positions after the commit, or errors and no entry."""
        detail = "append to the log: interrupted"
        try:
            with self._transaction():
                lasts = [self._insert(entries) for entries, _ in queue]
            for (_, outcome), last in zip(queue, lasts, strict=True):
                outcome.set_result(position(Record(0, last, "", b"")))
            with self._appended:
                self._last = lasts[-1]
                self._appended.notify_all()
        except sqlite3.Error as error:
            detail = f"append to the log: {error}"
        finally:
            for _, outcome in queue:
                if not outcome.done():
                    outcome.set_exception(Unavailable(detail))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Committed and fsynced, or as if it had not been. The caller holds `_writing`."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _insert(self, entries: Sequence[Entry]) -> int:
        last = 0
        for key, value in entries:
            row = (key.encode("utf-8", "surrogatepass"), value)
            sql = "INSERT INTO records (key, value) VALUES (?, ?) RETURNING offset"
            last = self._connection.execute(sql, row).fetchone()[0]
        return last

    def consumer(self, group: str) -> Consumer:
        with _sqlite_wall("open the log for reading"):
            return _LocalConsumer(self, group, _connect(self._path))

    def lag(self, group: str) -> int:
        sql = "SELECT coalesce(min(offset), 1) FROM records"
        with self._writing, _sqlite_wall("measure the log"):
            first = int(self._connection.execute(sql).fetchone()[0])
            return self._last - max(self._committed(group), first - 1)

    def close(self) -> None:
        with self._writing, _sqlite_wall("close the log"):
            self._connection.close()

    def committed(self, group: str) -> int:
        """The offset of the last record that the group has done; 0 when there is none."""
        with self._writing, _sqlite_wall("read the log"):
            return self._committed(group)

    def _committed(self, group: str) -> int:
        sql = "SELECT offset FROM offsets WHERE grp = ?"
        row = self._connection.execute(sql, (group,)).fetchone()
        return int(row[0]) if row else 0

    def commit(self, group: str, offset: int) -> None:
        """The group has done all up to `offset`, durably."""
        sql = "INSERT INTO offsets VALUES (?, ?) ON CONFLICT DO UPDATE SET offset = excluded.offset"
        with self._writing, _sqlite_wall("commit to the log"), self._transaction():
            self._connection.execute(sql, (group, offset))

    def wait_beyond(self, offset: int, timeout_s: float) -> bool:
        """There is a record after `offset`; False when none came within `timeout_s`."""
        with self._appended:
            return self._appended.wait_for(lambda: self._last > offset, timeout_s)


def _prepare(connection: sqlite3.Connection) -> int:
    """The tables are there and every commit waits for the disk. Gives the last offset in use."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # On macOS fsync leaves data in the drive's cache; elsewhere this does nothing.
    connection.execute("PRAGMA fullfsync = ON")
    # Values are tens of kB: at the usual 4 MB every hundredth append would pay for a checkpoint.
    connection.execute("PRAGMA wal_autocheckpoint = 8000")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.executescript(_SCHEMA)
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'").fetchone()
    return int(row[0]) if row else 0


class _LocalConsumer:
    """Reads on a connection of its own, so that no read waits for a write or holds one up."""

    def __init__(self, log: LocalLog, group: str, connection: sqlite3.Connection) -> None:
        self._log = log
        self._group = group
        self._connection = connection
        self._committed = log.committed(group)
        self._polled = self._committed

    def poll(self, *, max_records: int, max_bytes: int, timeout_s: float) -> list[Record]:
        if not self._log.wait_beyond(self._polled, timeout_s):
            return []
        records: list[Record] = []
        size = 0
        sql = "SELECT offset, key, value FROM records WHERE offset > ? ORDER BY offset LIMIT ?"
        # An open cursor would keep the file from shrinking.
        with (
            _sqlite_wall("read the log"),
            closing(self._connection.execute(sql, (self._polled, max_records))) as rows,
        ):
            for offset, key, value in rows:
                size += len(value)
                if records and size > max_bytes:
                    break
                text = key.decode("utf-8", "surrogatepass")
                records.append(Record(0, offset, text, value))
        if records:
            self._polled = records[-1].offset
        return records

    def commit(self) -> None:
        if self._polled != self._committed:
            self._log.commit(self._group, self._polled)
            self._committed = self._polled

    def rewind(self) -> None:
        self._polled = self._committed

    def close(self) -> None:
        with _sqlite_wall("close the log"):
            self._connection.close()
