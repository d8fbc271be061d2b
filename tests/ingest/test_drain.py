import json
import threading
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ingest.drain import Drain
from ingest.errors import Refused, Unavailable
from ingest.intake import Intake
from ingest.log import Entry, Log
from ingest.store import Store
from ingest.wire import split_batch
from tests.facts import fact


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
    Drain(first, store)._keep(records[:17])  # noqa: SLF001 - the moment between insert and commit
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
        drain._keep(records[start : start + 3])  # noqa: SLF001 - batches of another cut
    assert store.rows("SELECT * FROM events FINAL ORDER BY id") == before


def test_a_wrong_clock_is_flagged_and_kept(intake: Intake, store: Store, drain: Drain) -> None:
    times = {"2100-01-01T00:00:00Z": "ahead", "0001-01-01T00:00:00Z": "out of range",
             "2001-01-01T00:00:00+09:00": ""}  # fmt: skip
    events = [fact(time=time) for time in times]
    intake.take(split_batch(json.dumps(events).encode()))
    drain.step(timeout_s=1)
    rows = store.rows("SELECT JSONExtractString(body, 'time') AS time, clock FROM events FINAL")
    assert {row["time"]: row["clock"] for row in rows} == times
