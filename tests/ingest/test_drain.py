import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ingest.drain import Drain
from ingest.errors import Refused, Unavailable
from ingest.intake import Intake
from ingest.log import Entry, Log, open_log
from ingest.store import Store
from ingest.wire import split_batch
from tests.facts import fact
from tests.parts import no_part_can_be_committed


def fill(intake: Intake, count: int) -> list[str]:
    events = [fact(partitionkey=f"c{number % 7}", sequence=number) for number in range(count)]
    for start in range(0, count, 10):
        intake.take(split_batch(json.dumps(events[start : start + 10]).encode()))
    return [event["id"] for event in events]


def stored(store: Store) -> list[str]:
    return [row["id"] for row in store.rows("SELECT id FROM events FINAL ORDER BY sequence")]


class _MoodyStore:
    """The real store, which fails before or after the insert when told to."""

    def __init__(self, store: Store, moods: Sequence[str]) -> None:
        self._store, self._moods = store, list(moods)
        self.holds_any = store.holds_any

    def insert_columns(
        self, table: str, columns: Mapping[str, Sequence[Any]], *, token: str
    ) -> None:
        mood = self._moods.pop(0) if self._moods else "well"
        if mood == "away":
            raise Unavailable("store: connection refused")
        self._store.insert_columns(table, columns, token=token)
        if mood == "silent":
            raise Unavailable("store: the answer never came")


def test_offsets_are_committed_only_after_the_store_has_the_batch(
    intake: Intake, log: Log, store: Store
) -> None:
    ids = fill(intake, 50)
    consumer = log.consumer("store")
    drain = Drain(consumer, _MoodyStore(store, ["away", "silent", "away", "silent"]))
    thread = threading.Thread(target=drain.run)
    thread.start()
    while log.lag("store"):
        threading.Event().wait(0.02)
    drain.stop.set()
    thread.join()
    consumer.close()
    assert stored(store) == ids
    assert store.rows("SELECT count() AS n FROM events")[0]["n"] == 50


def test_a_reader_that_died_before_committing_repeats_and_the_store_keeps_one_row_each(
    intake: Intake, log: Log, store: Store
) -> None:
    ids = fill(intake, 40)
    first = log.consumer("store")
    records = first.poll(max_records=100, max_bytes=1 << 30, timeout_s=1)
    Drain(first, store)._keep(records[:17], again=False)  # noqa: SLF001 - the moment between insert and commit
    first.close()
    second = log.consumer("store")
    Drain(second, store).step(timeout_s=1)
    second.close()
    assert stored(store) == ids


def test_what_is_no_fact_becomes_a_dead_letter_and_holds_up_nothing(
    intake: Intake, log: Log, store: Store, drain: Drain
) -> None:
    ids = fill(intake, 10)
    head = json.dumps({"received_at": "2026-11-30T00:00:00+00:00", "sent_at": None})
    log.append([Entry("k", b"\xff\x00 not ours"), Entry("k", f"{head}\n[7, {{}}]".encode())])
    ids += fill(intake, 10)
    while drain.step(timeout_s=0.2):
        pass
    assert sorted(stored(store)) == sorted(ids)
    letters = store.rows("SELECT * FROM dead_letters FINAL ORDER BY position, fact")
    assert [letter["fact"] for letter in letters] == [2**32 - 1, 0, 1]
    assert all(letter["reason"] and letter["position"] for letter in letters)


class _PickyStore:
    """The real store, which takes no fact of one id, however often it is asked."""

    def __init__(self, store: Store, never: str) -> None:
        self._store, self._never = store, never
        self.holds_any = store.holds_any

    def insert_columns(
        self, table: str, columns: Mapping[str, Sequence[Any]], *, token: str
    ) -> None:
        if table == "events" and self._never in columns["id"]:
            raise Refused("store: inserting into events failed (Code: 53)")
        self._store.insert_columns(table, columns, token=token)


