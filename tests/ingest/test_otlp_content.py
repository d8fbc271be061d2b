import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from ingest.drain import Drain
from ingest.room import Ingest
from tests.ingest.doors import Door
from tests.ingest.otlp_spans import CHAT, PROMPT, judged, send, span


@pytest.fixture
def door(room: Ingest, drain: Drain, serve: Callable[[FastAPI], str]) -> Iterator[Door]:
    door = Door.open(room, drain, serve)
    with door.http:
        yield door


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
