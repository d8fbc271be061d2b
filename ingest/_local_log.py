"""The log of one machine: one SQLite file that one process has open."""

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from ingest._local_file import (
    Committed,
    Progress,
    chunks,
    connect,
    measured,
    prepare,
    rewrite,
    sqlite_wall,
)
from ingest.errors import TooLarge, Unavailable
from ingest.log import MAX_ENTRY_BYTES, Consumer, Entry, Record, position

_YIELD_S = 0.002
"""Between two chunks of a trim, or the lock would go straight back to who has just let it go."""


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
        self._trimming = threading.Lock()
        self._committed = Committed()
        """As of the last trim."""
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
        with sqlite_wall(f"open the log {path}"):
            connection = connect(str(file))
            try:
                last = prepare(connection)
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
            leads = not self._queue
            self._queue.append(mine)
        # The first to queue up during a write does the next one, for all who came after it. They
        # wait for their own outcome only: a lock would wake them one by one, for a write of two.
        if leads:
            with self._writing:
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
        with sqlite_wall("open the log for reading"):
            return _LocalConsumer(self, group, connect(self._path))

    def lag(self, group: str) -> int:
        sql = "SELECT min(offset) FROM records"
        with self._writing, sqlite_wall("measure the log"):
            first = self._connection.execute(sql).fetchone()[0]
            return (
                self._last + 1 - max(self._progress(group).committed + 1, first or self._last + 1)
            )

    def trim(self, group: str, *, keep_bytes: int = 0) -> int:
        last = self.progress(group).committed
        gone = 0
        with self._trimming, sqlite_wall("trim the log"):
            with closing(connect(self._path)) as reading:
                self._committed = committed = measured(reading, self._committed, last)
                going = chunks(reading, committed, keep_bytes)
            for chunk in going:
                sql = "DELETE FROM records WHERE offset <= ?"
                with self._writing, self._transaction():
                    gone += self._connection.execute(sql, (chunk.last,)).rowcount
                self._committed = Committed(last, self._committed.size - chunk.size)
                time.sleep(_YIELD_S)
            if keep_bytes == 0:
                with self._writing:
                    rewrite(self._connection)
        return gone

    def close(self) -> None:
        with self._writing, sqlite_wall("close the log"):
            self._connection.close()

    def progress(self, group: str) -> Progress:
        with self._writing, sqlite_wall("read the log"):
            return self._progress(group)

    def _progress(self, group: str) -> Progress:
        sql = "SELECT offset, intended FROM offsets WHERE grp = ?"
        row = self._connection.execute(sql, (group,)).fetchone()
        return Progress(*row) if row else Progress()

    def note(self, group: str, progress: Progress) -> None:
        """Durable is how far the group is."""
        sql = "REPLACE INTO offsets (grp, offset, intended) VALUES (?, ?, ?)"
        with self._writing, sqlite_wall("commit to the log"), self._transaction():
            self._connection.execute(sql, (group, *progress))

    def wait_beyond(self, offset: int, timeout_s: float) -> int:
        """The last offset in use, once it is beyond `offset`; 0 if it is not within `timeout_s`."""
        with self._appended:
            beyond = self._appended.wait_for(lambda: self._last > offset, timeout_s)
            return self._last if beyond else 0


class _LocalConsumer:
    """Reads on a connection of its own, so that no read waits for a write or holds one up."""

    def __init__(self, log: LocalLog, group: str, connection: sqlite3.Connection) -> None:
        self._log = log
        self._group = group
        self._connection = connection
        self._progress = log.progress(group)
        self._polled = self._progress.committed
        self._again = False
        """What was polled since the last commit was intended before."""

    def poll(self, *, max_records: int, max_bytes: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while last := self._log.wait_beyond(self._polled, deadline - time.monotonic()):
            if self._polled < self._progress.intended:
                last, max_records, max_bytes = self._progress.intended, -1, 0
                self._again = True
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
            sqlite_wall("read the log"),
            closing(self._connection.execute(sql, (self._polled, last, max_records))) as rows,
        ):
            for offset, key, value in rows:
                size += len(value)
                if max_records > 0 and records and size > max_bytes:
                    break
                text = key.decode("utf-8", "surrogatepass")
                records.append(Record(0, offset, text, value))
        return records

    def intend(self) -> bool:
        self._note(self._progress._replace(intended=self._polled))
        return self._again

    def commit(self) -> None:
        self._note(Progress(committed=self._polled))
        self._again = False

    def _note(self, progress: Progress) -> None:
        if self._polled != self._progress.committed:
            self._log.note(self._group, progress)
            self._progress = progress

    def rewind(self) -> None:
        self._polled = self._progress.committed
        self._again = False

    def close(self) -> None:
        with sqlite_wall("close the log"):
            self._connection.close()