def test_a_row_that_the_store_never_takes_becomes_a_dead_letter_and_its_neighbours_are_stored(
    intake: Intake, log: Log, store: Store
) -> None:
    ids = fill(intake, 50)
    consumer = log.consumer("store")
    drain = Drain(consumer, _PickyStore(store, ids[17]), pauses_s=(0,))
    thread = threading.Thread(target=drain.run)
    thread.start()
    while log.lag("store"):
        threading.Event().wait(0.02)
    drain.stop.set()
    thread.join()
    consumer.close()
    assert stored(store) == ids[:17] + ids[18:]
    (letter,) = store.rows("SELECT reason, raw FROM dead_letters FINAL")
    assert "Code: 53" in letter["reason"]
    assert json.loads(letter["raw"])["id"] == ids[17]


def folder_of(table: str, store: Store) -> Path:
    sql = (
        "SELECT data_paths[1] AS folder FROM system.tables "
        "WHERE database = currentDatabase() AND name = {table:String}"
    )
    return Path(store.rows(sql, table=table)[0]["folder"])


@pytest.fixture
def unmerged(store: Store) -> Iterator[None]:
    """Rows that are stored twice stay two."""
    store.command("SYSTEM STOP MERGES events")
    yield
    store.command("SYSTEM START MERGES events")


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("table", ["events", "pointers", "dead_letters"])
def test_what_the_engine_noted_and_did_not_store_is_stored_when_the_batch_is_repeated(
    table: str, intake: Intake, log: Log, store: Store, drain: Drain
) -> None:
    ids = fill(intake, 10)
    log.append([Entry("k", b"not ours")])
    drain.step(timeout_s=1)
    ids += fill(intake, 10)
    log.append([Entry("k", b"nor this")])
    with no_part_can_be_committed(folder_of(table, store)), pytest.raises(Unavailable):
        drain.step(timeout_s=1)
    drain.consumer.rewind()
    assert drain.step(timeout_s=1)
    assert sorted(stored(store)) == sorted(ids)
    assert store.rows("SELECT count() AS n FROM events")[0]["n"] == 20
    pointed = "SELECT uniqExact(id) AS n FROM pointers WHERE kind = 'conversation'"
    assert store.rows(pointed)[0]["n"] == 20
    assert store.rows("SELECT count() AS n FROM dead_letters FINAL")[0]["n"] == 2


def test_a_new_log_over_an_old_store_loses_nothing(
    intake: Intake, store: Store, drain: Drain, tmp_path: Path
) -> None:
    ids = fill(intake, 10)
    drain.step(timeout_s=1)
    new = open_log(f"sqlite:///{tmp_path / 'new.db'}")
    ids += fill(Intake(new, store), 10)
    consumer = new.consumer("store")
    Drain(consumer, store).step(timeout_s=1)
    consumer.close()
    new.close()
    assert sorted(stored(store)) == sorted(ids)


def test_replaying_a_shuffled_log_changes_no_row(
    intake: Intake, log: Log, store: Store, drain: Drain
) -> None:
    fill(intake, 60)
    drain.step(timeout_s=1)
    before = store.rows("SELECT * FROM events FINAL ORDER BY id")
    again = log.consumer("again")
    records = again.poll(max_records=1000, max_bytes=1 << 30, timeout_s=1)
    again.close()
    Random(5).shuffle(records)
    for start in range(0, len(records), 3):
        drain._keep(records[start : start + 3], again=False)  # noqa: SLF001 - batches of another cut
    assert store.rows("SELECT * FROM events FINAL ORDER BY id") == before


def test_a_wrong_clock_is_flagged_and_kept(intake: Intake, store: Store, drain: Drain) -> None:
    times = {"2100-01-01T00:00:00Z": "ahead", "0001-01-01T00:00:00Z": "out of range",
             "2001-01-01T00:00:00+09:00": ""}  # fmt: skip
    events = [fact(time=time) for time in times]
    intake.take(split_batch(json.dumps(events).encode()))
    drain.step(timeout_s=1)
    rows = store.rows("SELECT JSONExtractString(body, 'time') AS time, clock FROM events FINAL")
    assert {row["time"]: row["clock"] for row in rows} == times
