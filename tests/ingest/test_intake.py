import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ingest.drain import Drain
from ingest.errors import Unavailable
from ingest.intake import FactId, Intake, Receipt
from ingest.log import Consumer, Entry, Log
from ingest.store import Store
from ingest.wire import split_batch
from tests.facts import fact


def take(intake: Intake, *events: Any) -> Receipt:
    return intake.take(split_batch(json.dumps(events).encode()))


def test_verdicts_come_in_the_order_sent_and_one_bad_event_fails_alone(intake: Intake) -> None:
    first = fact()
    receipt = take(intake, first, {"id": "x"}, fact(time="yesterday"), first, fact(), 7)
    assert [v.status for v in receipt.results] == [
        "accepted", "rejected", "rejected", "duplicate", "accepted", "rejected",
    ]  # fmt: skip
    assert receipt.results[2].reason is not None
    assert receipt.results[2].reason.startswith("time: ")


def test_a_fact_sent_again_is_a_duplicate_also_for_another_process(
    intake: Intake, log: Log, store: Store, drain: Drain
) -> None:
    event = fact()
    take(intake, event)
    assert take(intake, event).results[0].status == "duplicate"
    drain.step(timeout_s=1)
    assert take(Intake(log, store), event).results[0].status == "duplicate"


def test_the_same_id_from_another_source_is_another_fact(intake: Intake) -> None:
    event = fact()
    receipt = take(intake, event, event | {"source": "/ext/other"})
    assert receipt.count("accepted") == 2


def test_content_below_its_consent_is_refused_and_never_reaches_the_log(
    intake: Intake, log: Log
) -> None:
    secret = {"turn.id": "t", "prompt": "my secret plan"}
    receipt = take(intake, fact(data=secret), fact(data=secret, consent="metrics"))
    assert receipt.count("rejected") == 2
    assert receipt.results[0].reason is not None
    assert "data.prompt" in receipt.results[0].reason
    assert "secret plan" not in receipt.results[0].reason
    assert log.lag("store") == 0
    assert take(intake, fact(data=secret, consent="code")).count("accepted") == 1


def test_content_of_unknown_types_needs_consent_too(intake: Intake) -> None:
    receipt = take(intake, fact(type="thumbwheel.new.thing.v1", data={"prompt": "words"}))
    assert receipt.count("rejected") == 1


def test_names_that_join_facts_must_be_whole_characters(intake: Intake) -> None:
    receipt = intake.take(split_batch(json.dumps([fact(id="half \ud83d")]).encode()))
    assert receipt.results[0].reason == "id: holds half a character (a lone surrogate)"


def test_an_event_over_one_mebibyte_is_refused_by_name_its_neighbours_are_not(
    intake: Intake,
) -> None:
    values = {"prompt": "x" * 600_000, "notes": "y" * 600_000}
    big = fact(consent="code", data={"turn.id": "t"} | values)
    receipt = take(intake, fact(), big, fact())
    assert [v.status for v in receipt.results] == ["accepted", "rejected", "accepted"]
    assert receipt.results[1].reason is not None
    assert receipt.results[1].reason.startswith("larger than 1048576 bytes")


def test_bytes_survive_the_whole_way(intake: Intake, drain: Drain, store: Store) -> None:
    prompt = "\ud83d half, \0 nul, \U0001f600 emoji, \u202e RTL, \u2028 line"
    events = [
        fact(consent="code", data={"turn.id": "t", "prompt": prompt}),
        fact(consent="code", data={"turn.id": "t", "prompt": "y" * 900_000}),
    ]
    texts = [json.dumps(events[0]), json.dumps(events[1], indent=1)]
    intake.take(split_batch(f"[{','.join(texts)}]".encode()))
    drain.step(timeout_s=1)
    for event, text in zip(events, texts, strict=True):
        (stored,) = store.events(event["id"])
        assert stored["text"] == text
    (row,) = store.rows(
        "SELECT JSONExtractString(body, 'data', 'prompt') AS prompt FROM events FINAL "
        "WHERE id = {id:String}",
        id=events[0]["id"],
    )
    assert row["prompt"] == prompt.replace("\ud83d", "\ufffd")


class _FullLog:
    """A log whose disk is full."""

    def append(self, entries: Sequence[Entry]) -> str:
        raise Unavailable(f"log: no space left for {len(entries)}")

    def consumer(self, group: str) -> Consumer:
        raise Unavailable(group)

    def lag(self, group: str) -> int:
        raise Unavailable(group)

    def trim(self, group: str, *, keep_bytes: int = 0) -> int:
        raise Unavailable(f"{group} {keep_bytes}")

    def close(self) -> None:
        pass


def test_what_the_log_did_not_take_is_no_duplicate_when_sent_again(store: Store, log: Log) -> None:
    event, full = fact(), Intake(_FullLog(), store)
    with pytest.raises(Unavailable):
        take(full, event)
    full.log = log
    assert take(full, event).count("accepted") == 1


def test_known_facts_are_looked_up_by_source_and_id(
    intake: Intake, drain: Drain, store: Store
) -> None:
    event = fact(id="it's \\ odd {x:String}")
    take(intake, event)
    drain.step(timeout_s=1)
    known, unknown = FactId(event["source"], event["id"]), FactId("/other", event["id"])
    assert store.known([known, unknown]) == {known}


def test_a_question_about_a_time_is_exact_to_the_microsecond(store: Store) -> None:
    asked = datetime(2026, 11, 30, 21, 0, 0, 123456, tzinfo=timezone(timedelta(hours=9)))
    (row,) = store.rows(
        "SELECT toUnixTimestamp64Micro({at:DateTime64(6, 'UTC')}) AS at, "
        "{none:Nullable(DateTime64(6, 'UTC'))} IS NULL AS none",
        at=asked,
        none=None,
    )
    assert row == {"at": round(asked.timestamp() * 1_000_000), "none": 1}


def test_a_failing_question_tells_a_client_its_code_and_not_its_statement(store: Store) -> None:
    with pytest.raises(Unavailable, match=r"^store: reading failed \(Code: \d+\)$"):
        store.rows("SELECT secret FROM nowhere")
