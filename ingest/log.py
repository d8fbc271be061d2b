"""Where facts wait, in order and durable, until the store has them: one SQLite file, or Kafka."""

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ingest.errors import BadInput

MAX_ENTRY_BYTES = 24 * 1024 * 1024
"""Of one value: the largest request (20 MiB), and what the server adds to it."""


class Entry(NamedTuple):
    """What is appended: those facts of one request that share a key. A key keeps its order."""

    key: str
    value: bytes


class Record(NamedTuple):
    """What is read: an entry and its place. `topic` is Kafka's, or "local"."""

    partition: int
    offset: int
    key: str
    value: bytes
    topic: str = "local"


class Consumer(Protocol):
    """One reader of a group. For one thread at a time; a group of a local log has one reader."""

    def poll(self, *, max_records: int, max_bytes: int, timeout_s: float) -> list[Record]:
        """The next records of one partition, in order; empty after `timeout_s` without any.

        Partitions take turns, so one that has much holds up no other. At most `max_records`; the
        values together stay within `max_bytes`, but for a single record that is larger than that
        by itself. Neither limit splits or extends a batch that `intend` fixed.

        Raises: Unavailable; nothing is lost: rewind, and poll again. What was polled since the last
            commit is void, for the partitions may be another reader's.
        """

    def intend(self) -> bool:
        """What was polled since the last commit is one batch of each partition from now on.

        True when one of them was intended before it was polled, so it may have been stored already.

        Whoever reads the partition next, after a crash, a rewind or a rebalance, gets exactly its
        records, no more and no fewer, in the first poll of it. So their first and last offset name
        the same facts when an insert is repeated. A commit ends it. What is polled after `intend`
        and before the commit is not part of it.

        Raises: Unavailable; the batch is the earlier one or this one, whichever: rewind.
        """

    def commit(self) -> None:
        """Everything polled so far is done, durably: the group never gets it again.

        Raises: Unavailable; what was polled since the last commit may be polled again.
        """

    def rewind(self) -> None:
        """The next poll starts again after the last commit.

        Raises: Unavailable; rewind again before the next poll.
        """

    def close(self) -> None:
        """Nothing is committed by closing. Closing twice does nothing."""


class Log(Protocol):
    """Threads may share it. A consumer is closed before its log."""

    def append(self, entries: Sequence[Entry]) -> str:
        """Every entry is durable; the position of the last is returned, "" when there are none.

        Entries of one key are read in the order in which they were appended.

        Raises: Unavailable; append all of them again, for some may be in the log. TooLarge when an
            entry is more than the log can hold.
        """

    def consumer(self, group: str) -> Consumer:
        """A reader that starts after the group's last commit, or at the beginning.

        Raises: Unavailable.
        """

    def lag(self, group: str) -> int:
        """How many records the group has not committed yet.

        Raises: Unavailable.
        """

    def trim(self, group: str, *, keep_bytes: int = 0) -> int:
        """Records that the group has committed are gone, oldest first; how many went.

        At most `keep_bytes` of keys and values of committed records remain. No other group gets
        those that went. With 0, no byte of them is left in the files of a local log, which are
        rewritten for that. In Kafka nothing goes unless `keep_bytes` is 0, for there the topic's
        retention decides; brokers free the bytes of what went when they drop the segment.

        Raises: Unavailable; some may be gone, trim again.
        """

    def close(self) -> None:
        """Files, sockets and threads are gone. Closing twice does nothing."""


def _is_topic(name: str) -> bool:
    return bool(re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", name))


def position(record: Record) -> str:
    """Where the record is, as `append` gave it: "local/0/42", or "topic/partition/offset"."""
    return f"{record.topic}/{record.partition}/{record.offset}"


def open_log(url: str) -> Log:
    """The log at `url`; it is created where there is none.

    Args:
        url: "sqlite:///folder/log.db" (as SQLAlchemy reads it: three slashes for a relative path,
            four for an absolute one) or "kafka://host:port[,host:port]/topic".

    Raises: BadInput that names a url of another form; Unavailable when the log does not open.
    """
    scheme, found, rest = url.partition("://")
    if found and scheme == "sqlite" and rest.startswith("/") and not rest.endswith("/"):
        from ingest._local_log import LocalLog  # noqa: PLC0415 - it needs the names above

        return LocalLog.open(rest[1:])
    servers, _, topic = rest.partition("/")
    if found and scheme == "kafka" and servers and _is_topic(topic):
        from ingest._kafka_log import KafkaLog  # noqa: PLC0415 - one machine never loads Kafka

        return KafkaLog.open(servers.split(","), topic)
    raise BadInput.of(
        "log", f'"{url}" is neither sqlite:///folder/log.db nor kafka://host:port[,host:port]/topic'
    )
