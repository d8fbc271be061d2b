"""What users of other products reported, by symptom: here it does not happen.

Reports on feedback are in `test_feedback*.py`, those on spans in `test_otlp*.py`.
"""

import json
import logging
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import Engine

from ingest.drain import Drain
from ingest.errors import Unavailable
from ingest.importers import read_history
from ingest.intake import FactId, Intake, Receipt
from ingest.keys import SCOPES
from ingest.log import Entry, Log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store
from ingest.wire import split_batch
from tests.clickhouse import ClickHouse
from tests.facts import fact
from tests.ingest.brokers import free_port
from tests.ingest.importers.aider_writer import Aider
from tests.running import Running, on_a_socket
from tests.serving.conftest import Desk
from tests.serving.engines import an_engine, delta
from thumbwheel.server import Server

_ATTEMPTS = 720
"""Of an hour, when the store is asked every five seconds."""


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[ClickHouse]:
    server = ClickHouse(tmp_path / "clickhouse", free_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def grown(clickhouse: ClickHouse, tmp_path: Path, log: Log, control: Engine) -> Iterator[Running]:
    """The whole server, with its store behind HTTP."""
    store = Store.open(clickhouse.dsn)
    room = Ingest.of(Settings.of({}, data=tmp_path, store=clickhouse.dsn), log, store, control)
    consumer = log.consumer("store")
    server = Server(room, Drain(consumer, store))
    _, secret = room.keys.create(SCOPES)
    headers = {"Authorization": f"Bearer {secret}"}
    with (
        on_a_socket(server.app()) as url,
        httpx.Client(base_url=url, headers=headers, timeout=30) as http,
    ):
        yield Running(server, http, url)
    consumer.close()
    store.close()


def take(intake: Intake, *events: dict[str, Any]) -> Receipt:
    return intake.take(split_batch(json.dumps(events).encode()))


def test_facts_sent_while_the_store_is_down_appear_when_it_is_back_without_the_client(
    clickhouse: ClickHouse, grown: Running
) -> None:
    """langfuse#6380: they were acknowledged and never appeared."""
    clickhouse.stop()
    events = [fact() for _ in range(120)]
    for start in range(0, 120, 20):
        answer = grown.http.post("/v1/events", json=events[start : start + 20])
        assert (answer.status_code, answer.json()["accepted"]) == (200, 20)
    clickhouse.start()
    grown.until_stored()
    asked = [{"source": event["source"], "id": event["id"]} for event in events]
    found = grown.http.post("/v1/events/audit", json={"facts": asked}).json()
    assert (found["stored"], found["missing"], found["repeated"]) == (120, [], [])


def test_a_child_whose_parent_is_not_there_is_kept_counted_as_pending_and_joined_later(
    running: Running,
) -> None:
    """langfuse#13592: it was dropped without a word."""
    children = [
        fact("tool.called", data={"turn.id": "t9", "gen_ai.tool.name": "grep", "outcome": "ok"}),
        fact("feedback.submitted", user="ann", data={
            "target": {"kind": "turn", "id": "t9"}, "gen_ai.evaluation.score.value": 1.0,
        }),
        fact("feedback.submitted", user="ann", data={
            "target": {"kind": "diff", "id": "d9"}, "gen_ai.evaluation.score.value": 0.0,
        }),
    ]  # fmt: skip
    assert running.http.post("/v1/events", json=children).json()["accepted"] == 3
    running.until_stored()
    for child in children:
        assert running.http.get(f"/v1/events/{child['id']}").status_code == 200

    def pending() -> set[str]:
        """Targets of feedback that are not there."""
        running.until_stored()
        rows = running.server.ingest.store.rows(
            "SELECT target_id FROM pending_feedback(as_of = now64(6, 'UTC'))"
        )
        return {row["target_id"] for row in rows}

    # The tool's call names its turn, so the turn is known of; nothing has told of the diff.
    assert pending() == {"d9"}
    shown = {"diff.id": "d9", "turn.id": "t9", "gen_ai.conversation.id": "c1"}
    parent = fact("diff.shown", data=shown)
    assert running.http.post("/v1/events", json=[parent]).json()["accepted"] == 1
    assert pending() == set()


def test_a_stream_broken_half_way_leaves_a_record_with_its_text_so_far(running: Running) -> None:
    """tensorzero#475: there was none."""
    with an_engine() as engine:
        desk = Desk(running, engine)
        desk.register("m1").raise_for_status()
        engine.says(delta("so "), delta("far"), ending="cut")
        answer = desk.ask(stream=True, headers={"consent": "code"})
        data = desk.finished(answer)["data"]
    assert data["outcome"] == "error"
    (message,) = data["gen_ai.output.messages"]
    assert message["parts"][0]["content"] == "so far"


def _uuid7(at: datetime) -> str:
    """As RFC 9562 has it."""
    millis = int(at.timestamp() * 1000)
    value = millis << 80 | 7 << 76 | random.Random(1).getrandbits(12) << 64 | 2 << 62
    return str(UUID(int=value | random.Random(2).getrandbits(62)))


def test_an_id_that_looks_like_a_uuid7_of_the_future_is_taken_as_it_is(running: Running) -> None:
    """tensorzero#420: it was refused."""
    event = fact(id=_uuid7(datetime(2150, 1, 1, tzinfo=UTC)), time="2026-01-01T00:00:00Z")
    assert running.http.post("/v1/events", json=[event]).json()["accepted"] == 1
    running.until_stored()
    stored = running.http.get(f"/v1/events/{event['id']}").json()
    assert (stored["id"], stored["time"], stored["clock"]) == (event["id"], event["time"], None)


def test_a_resumed_session_imported_again_adds_only_what_is_new(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    """PostHog/ai-plugin#85: its history came again under new ids, and costs were counted twice."""
    tokens = (
        "SELECT count() AS turns, "
        "sum(JSONExtractUInt(body, 'data', 'gen_ai.usage.input_tokens')) AS tokens "
        "FROM events FINAL WHERE type = 'thumbwheel.inference.completed.v1' AND turn IN {turns:Array(String)}"
    )

    def imported(session: Aider) -> tuple[Receipt, set[str]]:
        path = tmp_path / f"{uuid4()}.md"
        path.write_text(session.text)
        events = list(read_history("aider", path).events(consent="code", user="ann"))
        receipt = take(intake, *events)
        while drain.step(timeout_s=0):
            pass
        return receipt, {event["data"].get("turn.id", "") for event in events} - {""}

    session = Aider().starts()
    for number in range(4):
        session.is_asked(f"question {number}").answers_with(f"answer {number}")
    first, turns = imported(session)
    assert first.count("accepted") == len(first.results)
    before = store.rows(tokens, turns=sorted(turns))
    session.is_asked("one more").answers_with("one more answer")
    again, more = imported(session)
    new = {verdict.id for verdict in again.results if verdict.status == "accepted"}
    assert new.isdisjoint(verdict.id for verdict in first.results)
    assert len(more - turns) == 1
    assert store.rows(tokens, turns=sorted(turns)) == before
    # The last turn of a file may still grow; it comes when the next has begun.
    assert before == [{"turns": 3, "tokens": 3 * 1204}]


class _Away:
    """A store that is away, and after so many attempts is there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.holds_any = store.holds_any
        self.sizes: list[float] = []

    def insert_columns(
        self, table: str, columns: Mapping[str, Sequence[Any]], *, token: str
    ) -> None:
        if len(self.sizes) < _ATTEMPTS:
            self.sizes.append(_resident_mib())
            raise Unavailable("store: connection refused")
        self._store.insert_columns(table, columns, token=token)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def test_an_hour_without_the_store_costs_no_memory_however_much_waits_in_the_log(
    intake: Intake, log: Log, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """arroyo#431: what was wrong with messages was held until a commit that never came."""
    caplog.set_level(logging.CRITICAL)  # or the test would hold every warning
    consumer = log.consumer("store")
    away = _Away(store)
    drain = Drain(consumer, away, pauses_s=(0,))
    events = [fact(partitionkey=f"c{number}") for number in range(40)]
    take(intake, *events)
    log.append([Entry("k", b"no record of ours %d" % number) for number in range(10)])
    with pytest.raises(Unavailable):
        drain.step(timeout_s=1)
    consumer.rewind()
    for _ in range(30):
        data = {"turn.id": "t", "prompt": "x" * 10_000}
        more = [fact(consent="code", data=data) for _ in range(200)]
        intake.take(split_batch(json.dumps(more).encode()), look_up=False)
        events += more
    thread = threading.Thread(target=drain.run)
    thread.start()
    while log.lag("store"):
        threading.Event().wait(0.05)
    drain.stop.set()
    thread.join()
    consumer.close()
    assert len(away.sizes) == _ATTEMPTS
    # 60 MB wait.
    assert max(away.sizes) - away.sizes[20] < 15
    counts = store.counts([FactId(event["source"], event["id"]) for event in events])
    assert (len(counts), set(counts.values())) == (len(events), {1})
    assert store.rows("SELECT count() AS n FROM dead_letters FINAL")[0]["n"] == 10
