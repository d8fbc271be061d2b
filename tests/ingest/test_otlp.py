import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
import zstandard
from fastapi import FastAPI
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest._otlp import read_export
from ingest._otlp_spans import facts_of
from ingest.drain import Drain
from ingest.errors import Unavailable, Unreadable
from ingest.log import Entry
from ingest.room import Ingest
from tests.ingest.doors import Door

TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))
START = 1_764_500_000_000_000_000
PROTOBUF = {"Content-Type": "application/x-protobuf"}


@pytest.fixture
def door(room: Ingest, drain: Drain, serve: Callable[[FastAPI], str]) -> Iterator[Door]:
    door = Door.open(room, drain, serve)
    with door.http:
        yield door


def value(said: Any) -> AnyValue:
    if isinstance(said, list):
        return AnyValue(array_value=ArrayValue(values=map(value, said)))
    if isinstance(said, dict):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(said)))
    kinds = {bool: "bool", int: "int", float: "double", bytes: "bytes", str: "string"}
    return AnyValue(**{f"{kinds[type(said)]}_value": said}) if said is not None else AnyValue()


def pairs(said: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=name, value=value(each)) for name, each in said.items()]


def span(attributes: dict[str, Any] | None = None, **changes: Any) -> Span:
    events = changes.pop("events", ())
    fields: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "name": "chat m",
        "start_time_unix_nano": START,
        "end_time_unix_nano": START + 1_500_000_000,
        "attributes": pairs(CHAT if attributes is None else attributes),
        "events": [
            Span.Event(name=name, time_unix_nano=START + 1, attributes=pairs(said))
            for name, said in events
        ],
    }
    return Span(**fields | changes)


def export(*spans: Span, **resource: Any) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.extend(pairs({"service.name": "agent"} | resource))
    group.scope_spans.add().spans.extend(spans)
    return request


def as_json(request: ExportTraceServiceRequest) -> Any:
    """As OTLP has it: ids in hexadecimal."""
    document = MessageToDict(request)
    for group in document["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for each, said in zip(
                scope["spans"], request.resource_spans[0].scope_spans[0].spans, strict=True
            ):
                each |= {"traceId": said.trace_id.hex(), "spanId": said.span_id.hex()}
    return document


def send(door: Door, *spans: Span, **resource: Any) -> ExportTraceServiceResponse:
    body = export(*spans, **resource).SerializeToString()
    answer = door.http.post("/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/x-protobuf"
    response: ExportTraceServiceResponse = ExportTraceServiceResponse.FromString(answer.content)
    return response


CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.usage.output_tokens": 5,
}
PROMPT = [{"role": "user", "parts": [{"type": "text", "content": "hush 🤫"}]}]


def judged(name: str = "Relevance", **more: Any) -> tuple[str, dict[str, Any]]:
    said = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": 0.5}
    return "gen_ai.evaluation.result", said | more


def test_a_generation_is_one_inference_with_its_own_names(door: Door) -> None:
    assert not send(door, span(parent_span_id=b"p" * 8)).HasField("partial_success")
    (fact,) = door.facts()
    assert fact["type"] == "thumbwheel.inference.completed.v1"
    assert fact["source"] == "/otlp/agent"
    assert fact["traceparent"] == f"00-{TRACE.hex()}-{SPAN.hex()}-00"
    assert fact["time"] == "2025-11-30T10:53:21.500000+00:00"
    assert fact["consent"] == "metrics"
    assert CHAT.items() <= fact["data"].items()
    assert fact["data"]["duration_s"] == 1.5
    assert fact["data"]["turn.id"] == TRACE.hex()
    assert fact["data"]["span.parent_id"] == b"pppppppp".hex()


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


def test_agent_span_and_its_generation_are_not_both_counted(door: Door) -> None:
    agent = CHAT | {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "fixer"}
    legacy = {"gen_ai.system": "x", "gen_ai.request.model": "m", "gen_ai.agent.name": "a",
              "gen_ai.usage.prompt_tokens": 7}  # fmt: skip
    send(
        door,
        span(agent, span_id=b"agentagt"),
        span(legacy, span_id=b"oldagent"),
        span(parent_span_id=b"agentagt"),
    )
    assert len(door.data("span.ended")) == 2
    assert sum(one["gen_ai.usage.input_tokens"] for one in door.data("inference.completed")) == 7


def test_without_a_trace_id_a_retry_gives_the_same_row(door: Door) -> None:
    orphan = span(trace_id=b"", span_id=b"", start_time_unix_nano=START + 1)
    other = span(trace_id=bytes(16), start_time_unix_nano=START + 2)
    for _ in range(3):
        send(door, orphan, other)
    facts = door.facts("inference.completed")
    assert len(facts) == 2
    assert len({fact["data"]["turn.id"] for fact in facts}) == 2
    assert not any(fact["data"]["turn.id"].strip("0") == "" for fact in facts)


