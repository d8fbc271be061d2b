import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
import zstandard
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from ingest._otlp import read_export
from ingest._otlp_spans import facts_of
from ingest.drain import Drain
from ingest.errors import Unavailable, Unreadable
from ingest.log import Entry
from ingest.room import Ingest
from tests.ingest.doors import Door
from tests.ingest.otlp_spans import (
    CHAT,
    PROTOBUF,
    TRACE,
    as_json,
    export,
    judged,
    send,
    span,
)


@pytest.fixture
def door(room: Ingest, drain: Drain, serve: Callable[[FastAPI], str]) -> Iterator[Door]:
    door = Door.open(room, drain, serve)
    with door.http:
        yield door


def test_json_and_protobuf_of_one_span_are_one_fact(door: Door) -> None:
    request = export(span(CHAT | {"gen_ai.usage.input_tokens": 2**53 + 1}))
    answer = door.http.post("/v1/traces", json=as_json(request))
    assert answer.json() == {}
    (first,) = door.facts()
    body = zstandard.ZstdCompressor().compress(request.SerializeToString())
    door.http.post("/v1/traces", content=body, headers=PROTOBUF | {"Content-Encoding": "zstd"})
    packed = gzip.compress(json.dumps(as_json(request)).encode())
    headers = {"Content-Type": "application/json; charset=utf-8", "Content-Encoding": "gzip"}
    assert door.http.post("/v1/traces", content=packed, headers=headers).json() == {}
    assert door.facts() == [first]
    assert first["data"]["gen_ai.usage.input_tokens"] == 2**53 + 1
    assert door.room.intake.counts["duplicate"] == 2


def test_one_bad_span_is_rejected_by_name_and_its_neighbours_are_taken(door: Door) -> None:
    answer = send(
        door,
        span(CHAT | {"gen_ai.usage.input_tokens": -1}, span_id=b"1" * 8),
        span(events=[judged("")], span_id=b"2" * 8),
        span(span_id=b"3" * 8),
    ).partial_success
    assert answer.rejected_spans == 2
    assert "data.gen_ai.usage.input_tokens" in answer.error_message
    assert "gen_ai.evaluation.name" in answer.error_message
    assert len(door.data("inference.completed")) == 2


BAD_SPANS: list[Any] = [
    {"traceId": "no hex"}, {"startTimeUnixNano": "noon"}, {"attributes": 5}, {"attributes": [5]},
    {"name": "\ud800"}, {"name": 5}, {"events": "x"}, {"spanId": 7}, {"attributes": {"a": 1}},
]  # fmt: skip


def test_spans_that_are_not_otlps_json_are_rejected_alone(door: Door) -> None:
    document = as_json(export(span()))
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    good = spans[0]
    spans += [good | bad for bad in BAD_SPANS]
    good |= {"fromTheFuture": {"x": 1}, "links": [{"traceId": TRACE.hex()}], "kind": 99}
    json_type = {"Content-Type": "application/json"}
    answer = door.http.post("/v1/traces", content=json.dumps(document), headers=json_type)
    assert answer.status_code == 200
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedSpans"] == str(len(BAD_SPANS))
    assert "not in OTLP's form" in partial["errorMessage"]
    assert len(door.facts()) == 1


def test_more_spans_than_one_take_holds_are_all_durable(door: Door) -> None:
    many = [span(span_id=n.to_bytes(8, "big")) for n in range(1, 2502)]
    assert not send(door, *many).HasField("partial_success")
    assert len(door.facts()) == 2501
    assert not send(door, *many).HasField("partial_success")
    assert door.room.intake.counts == {"accepted": 2501, "duplicate": 2501}


class FailsOnce:
    """The log, down for its second append."""

    def __init__(self, room: Ingest) -> None:
        self._log = room.log
        self.appends = 0

    def append(self, entries: Sequence[Entry]) -> str:
        self.appends += 1
        if self.appends == 2:
            raise Unavailable("the log is down")
        return self._log.append(entries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def test_a_log_that_fails_in_the_middle_asks_for_all_again_and_nothing_doubles(door: Door) -> None:
    door.room.intake.log = FailsOnce(door.room)
    many = [span(span_id=n.to_bytes(8, "big")) for n in range(1, 1501)]
    body = export(*many).SerializeToString()
    answer = door.http.post("/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert not send(door, *many).HasField("partial_success")
    assert len(door.facts()) == 1500


REFUSALS: list[tuple[str, bytes, dict[str, str], int]] = [
    ("no type", b"", {"Content-Type": ""}, 415),
    ("another type", b"", {"Content-Type": "text/plain"}, 415),
    ("not protobuf", b"\xff\xff\xff", PROTOBUF, 400),
    ("protobuf cut short", export(span()).SerializeToString()[:-3], PROTOBUF, 400),
    ("not JSON", b"{", {"Content-Type": "application/json"}, 400),
    ("not UTF-8", b'{"a": "\xff"}', {"Content-Type": "application/json"}, 400),
    ("a list", b"[]", {"Content-Type": "application/json"}, 400),
    ("too deep", b'{"a":' * 20_000, {"Content-Type": "application/json"}, 400),
    ("too large", b"\0" * ((20 << 20) + 1), PROTOBUF, 413),
    ("a bomb", gzip.compress(bytes(64 << 20)), PROTOBUF | {"Content-Encoding": "gzip"}, 413),
]  # fmt: skip


def test_an_export_that_is_none_is_refused_as_a_whole(door: Door) -> None:
    for why, body, headers, status in REFUSALS:
        answer = door.http.post("/v1/traces", content=body, headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (status, status), why
    assert door.facts() == []


def test_an_empty_export_is_fine_and_a_key_is_needed(door: Door) -> None:
    assert door.http.post("/v1/traces", content=b"", headers=PROTOBUF).content == b""
    assert door.http.post("/v1/traces", json={}).json() == {}
    with httpx.Client(base_url=door.http.base_url) as nobody:
        assert nobody.post("/v1/traces", content=b"", headers=PROTOBUF).status_code == 401
        assert nobody.post("/v1/continue", json={}).status_code == 401


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "traceId",
             "arrayValue", "values", "stringValue", "intValue", "resource", "events", "status"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(ANY_JSON)
def test_no_json_breaks_the_reader(said: Any) -> None:
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [said]}], "resource": said}]})
    try:
        found = read_export(body.encode(), "application/json")
    except Unreadable:
        return
    for each in found:
        facts_of(each)
