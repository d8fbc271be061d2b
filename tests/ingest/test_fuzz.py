"""Whatever the door accepts is stored once, byte for byte, as JSON that the engine reads."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ingest.control import open_control
from ingest.drain import Drain
from ingest.intake import FactId, Intake, Receipt
from ingest.log import open_log
from ingest.room import Ingest
from ingest.settings import Settings
from ingest.store import Store
from ingest.wire import split_batch
from tests.facts import fact
from tests.ingest.odd_json import CANARY, LONE, NOT_JSON, NUMBERS, attributes

_SERIAL = count()


@dataclass(frozen=True)
class Sent:
    """An event as text, under an identity of its own."""

    source: str
    id: str
    text: str


@dataclass(frozen=True)
class Door:
    intake: Intake
    drain: Drain
    store: Store

    def send(self, *events: str) -> Receipt:
        """Taken and drained; nothing became a dead letter."""
        body = f"[{','.join(events)}]".encode()
        receipt = self.intake.take(split_batch(body))
        while self.drain.step(timeout_s=0):
            pass
        assert (
            self.store.rows(
                "SELECT reason FROM dead_letters WHERE raw IN {sent:Array(String)}",
                sent=list(events),
            )
            == []
        )
        return receipt

    def stored(self, sent: Sent) -> Mapping[str, Any]:
        """Its one row."""
        assert self.store.counts([FactId(sent.source, sent.id)]) == {(sent.source, sent.id): 1}
        (row,) = self.store.events(sent.id, source=sent.source)
        assert row["text"] == sent.text
        (columns,) = self.store.rows(
            "SELECT isValidJSON(body) AS valid, body, raw, time, sequence FROM events FINAL"
            " WHERE source = {source:String} AND id = {id:String}",
            source=sent.source,
            id=sent.id,
        )
        assert columns["valid"] == 1
        return columns


@pytest.fixture(scope="module")
def door(store_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """One for all: every event has an identity of its own."""
    data = tmp_path_factory.mktemp("fuzz")
    log, control = (f"sqlite:///{data}/{name}.db" for name in ("log", "control"))
    with ExitStack() as stack:
        opened = open_log(log)
        stack.callback(opened.close)
        store = Store.open(store_dsn, database=f"t_{uuid4().hex}")
        stack.callback(store.drop)
        engine = open_control(control)
        stack.callback(engine.dispose)
        room = Ingest.of(Settings.of({}, data=data), opened, store, engine)
        consumer = opened.consumer("store")
        stack.callback(consumer.close)
        yield Door(room.intake, Drain(consumer, store), store)


def event(said: Mapping[str, str]) -> Sent:
    """With these JSON texts as attributes, in this order; an identity is added."""
    serial = next(_SERIAL)
    source, name = "/ext/fuzz", f"{serial} /'\\\"\t\n\0é😀{{id:String}}"
    own = {"specversion": '"1.0"', "id": json.dumps(name), "source": json.dumps(source)}
    members = [f"{json.dumps(key)}: {value}" for key, value in {**own, **said}.items()]
    return Sent(source, name, "{" + ", ".join(members) + "}")


def sound() -> Sent:
    """A good neighbour."""
    return event({"type": '"thumbwheel.turn.submitted.v1"', "data": '{"turn.id": "t1"}'})


def with_data(data: str, *, kind: str = "com.example.odd") -> Sent:
    return event({"type": json.dumps(kind), "data": data})


@settings(max_examples=25, derandomize=True)
@given(made=st.lists(attributes, min_size=1, max_size=8))
def test_what_is_accepted_is_stored_once_as_sent_and_what_is_not_has_a_reason(
    door: Door, made: list[Mapping[str, str]]
) -> None:
    before, *odd, after = sound(), *(event(said) for said in made), sound()
    receipt = door.send(before.text, *(each.text for each in odd), after.text)
    for sent, verdict in zip([before, *odd, after], receipt.results, strict=True):
        if verdict.status == "accepted":
            door.stored(sent)
        else:
            assert verdict.status == "rejected"
            assert verdict.reason
            assert CANARY not in verdict.reason
            verdict.reason.encode()  # it can be sent
    assert receipt.results[0].status == receipt.results[-1].status == "accepted"


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_a_number_beyond_all_bounds_is_kept_as_sent(door: Door, number: str) -> None:
    sent = with_data(f'{{"n": {number}}}')
    assert door.send(sent.text).count("accepted") == 1
    assert door.stored(sent)["body"].count('"n"') == 1


@pytest.mark.parametrize("word", NOT_JSON)
def test_what_is_not_json_spoils_its_own_event_only(door: Door, word: str) -> None:
    good = sound()
    receipt = door.send(with_data(f'{{"n": [{word}]}}').text, good.text)
    assert [verdict.status for verdict in receipt.results] == ["rejected", "accepted"]
    assert (receipt.results[0].reason or "").startswith(f"{word} is not JSON")
    door.stored(good)


@pytest.mark.parametrize("escape", LONE)
def test_half_a_character_in_content_is_kept_and_in_a_name_is_refused(
    door: Door, escape: str
) -> None:
    content = with_data(f'{{"{escape}": "{escape}", "list": ["{escape}"]}}')
    whole = escape in {"\\u0000", "\\ufffe", "\\ud83d\\ude00"}
    named = event({"type": '"x.y"', "user": f'"{escape}"'})
    receipt = door.send(content.text, named.text)
    door.stored(content)
    wanted = "accepted" if whole else "rejected"
    assert [verdict.status for verdict in receipt.results] == ["accepted", wanted]


def test_a_secret_under_half_a_character_is_refused_with_a_reason_that_can_be_sent(
    door: Door,
) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    good = sound()
    odd = event({"type": '"x.y"', "data": "{}"})
    text = odd.text[:-1] + f', "\\ud800": "{secret}"}}'
    receipt = door.send(text, good.text)
    assert [verdict.status for verdict in receipt.results] == ["rejected", "accepted"]
    assert secret not in (receipt.results[0].reason or "").encode().decode()


@pytest.mark.parametrize("kind", ["[]", "{}", '["x"]', "1", "null", "1e400", "true"])
def test_a_type_that_is_no_name_is_refused_and_its_neighbour_is_not(door: Door, kind: str) -> None:
    receipt = door.send(event({"type": kind, "data": "{}"}).text, sound().text)
    assert [verdict.status for verdict in receipt.results] == ["rejected", "accepted"]


def test_a_schema_version_of_5000_digits_is_only_an_odd_version(door: Door) -> None:
    odd = event(
        {
            "type": '"thumbwheel.turn.submitted.v1"',
            "dataschema": f'"urn:x:1.{"9" * 5_000}"',
            "data": '{"turn.id": 5}',
        }
    )
    assert [v.status for v in door.send(odd.text, sound().text).results] == ["rejected", "accepted"]


@pytest.mark.parametrize("sequence", ["5", "5.0", '"5"', '"5.0"', '"0.0"', '"1_0"', "true", "-0.0"])
def test_a_sequence_that_is_accepted_is_the_one_that_is_stored(door: Door, sequence: str) -> None:
    sent = event({"type": '"x.y"', "sequence": sequence})
    wanted = TypeAdapter(int).validate_python(json.loads(sequence))
    assert door.send(sent.text).count("accepted") == 1
    assert door.stored(sent)["sequence"] == wanted


@pytest.mark.parametrize("time", ["0", '"0"', "1", "-1", "5e9", '"1969-12-31t23:59:59.5-00:30"'])
def test_a_time_that_is_accepted_is_the_one_that_is_stored(door: Door, time: str) -> None:
    sent = event({"type": '"x.y"', "time": time})
    wanted = TypeAdapter(datetime).validate_python(json.loads(time)).astimezone(UTC)
    assert door.send(sent.text).count("accepted") == 1
    stored = door.stored(sent)["time"]
    assert stored is not None
    assert abs(stored.replace(tzinfo=UTC) - wanted) < timedelta(microseconds=1)


def test_a_name_twice_at_the_top_is_refused_and_deeper_the_last_one_stands(door: Door) -> None:
    top = event({"type": '"x.y"'}).text[:-1] + ', "type": "x.z"}'
    deep = with_data('{"a": 1, "b": {"c": 1, "c": 2}, "a": [3], "\\u0061": 4}')
    receipt = door.send(top, deep.text)
    assert [verdict.status for verdict in receipt.results] == ["rejected", "accepted"]
    assert json.loads(door.stored(deep)["body"])["data"] == {"a": 4, "b": {"c": 2}}


@pytest.mark.parametrize("shape", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_up_to_the_bound_is_kept_and_beyond_it_refused(
    door: Door, shape: tuple[str, str]
) -> None:
    opening, closing = shape
    levels = opening.count("{") + opening.count("[")

    def nested(depth: int) -> Sent:
        times = depth // levels
        return with_data(opening * times + "0" + closing * times)

    fits, over, far, good = nested(98), nested(104), nested(200_000), sound()
    receipt = door.send(fits.text, over.text, far.text, good.text)
    assert [verdict.status for verdict in receipt.results] == [
        "accepted", "rejected", "rejected", "accepted",
    ]  # fmt: skip
    assert "nested deeper than 100 levels" in str(receipt.results[2].reason)
    door.stored(fits)
    door.stored(good)


@pytest.mark.parametrize("make", [str, lambda number: f'{{"{number}": null}}', "[]".format])
def test_a_list_of_a_hundred_thousand_items_is_one_fact(
    door: Door, make: Callable[[int], str]
) -> None:
    items = [make(number) for number in range(100_000)]
    for size in (100_000, 10_000):
        sent = with_data(f"[{','.join(items[:size])}]")
        fits = len(sent.text.encode()) <= 1 << 20
        assert door.send(sent.text).count("accepted") == fits
        if fits:
            door.stored(sent)


def test_a_value_over_a_mebibyte_comes_back_with_its_odd_characters(door: Door) -> None:
    sent = with_data('{"big": "' + "\\ud83d é😀\\u0000" * 80_000 + '", "n": 1e400}')
    assert door.send(sent.text, json.dumps(fact())).count("accepted") == 2
    door.stored(sent)