def test_a_session_id_is_not_taken_for_the_trace_so_turns_do_not_collapse(door: Door) -> None:
    turns = [
        span(CHAT | {"session.id": "s1", "user.id": "ann"}, trace_id=bytes([n] * 16))
        for n in range(1, 4)
    ]
    send(door, *turns)
    facts = door.facts("inference.completed")
    assert {fact["data"]["turn.id"] for fact in facts} == {bytes([n] * 16).hex() for n in (1, 2, 3)}
    assert {fact["data"]["gen_ai.conversation.id"] for fact in facts} == {"s1"}
    assert {fact["user"] for fact in facts} == {"ann"}


def test_a_conversation_goes_before_a_session_and_the_span_before_its_resource(door: Door) -> None:
    own = {"gen_ai.conversation.id": "c", "session.id": "s"}
    send(door, span(CHAT | own), span(span_id=b"2" * 8), **{"session.id": "r", "enduser.id": "bob"})
    facts = door.facts("inference.completed")
    assert {fact["partitionkey"] for fact in facts} == {"c", "r"}
    assert {fact["user"] for fact in facts} == {"bob"}


def test_provider_ids_that_repeat_lose_no_rows(door: Door) -> None:
    same = [
        span(CHAT | {"gen_ai.response.id": said}, span_id=bytes([n] * 8))
        for n, said in enumerate(("chatcmpl-1", "chatcmpl-1", "", ""), start=1)
    ]
    send(door, *same)
    facts = door.facts("inference.completed")
    assert len(facts) == 4
    assert len({fact["data"]["completion.id"] for fact in facts}) == 4


def test_a_judge_that_runs_again_makes_no_second_score(door: Door) -> None:
    for score in (0.5, 0.9):
        again: dict[str, Any] = {"gen_ai.evaluation.score.value": score}
        send(door, span(events=[judged(**again)]))
    assert len(door.data("feedback.submitted")) == 1
    (given,) = door.room.store.rows("SELECT * FROM current_feedback(as_of = now64(6, 'UTC'))")
    assert (given["name"], given["value"], given["rater"]) == ("Relevance", 0.5, "agent")


def test_an_evaluation_is_feedback_of_a_model_on_the_span_it_stands_in(door: Door) -> None:
    ours = CHAT | {"thumbwheel.completion.id": "cmp-1", "gen_ai.response.id": "r1"}
    judge = {"gen_ai.operation.name": "invoke_agent"}
    by_name = judged(**{"gen_ai.response.id": "r9", "gen_ai.evaluation.score.label": "pass"})
    by_two = [judged(), judged(**{"thumbwheel.rater": "b"}), judged("Safety")]
    send(
        door,
        span(ours, span_id=b"1" * 8, events=[judged(**{"gen_ai.response.id": "r1"})]),
        span(span_id=b"2" * 8, events=by_two),
        span(judge, span_id=b"3" * 8, events=[by_name]),
        span({}, span_id=b"4" * 8, events=[judged()]),
    )
    given = door.data("feedback.submitted")
    assert sorted((one["target"]["kind"], one["target"]["id"]) for one in given) == sorted(
        [
            ("completion", "cmp-1"),
            *[("completion", f"{TRACE.hex()}-{(b'2' * 8).hex()}")] * 3,
            ("completion", "r9"),
            ("turn", TRACE.hex()),
        ]
    )
    assert {one["rater_source"] for one in given} == {"model"}
    assert len(door.data("inference.completed")) == 2
    (labelled,) = [one for one in given if one["target"]["id"] == "r9"]
    assert labelled["gen_ai.evaluation.score.label"] == "pass"


def test_tools_are_called_and_errors_kept(door: Door) -> None:
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ls",
        "gen_ai.tool.call.id": "c1",
    }
    raised = ("exception", {"exception.type": "OSError", "exception.message": "secret path"})
    send(
        door,
        span(tool, status={"code": 2, "message": "secret"}, events=[raised]),
        span(tool, span_id=b"2" * 8),
        span(CHAT | {"error.type": "timeout"}, span_id=b"3" * 8, status={"code": 2}),
        span(CHAT, span_id=b"4" * 8, status={"code": 2}),
    )
    called = door.data("tool.called")
    assert sorted((one["outcome"], one.get("error.type")) for one in called) == [
        ("error", "OSError"),
        ("ok", None),
    ]
    assert [one["error.type"] for one in door.data("inference.completed")] == ["timeout", "_OTHER"]
    assert "secret" not in json.dumps(door.facts())


def test_older_names_are_the_present_ones(door: Door) -> None:
    older = {"gen_ai.system": "openai", "gen_ai.request.model": "m",
             "gen_ai.usage.prompt_tokens": 3, "gen_ai.usage.completion_tokens": 4,
             "gen_ai.response.finish_reasons": "stop"}  # fmt: skip
    send(door, span(older))
    (data,) = door.data("inference.completed")
    assert data["gen_ai.provider.name"] == "openai"
    assert (data["gen_ai.usage.input_tokens"], data["gen_ai.usage.output_tokens"]) == (3, 4)
    assert data["gen_ai.response.finish_reasons"] == ["stop"]


