"""The log of one machine: one SQLite file that one process has open."""

import sqlite3
import threading
import time
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
CREATE TABLE IF NOT EXISTS offsets (
    grp TEXT PRIMARY KEY, offset INTEGER NOT NULL, intended INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""
_LOCKED_S = 2.0
"""How long a write waits for another program that holds the file, a backup for instance."""
_CHUNK_BYTES = 8 * 1024 * 1024
"""What is trimmed in one transaction: appends wait for no more than that."""
_YIELD_S = 0.002
"""Between two chunks, or the lock would go straight back to who has just let it go."""


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


class _Progress(NamedTuple):
    """Last offsets: of what the group has done, and of the batch that it intends after that."""

    committed: int = 0
    intended: int = 0


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
        sql = "SELECT min(offset) FROM records"
        with self._writing, _sqlite_wall("measure the log"):
            first = self._connection.execute(sql).fetchone()[0]
            return (
                self._last + 1 - max(self._progress(group).committed + 1, first or self._last + 1)
            )

    def trim(self, group: str, *, keep_bytes: int = 0) -> int:
        gone = 0
        for last in self._chunks(self.progress(group).committed, keep_bytes):
            sql = "DELETE FROM records WHERE offset <= ?"
            with self._writing, _sqlite_wall("trim the log"), self._transaction():
                gone += self._connection.execute(sql, (last,)).rowcount
            time.sleep(_YIELD_S)
        if keep_bytes == 0:
            self._rewrite()
        return gone

    def _chunks(self, committed: int, keep_bytes: int) -> list[int]:
        """The last offset of each chunk that goes. Reading holds up no append."""
        sizes = "SELECT offset, length(key) + length(value) FROM records WHERE offset <= ?"
        with _sqlite_wall("trim the log"), closing(_connect(self._path)) as reading:
            found = reading.execute(sizes + " ORDER BY offset", (committed,)).fetchall()
        excess = sum(size for _, size in found) - keep_bytes
        chunks: list[int] = []
        chunk = 0
        for offset, size in found:
            if excess <= 0 < keep_bytes:
                break
            excess -= size
            chunk += size
            if not chunks or chunk > _CHUNK_BYTES:
                chunks.append(offset)
                chunk = size
            chunks[-1] = offset
        return chunks

    def _rewrite(self) -> None:
        """Only what is in the log is in its files.

        A page keeps copies of rows that SQLite moved to a neighbour, and the WAL has every page.
        """
        with self._writing, _sqlite_wall("trim the log"):
            self._connection.execute("VACUUM")
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise Unavailable("trim the log: another program reads the file")

    def close(self) -> None:
        with self._writing, _sqlite_wall("close the log"):
            self._connection.close()

    def progress(self, group: str) -> _Progress:
        with self._writing, _sqlite_wall("read the log"):
            return self._progress(group)

    def _progress(self, group: str) -> _Progress:
        sql = "SELECT offset, intended FROM offsets WHERE grp = ?"
        row = self._connection.execute(sql, (group,)).fetchone()
        return _Progress(*row) if row else _Progress()

    def note(self, group: str, progress: _Progress) -> None:
        """Durable is how far the group is."""
        sql = "REPLACE INTO offsets (grp, offset, intended) VALUES (?, ?, ?)"
        with self._writing, _sqlite_wall("commit to the log"), self._transaction():
            self._connection.execute(sql, (group, *progress))

    def wait_beyond(self, offset: int, timeout_s: float) -> int:
        """The last offset in use, once it is beyond `offset`; 0 if it is not within `timeout_s`."""
        with self._appended:
            beyond = self._appended.wait_for(lambda: self._last > offset, timeout_s)
            return self._last if beyond else 0


def _prepare(connection: sqlite3.Connection) -> int:
    """The tables are there and every commit waits for the disk. Gives the last offset in use."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # On macOS fsync leaves data in the drive's cache; elsewhere this does nothing.
    connection.execute("PRAGMA fullfsync = ON")
    # Values are tens of kB: at the usual 4 MB every hundredth append would pay for a checkpoint.
    connection.execute("PRAGMA wal_autocheckpoint = 8000")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    # What is trimmed is overwritten, not only let go of.
    connection.execute("PRAGMA secure_delete = ON")
    connection.executescript(_SCHEMA)
    if len(connection.execute("PRAGMA table_info(offsets)").fetchall()) == 2:
        # A file from before batches were intended.
        connection.execute("ALTER TABLE offsets ADD COLUMN intended INTEGER NOT NULL DEFAULT 0")
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'").fetchone()
    return int(row[0]) if row else 0


class _LocalConsumer:
    """Reads on a connection of its own, so that no read waits for a write or holds one up."""

    def __init__(self, log: LocalLog, group: str, connection: sqlite3.Connection) -> None:
        self._log = log
        self._group = group
        self._connection = connection
        self._progress = log.progress(group)
        self._polled = self._progress.committed

    def poll(self, *, max_records: int, max_bytes: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while last := self._log.wait_beyond(self._polled, deadline - time.monotonic()):
            if self._polled < self._progress.intended:
                last, max_records, max_bytes = self._progress.intended, -1, 0
            records = self._read(last, max_records, max_bytes)
            # None is left where another group's trim came first.
            self._polled = records[-1].offset if records else last
            if records:
                return records
        return []

    def _read(self, last: int, max_records: int, max_bytes: int) -> list[Record]:
        """What is next, until `last`; all of it if `max_records` is negative."""
        records: list[Record] = []
        size = 0
        sql = (
            "SELECT offset, key, value FROM records"
            " WHERE offset > ? AND offset <= ? ORDER BY offset LIMIT ?"
        )
        # An open cursor would keep the file from shrinking.
        with (
            _sqlite_wall("read the log"),
            closing(self._connection.execute(sql, (self._polled, last, max_records))) as rows,
        ):
            for offset, key, value in rows:
                size += len(value)
                if max_records > 0 and records and size > max_bytes:
                    break
                text = key.decode("utf-8", "surrogatepass")
                records.append(Record(0, offset, text, value))
        return records

    def intend(self) -> None:
        self._note(self._progress._replace(intended=self._polled))

    def commit(self) -> None:
        self._note(_Progress(committed=self._polled))

    def _note(self, progress: _Progress) -> None:
        if self._polled != self._progress.committed:
            self._log.note(self._group, progress)
            self._progress = progress

    def rewind(self) -> None:
        self._polled = self._progress.committed

    def close(self) -> None:
        with _sqlite_wall("close the log"):
            self._connection.close()
