"""What the local log acknowledged survives the death of its process at any moment."""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ingest.errors import Unavailable
from ingest.log import Entry, open_log, position

ROUNDS = 10
_WRITER = """
import itertools, sys
from ingest.log import Entry, open_log

log = open_log(sys.argv[1])
for n in itertools.count():
    names = [f"{sys.argv[2]}/{n}/{part}" for part in range(3)]
    place = log.append([Entry("k", name.encode()) for name in names])
    print(place, names[-1], flush=True)
"""

# A limit on the size of files stands for a full disk: the write fails half-way.
_FULL_DISK = """
import resource, signal, sys
from ingest.errors import Unavailable
from ingest.log import Entry, open_log

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = open_log(sys.argv[1])
entries = [Entry("k", bytes(30_000))] * 10
names = [log.append(entries)]
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
try:
    while len(names) < 100:
        names.append(log.append(entries))
except Unavailable as error:
    print(error, file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
names.append(log.append(entries))
print(len(names), names[-1])
"""


def append_until_killed(url: str, name: str, after_s: float, root: Path) -> list[list[str]]:
    """Position and value of the last entry of each append that was acknowledged."""
    command = [sys.executable, "-c", _WRITER, url, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(after_s)
        writer.kill()
        lines = (first + writer.stdout.read()).splitlines(keepends=True)
    return [line.split() for line in lines if line.endswith("\n")]


def test_all_that_was_acknowledged_is_there_once_and_in_order_after_kill_9(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    moments = random.Random(9)
    acknowledged: list[list[str]] = []
    for turn in range(ROUNDS):
        acknowledged += append_until_killed(
            url, f"{turn}", moments.uniform(0, 0.2), request.config.rootpath
        )
    log = open_log(url)
    log.append([Entry("k", b"the end")])
    consumer = log.consumer("store")
    records = consumer.poll(max_records=1_000_000, max_bytes=1 << 30, timeout_s=1)
    consumer.close()
    log.close()
    values = [record.value.decode() for record in records]
    assert len(acknowledged) >= ROUNDS
    assert len(values) == len(set(values)), "nothing is there twice"
    assert values[-1] == "the end"
    last_of_each = {name for _, name in acknowledged}
    found = [[position(record), value] for record, value in zip(records, values, strict=True)]
    assert [pair for pair in found if pair[1] in last_of_each] == acknowledged
    # An append is there as a whole or not at all.
    assert [value.rpartition("/")[2] for value in values[:-1]] == ["0", "1", "2"] * (
        len(values) // 3
    )


def test_a_full_disk_refuses_an_append_as_a_whole_and_later_ones_go_on(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    command = [sys.executable, "-c", _FULL_DISK, url]
    written = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=request.config.rootpath
    )
    assert "append to the log" in written.stderr
    count, last = written.stdout.split()
    assert 2 <= int(count) < 100
    log = open_log(url)
    assert log.lag("store") == int(count) * 10
    assert last == f"local/0/{int(count) * 10}"
    log.close()


def test_a_file_that_another_program_holds_refuses_appends_until_it_lets_go(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/log.db")
    log.append([Entry("k", b"1")])
    with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as backup:
        backup.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            log.append([Entry("k", b"lost")])
        backup.execute("ROLLBACK")
    log.append([Entry("k", b"2")])
    assert log.lag("store") == 2
    log.close()


def test_a_file_that_is_no_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_text("no database" * 1000)
    with pytest.raises(Unavailable, match=r"log\.db: file is not a database"):
        open_log(f"sqlite:///{tmp_path}/log.db")
