"""The store over HTTP, as against a ClickHouse server: what only a network can get wrong."""

import gzip
import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import lz4.frame
import pytest
import zstandard

from ingest._rows import COLUMNS
from ingest.drain import Drain
from ingest.errors import Unavailable
from ingest.intake import FactId, Intake
from ingest.log import Log
from ingest.store import Store
from ingest.wire import split_batch
from tests.clickhouse import PASSWORD, USER, ClickHouse
from tests.facts import fact
from tests.ingest.brokers import free_port

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    server = ClickHouse(tmp_path_factory.mktemp("clickhouse") / "data", free_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def store(clickhouse: ClickHouse) -> Iterator[Store]:
    """In place of the engine in this process: the same store, behind a server."""
    store = Store.open(clickhouse.dsn, database=f"t_{uuid4().hex}")
    yield store
    clickhouse.is_well()
    store.drop()


def rows(*ids: str) -> list[tuple[object, ...]]:
    """Rows of `events` with these ids; what else they hold does not matter here."""
    # 2570 is two line feeds in the stream: no text may be read into it.
    kinds = {"time": None, "sent_at": None, "received_at": NOON, "sequence": 2570}
    return [
        tuple(known if name == "id" else kinds.get(name, f"{name} é \0 \\") for name in COLUMNS)
        for known in ids
    ]


def ids_in(store: Store) -> list[str]:
    return [row["id"] for row in store.rows("SELECT id FROM events ORDER BY id")]


def test_what_is_inserted_is_read_back_and_the_same_token_inserts_nothing(store: Store) -> None:
    for _ in range(2):
        store.insert("events", COLUMNS, rows("a", "b"), token="log/0/1-2")
    assert ids_in(store) == ["a", "b"]
    (row,) = store.rows("SELECT * FROM events WHERE id = {id:String}", id="a")
    assert [row["received_at"].replace(tzinfo=UTC), row["body"]] == [NOON, "body é \0 \\"]


def test_a_store_that_is_opened_again_has_its_facts_and_migrates_nothing_twice(
    clickhouse: ClickHouse, store: Store
) -> None:
    store.insert("events", COLUMNS, rows("a"), token="1")
    (named,) = store.rows("SELECT currentDatabase() AS database")
    again = Store.open(clickhouse.dsn, database=named["database"])
    assert ids_in(again) == ["a"]
    names = again.rows("SELECT name, count() AS n FROM migrations GROUP BY name")
    assert {row["n"] for row in names} == {1}
    again.close()


def test_a_question_about_a_thousand_long_ids_is_answered(store: Store) -> None:
    asked = [f"it's \\ {number} " + "x" * 700 for number in range(1000)]
    store.insert("events", COLUMNS, rows(*asked[::2]), token="1")
    source = rows("a")[0][COLUMNS.index("source")]
    found = store.known([FactId(str(source), each) for each in asked])
    assert {fact.id for fact in found} == set(asked[::2])


def test_a_wrong_password_is_refused_and_told_to_nobody(
    clickhouse: ClickHouse, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Unavailable) as refused:
        Store.open(clickhouse.dsn.replace(PASSWORD, "wrong-secret"))
    assert str(refused.value) == "store: opening failed (Code: 516)"
    said = [str(refused.value.__cause__), *(record.getMessage() for record in caplog.records)]
    assert not any("wrong-secret" in each for each in said)


def test_a_server_that_is_not_there_is_unavailable_and_its_password_is_told_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Unavailable, match=r"^store: opening failed$"):
        Store.open(f"clickhouse://{USER}:{PASSWORD}@127.0.0.1:{free_port()}")
    assert not any(PASSWORD in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("mood", ["cut before", "cut after"])
def test_an_insert_cut_in_mid_flight_and_repeated_with_its_token_is_there_once(
    clickhouse: ClickHouse, store: Store, mood: str
) -> None:
    ids = [f"{number:05}" for number in range(5_000)]
    # The client may try again by itself, so that one cut need not be seen.
    clickhouse.fails("cut before" if mood == "cut before" else "cut after", times=5)
    with pytest.raises(Unavailable, match=r"^store: inserting into events failed$"):
        store.insert("events", COLUMNS, rows(*ids), token="1")
    clickhouse.is_well()
    assert ids_in(store) == (ids if mood == "cut after" else [])
    store.insert("events", COLUMNS, rows(*ids), token="1")
    assert ids_in(store) == ids


def test_a_server_that_says_503_is_unavailable_until_it_is_well(
    clickhouse: ClickHouse, store: Store
) -> None:
    store.insert("events", COLUMNS, rows("a"), token="1")
    clickhouse.fails("away", times=20)
    with pytest.raises(Unavailable):
        store.insert("events", COLUMNS, rows("b"), token="2")
    with pytest.raises(Unavailable):
        ids_in(store)
    clickhouse.is_well()
    store.insert("events", COLUMNS, rows("b"), token="2")
    assert ids_in(store) == ["a", "b"]


def test_a_server_that_dies_and_comes_back_is_used_again_without_a_hand(
    clickhouse: ClickHouse, store: Store
) -> None:
    store.insert("events", COLUMNS, rows("a"), token="1")
    clickhouse.stop()
    with pytest.raises(Unavailable):
        store.insert("events", COLUMNS, rows("b"), token="2")
    with pytest.raises(Unavailable):
        ids_in(store)
    clickhouse.start()
    store.insert("events", COLUMNS, rows("a"), token="1")
    store.insert("events", COLUMNS, rows("b"), token="2")
    assert ids_in(store) == ["a", "b"]


def test_a_slow_answer_holds_up_no_other_question(clickhouse: ClickHouse, store: Store) -> None:
    began, done = threading.Event(), []

    def ask() -> None:
        began.set()
        store.rows("SELECT 1")
        done.append("slow")

    clickhouse.fails("slow", times=1, seconds=2)
    slow = threading.Thread(target=ask)
    slow.start()
    began.wait()
    # One of the two waits; whichever it is, the other does not.
    store.rows("SELECT 2")
    done.append("quick")
    slow.join()
    assert len(done) == 2


def test_a_drain_goes_on_by_itself_through_cuts_503s_and_a_restart(
    clickhouse: ClickHouse, store: Store, log: Log
) -> None:
    events = [fact(partitionkey=f"c{number % 5}") for number in range(300)]
    intake = Intake(log, store)
    consumer = log.consumer("store")
    drain = Drain(consumer, store)
    thread = threading.Thread(target=drain.run)
    thread.start()
    troubles: list[Callable[[], None]] = [
        lambda: clickhouse.fails("cut before", times=2),
        lambda: clickhouse.fails("cut after", times=2),
        lambda: clickhouse.fails("away", times=4),
        clickhouse.stop,
        clickhouse.start,
    ]
    for part, trouble in enumerate(troubles):
        trouble()
        batch = json.dumps(events[part * 60 : part * 60 + 60]).encode()
        assert intake.take(split_batch(batch), look_up=False).count("accepted") == 60
    while log.lag("store"):
        threading.Event().wait(0.05)
    drain.stop.set()
    thread.join()
    consumer.close()
    counts = store.counts([FactId(event["source"], event["id"]) for event in events])
    assert sorted(counts.values()) == [1] * 300
    assert store.rows("SELECT count() AS n FROM events")[0]["n"] == 300


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "lz4": lz4.frame.compress,
}


@pytest.mark.parametrize("encoding", _PACKERS)
def test_the_test_server_speaks_clickhouses_http_interface(
    clickhouse: ClickHouse, encoding: str
) -> None:
    answer = httpx.post(
        f"http://127.0.0.1:{clickhouse.port}/",
        params={"param_word": "é b", "max_threads": "1", "enable_http_compression": "1"},
        headers={
            "X-ClickHouse-User": USER,
            "X-ClickHouse-Key": PASSWORD,
            "Content-Encoding": encoding,
            "Accept-Encoding": "gzip",
        },
        content=_PACKERS[encoding](b"SELECT {word:String} AS w, getSetting('max_threads') AS t"),
    )
    assert (answer.text, answer.headers["content-encoding"]) == ("é b\t1\n", "gzip")
    wrong = httpx.post(
        f"http://127.0.0.1:{clickhouse.port}/", content=b"SELECT nope", auth=(USER, PASSWORD)
    )
    assert (wrong.status_code, wrong.headers["x-clickhouse-exception-code"]) == (404, "47")
    assert wrong.text.startswith("Code: 47. DB::Exception: ")
