import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from ingest.drain import Drain
from ingest.room import Ingest
from tests.ingest.doors import Door
from tests.ingest.otlp_spans import CHAT, SPAN, START, TRACE, judged, send, span


@pytest.fixture
def door(room: Ingest, drain: Drain, serve: Callable[[FastAPI], str]) -> Iterator[Door]:
    door = Door.open(room, drain, serve)
    with door.http:
        yield door


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
