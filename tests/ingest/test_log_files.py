"""What is in the files of a local log, and what no longer is."""

import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from ingest.log import Consumer, Entry, Log, open_log
from tests.ingest.brokers import on_a_laptop
from tests.ingest.logs import GROUP, poll, read, reading

_BEFORE_BATCHES = """
CREATE TABLE records (
    offset INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL, value BLOB NOT NULL
);
CREATE TABLE offsets (grp TEXT PRIMARY KEY, offset INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO records (key, value) VALUES (x'61', x'31'), (x'61', x'32'), (x'61', x'33');
INSERT INTO offsets VALUES ('store', 1);
"""

# A disk of 4 MB of this process's own, that something else fills for a while.
_FULL_DISK = """
import subprocess, sys
from pathlib import Path
from ingest.errors import Unavailable
from ingest.log import Entry, open_log

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], check=True)
other = disk / "other"
other.write_bytes(bytes(1 << 20))
log = open_log(f"sqlite:///{disk}/log.db")
kept = []
refused = []
while len(refused) < 3:
    value = b"%d-%d" % (len(kept), len(refused))
    try:
        kept.append((log.append([Entry("k", value + bytes(9_000)) for _ in range(3)]), value))
    except Unavailable as error:
        refused.append(str(error))
other.unlink()
kept.append((log.append([Entry("k", b"after") for _ in range(3)]), b"after"))
consumer = log.consumer("store")
records = consumer.poll(max_records=10_000, max_bytes=1 << 24, timeout_s=0)
consumer.close()
log.close()
assert [record.value.rstrip(bytes(1)) for record in records] == [
    value for _, value in kept for _ in range(3)
]
assert [f"local/0/{record.offset}" for record in records[2::3]] == [place for place, _ in kept]
print(len(kept), *refused, sep="\\n")
"""


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def drained(log: Log, consumer: Consumer) -> None:
    while log.lag(GROUP):
        poll(consumer)
        consumer.commit()


@pytest.mark.parametrize("seed", range(6))
def test_no_byte_of_what_was_trimmed_is_left_whatever_waits_beside_it(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    log = open_log(f"sqlite:///{tmp_path}/log.db")
    sent = 0
    with reading(log) as consumer:
        for _ in range(15):
            # Rows of all sizes share pages and move between them.
            sizes = [chance.choice([0, 5, 100, 700, 3000, 30_000]) for _ in range(9)]
            log.append(
                [
                    Entry(f"<key {sent + n}>", b"<value %d>" % (sent + n) + bytes(size))
                    for n, size in enumerate(sizes)
                ]
            )
            sent += len(sizes)
            poll(consumer, max_records=chance.choice([1, 3, 10, 100]))
            consumer.commit()
            log.trim(GROUP)
            left = {int(n) for n in re.findall(rb"<(?:key|value) (\d+)>", all_bytes(tmp_path))}
            assert left == set(range(sent - log.lag(GROUP), sent))
    log.close()


def test_a_trim_keeps_the_newest_committed_bytes(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/log.db")
    log.append([Entry("abc", bytes(97)) for _ in range(10)])
    with reading(log) as consumer:
        poll(consumer, max_records=8)
        consumer.commit()
    assert log.trim(GROUP, keep_bytes=1000) == 0
    assert log.trim(GROUP, keep_bytes=300) == 5
    assert log.trim(GROUP, keep_bytes=299) == 1
    assert log.lag(GROUP) == 2
    with reading(log, "other") as other:
        assert [record.offset for record in read(other, 4)] == [7, 8, 9, 10]
    log.close()


def test_the_files_do_not_grow_while_what_is_drained_is_trimmed(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/log.db")
    sizes = []
    with reading(log) as consumer:
        for _ in range(12):
            for _ in range(10):
                log.append([Entry("k", bytes(30_000)) for _ in range(10)])
            drained(log, consumer)
            log.trim(GROUP, keep_bytes=1_000_000)
            sizes.append((tmp_path / "log.db").stat().st_size)
    assert log.trim(GROUP) > 0
    assert (tmp_path / "log.db").stat().st_size < 200_000
    log.close()
    # 3 MB come and go twelve times; the file is written to once 32 MB wait beside it.
    assert max(sizes) < 10_000_000


def test_appends_go_on_during_a_trim_and_lose_nothing(tmp_path: Path) -> None:
    log = open_log(f"sqlite:///{tmp_path}/log.db")
    trimming = threading.Event()

    def append(key: str) -> int:
        count = 0
        while trimming.is_set() or count < 20:
            log.append([Entry(key, b"%d" % count)])
            count += 1
        return count

    for _ in range(20):
        log.append([Entry("old", bytes(100_000)) for _ in range(10)])
    with reading(log) as consumer:
        drained(log, consumer)
    trimming.set()
    with ThreadPoolExecutor(4) as threads:
        counts = threads.map(append, "abcd")
        assert log.trim(GROUP, keep_bytes=1) == 200
        trimming.clear()
        total = sum(counts)
    assert log.lag(GROUP) == total
    with reading(log) as consumer:
        found = [(record.key, int(record.value)) for record in read(consumer, total)]
    for key in "abcd":
        numbers = [number for name, number in found if name == key]
        assert numbers == list(range(len(numbers)))
    log.close()


def test_a_log_from_before_batches_were_intended_is_opened_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "log.db")) as old:
        old.executescript(_BEFORE_BATCHES)
    for _ in range(2):
        log = open_log(f"sqlite:///{tmp_path}/log.db")
        with reading(log) as consumer:
            assert [record.offset for record in poll(consumer, max_records=1)] == [2]
            consumer.intend()
            consumer.rewind()
            assert [record.offset for record in poll(consumer)] == [2]
        assert log.lag(GROUP) == 2
        log.close()


def test_a_disk_that_is_full_for_a_while_loses_nothing_that_was_acknowledged(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mounts = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*mounts, "true"], check=False).returncode:
        if on_a_laptop():
            pytest.skip("this machine mounts no disk for a test")
        pytest.fail("this machine mounts no disk for a test")
    command = [*mounts, sys.executable, "-c", _FULL_DISK, str(tmp_path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=request.config.rootpath
    )
    assert ran.returncode == 0, ran.stderr
    count, *refused = ran.stdout.splitlines()
    assert int(count) > 10
    assert refused == ["append to the log: database or disk is full"] * 3