def test_spans_that_are_none_of_ours_are_counted_and_left_out(door: Door) -> None:
    assert not send(door, span({"http.request.method": "GET"}), span(span_id=b"2" * 8)).HasField(
        "partial_success"
    )
    assert len(door.facts()) == 1
    assert door.api.spans == {"taken": 1, "left_out": 1}


CONTENT: dict[str, Any] = {
    "gen_ai.input.messages": json.dumps(PROMPT),
    "gen_ai.output.messages": [{"role": "assistant", "parts": []}],
    "gen_ai.system_instructions": '[{"type": "text", "content": "hush"}]',
    "gen_ai.tool.call.arguments": {"path": "hush"},
    "gen_ai.prompt.0.content": "hush",
    "gen_ai.somebodys.new.name": "hush",
}


def test_content_without_consent_is_never_stored_and_the_exporter_is_told(door: Door) -> None:
    spoken = ("gen_ai.user.message", {"content": "hush"})
    answer = send(
        door,
        span(CHAT | CONTENT),
        span(span_id=b"2" * 8, events=[spoken]),
        span(span_id=b"3" * 8, events=[judged(**{"gen_ai.evaluation.explanation": "hush"})]),
        span(span_id=b"4" * 8),
        span(CHAT | {"thumbwheel.consent": "yes please"}, span_id=b"5" * 8),
    ).partial_success
    assert answer.rejected_spans == 0
    assert "content of 3 spans was left out" in answer.error_message
    facts = door.facts()
    assert len(facts) == 6
    assert "hush" not in json.dumps(facts)
    assert {fact["consent"] for fact in facts} == {"metrics"}


@pytest.mark.parametrize("where", ["span", "resource"])
def test_content_with_consent_is_kept_as_messages(door: Door, where: str) -> None:
    consent = {"thumbwheel.consent": "training"}
    attributes = CHAT | CONTENT | (consent if where == "span" else {})
    answer = send(door, span(attributes), **(consent if where == "resource" else {}))
    assert not answer.HasField("partial_success")
    (fact,) = door.facts()
    assert fact["consent"] == "training"
    assert fact["data"]["gen_ai.input.messages"] == PROMPT
    assert fact["data"]["gen_ai.tool.call.arguments"] == {"path": "hush"}
    assert fact["data"]["gen_ai.somebodys.new.name"] == "hush"


EVENTS: list[tuple[list[tuple[str, dict[str, Any]]], str, str]] = [
    ([("gen_ai.content.prompt", {"gen_ai.prompt": '[{"role":"user","content":"ask"}]'}),
      ("gen_ai.content.completion", {"gen_ai.completion": "say"})], "ask", "say"),
    ([("gen_ai.user.message", {"content": "ask"}),
      ("gen_ai.choice", {"index": 0, "message": {"role": "assistant", "content": "say"}})],
     "ask", "say"),
    ([("gen_ai.user.message", {"gen_ai.event.content": '{"role":"user","content":"ask"}'}),
      ("gen_ai.choice", {"gen_ai.event.content": '{"index":0,"message":{"content":"say"}}'})],
     "ask", "say"),
]  # fmt: skip


@pytest.mark.parametrize(("events", "asked", "said"), EVENTS)
def test_content_in_older_events_is_kept_as_messages_too(
    door: Door, events: Any, asked: str, said: str
) -> None:
    send(door, span(CHAT | {"thumbwheel.consent": "code"}, events=events))
    (data,) = door.data("inference.completed")
    for name, role, text in (("input", "user", asked), ("output", "assistant", said)):
        parts = [{"type": "text", "content": text}]
        assert data[f"gen_ai.{name}.messages"] == [{"role": role, "parts": parts}]


def test_values_of_every_kind_come_through(door: Door) -> None:
    odd: dict[str, Any] = {
        "gen_ai.a": 2**63 - 1, "gen_ai.b": -(2**63), "gen_ai.c": float("nan"),
        "gen_ai.d": float("-inf"), "gen_ai.e": b"\x00\xff", "gen_ai.f": [1, "x", None, [True]],
        "gen_ai.g": {"a": {"b": [1.5]}}, "gen_ai.h": "nul \0 and \U0001f600",
        "gen_ai.i": '{"half": "\\ud83d", "huge": 1e999}', "thumbwheel.consent": "code",
    }  # fmt: skip
    assert not send(door, span(CHAT | odd)).HasField("partial_success")
    (data,) = door.data("inference.completed")
    expected = odd | {
        "gen_ai.c": "NaN", "gen_ai.d": "-Infinity", "gen_ai.e": {"bytesValue": "AP8="},
    }  # fmt: skip
    del expected["thumbwheel.consent"]
    assert expected.items() <= data.items()


def test_half_a_character_in_a_message_survives(door: Door) -> None:
    said = '[{"role": "user", "parts": [{"type": "text", "content": "\\ud83d"}]}]'
    send(door, span(CHAT | {"gen_ai.input.messages": said, "thumbwheel.consent": "code"}))
    assert len(door.facts()) == 1
    (row,) = door.room.store.rows("SELECT raw FROM events")
    assert "\\ud83d" in row["raw"]


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
