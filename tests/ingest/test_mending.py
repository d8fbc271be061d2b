"""A part that the disk tore is set aside, and its facts come back from the log."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest._mending import Mending
from ingest.drain import Drain
from ingest.errors import Unavailable
from ingest.intake import Intake
from ingest.log import Log
from ingest.store import Store
from tests.ingest.test_drain import fill, folder_of, stored
from tests.parts import no_part_can_be_committed

_NEWEST = """
SELECT name, path FROM system.parts
WHERE active AND database = currentDatabase() AND table = 'events'
ORDER BY name DESC LIMIT 1
"""


def tear(store: Store) -> None:
    """The newest part ends too early, as after a write that failed."""
    store.command("SYSTEM STOP MERGES events")
    (part,) = store.rows(_NEWEST)
    for name in ("data.bin", "body.bin"):
        if (path := Path(part["path"]) / name).exists():
            os.truncate(path, path.stat().st_size // 3)
    for cache in ("SYSTEM DROP MARK CACHE", "SYSTEM DROP UNCOMPRESSED CACHE"):
        store.command(cache)


@pytest.fixture
def torn(intake: Intake, store: Store, drain: Drain) -> Iterator[list[str]]:
    """What is in the log, and was in the store."""
    ids = fill(intake, 40)
    drain.step(timeout_s=1)
    ids += fill(intake, 40)
    drain.step(timeout_s=1)
    assert sorted(stored(store)) == sorted(ids)
    tear(store)
    yield ids
    store.command("SYSTEM START MERGES events")


class _Full(Store):
    """The real store, on a disk that takes no more."""

    def insert_columns(self, *_: Any, **__: Any) -> None:
        raise Unavailable("store: the disk is full")


BODIES = "SELECT sum(length(body)) AS n FROM events FINAL"


def test_facts_of_a_torn_part_come_back_from_the_log_once_each(
    torn: list[str], log: Log, store: Store
) -> None:
    with pytest.raises(Unavailable, match="Code: 33"):
        store.rows(BODIES)
    assert store.torn
    mending = Mending(log, store)
    assert mending.turn() > 0
    assert not store.torn
    assert sorted(stored(store)) == sorted(torn)
    assert store.rows("SELECT count() AS n FROM events FINAL")[0]["n"] == len(torn)
    assert mending.turn() == 0


def test_a_mending_that_the_engine_noted_and_did_not_store_is_stored_at_the_next_turn(
    torn: list[str], log: Log, store: Store
) -> None:
    with pytest.raises(Unavailable):
        store.rows(BODIES)
    with no_part_can_be_committed(folder_of("events", store)), pytest.raises(Unavailable):
        Mending(log, store).turn()
    assert Mending(log, store).turn() > 0
    assert sorted(stored(store)) == sorted(torn)


def test_a_mending_that_broke_off_is_finished_at_the_next_turn(
    torn: list[str], log: Log, store: Store
) -> None:
    full = _Full(store._client, store._database)  # noqa: SLF001 - the same engine
    with pytest.raises(Unavailable):
        full.rows(BODIES)
    with pytest.raises(Unavailable, match="disk is full"):
        Mending(log, full).turn()
    Mending(log, store).turn()
    assert sorted(stored(store)) == sorted(torn)


def test_a_store_that_is_whole_is_left_alone(
    intake: Intake, log: Log, store: Store, drain: Drain
) -> None:
    ids = fill(intake, 10)
    drain.step(timeout_s=1)
    store.torn = True
    assert Mending(log, store).turn() == 0
    assert sorted(stored(store)) == sorted(ids)
