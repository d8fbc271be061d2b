"""What `completion.finished` keeps, and what consent keeps out of it."""

import json
from typing import Any

import pytest

from ingest.events import content_in
from tests.serving.conftest import Desk
from tests.serving.engines import DONE, HELLO, USAGE, USAGE_CHUNK, delta, event


def call(index: int, id: str | None = None, name: str | None = None, arguments: str = "") -> Any:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id, "type": "function", "function": function}


def test_a_fact_says_who_was_answered_by_what_and_how_fast(desk: Desk) -> None:
    headers = {"user": "u1", "organization": "o1", "conversation": "c1", "turn": "t1"}
    answer = desk.ask(headers=headers, temperature=0.5, seed=3, tools=[{"type": "function"}])
    fact = desk.finished(answer)
    assert {"source": "/serving", "user": "u1", "organization": "o1", "consent": "metrics",
            "partitionkey": "c1"}.items() <= fact.items()  # fmt: skip
    data = fact["data"]
    expected = {
        "completion.id": answer.headers["x-thumbwheel-completion-id"],
        "gen_ai.conversation.id": "c1", "turn.id": "t1", "checkpoint": "m1", "route": "m1",
        "reason": "pinned", "outcome": "ok", "stream": False, "gen_ai.response.id": "e1",
        "gen_ai.response.model": "engine-model", "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2,
        "sampling": {"temperature": 0.5, "seed": 3},
    }  # fmt: skip
    assert expected.items() <= data.items()
    assert data["tokens_per_s"] == pytest.approx(2 / data["duration_s"])
    assert len(data["tools_sha256"]) == 64
    assert "time_to_first_token_s" not in data


@pytest.mark.parametrize("stream", [True, False])
def test_consent_decides_whether_content_is_kept(desk: Desk, stream: bool) -> None:
    if stream:
        desk.engine.says(*HELLO, USAGE_CHUNK, DONE)
    tools = [{"type": "function", "function": {"name": "secret_tool"}}]
    facts = {
        level: desk.finished(desk.ask(
            headers={"consent": level} if level else {}, stream=stream, tools=tools,
            messages=[{"role": "user", "content": "secret"}],
        ))
        for level in ("", "metrics", "code", "training")
    }  # fmt: skip
    for level in ("", "metrics"):
        assert facts[level]["consent"] == "metrics"
        assert content_in(facts[level]["data"]) == []
        assert "secret" not in json.dumps(facts[level])
        assert "Hello" not in json.dumps(facts[level])
        assert facts[level]["data"]["gen_ai.usage.output_tokens"] == USAGE["completion_tokens"]
    for level in ("code", "training"):
        assert facts[level]["consent"] == level
        data = facts[level]["data"]
        asked, said = data["gen_ai.input.messages"], data["gen_ai.output.messages"]
        assert asked == [{"role": "user", "parts": [{"type": "text", "content": "secret"}]}]
        assert said == [{"role": "assistant", "parts": [{"type": "text", "content": "Hello"}]}]
        assert data["gen_ai.tool.definitions"] == tools


def test_token_ids_logprobs_reasoning_and_tool_calls_are_put_together_from_a_stream(
    desk: Desk,
) -> None:
    def logprobs(*values: float) -> Any:
        return {"content": [{"token": "x", "logprob": value} for value in values]}

    first = {
        "prompt_token_ids": [1, 2, 3],
        "choices": [{"index": 0, "delta": {"role": "assistant"}}],
    }
    calls = [[call(1, "b", "two", "{")], [call(0, "a", "one", '{"x"')], [call(0, None, None, ":1}")],
             [call(1, None, None, "}")]]  # fmt: skip
    desk.engine.says(
        event(first),
        delta(delta={"reasoning_content": "hm"}), delta(delta={"reasoning_content": "m"}),
        delta("Hi", token_ids=[4], logprobs=logprobs(-0.5)),
        delta("!", token_ids=[5, 6], logprobs=logprobs(-1, -2)),
        *(delta(delta={"tool_calls": each}) for each in calls),
        delta(finish_reason="tool_calls"), DONE,
    )  # fmt: skip
    data = desk.finished(desk.ask(stream=True, headers={"consent": "training"}))["data"]
    (message,) = data["gen_ai.output.messages"]
    assert message["reasoning_content"] == "hmm"
    assert message["parts"] == [
        {"type": "text", "content": "Hi!"},
        {"type": "tool_call", "id": "a", "name": "one", "arguments": '{"x":1}'},
        {"type": "tool_call", "id": "b", "name": "two", "arguments": "{}"},
    ]
    assert data["prompt_token_ids"] == [1, 2, 3]
    assert data["token_ids"] == [4, 5, 6]
    assert data["logprobs"] == [-0.5, -1, -2]
    assert 0 < data["time_to_first_token_s"] <= data["duration_s"]


def test_token_ids_are_content_too(desk: Desk) -> None:
    desk.engine.says(delta("Hi", token_ids=[4], logprobs={"content": [{"logprob": -1}]}), DONE)
    data = desk.finished(desk.ask(stream=True))["data"]
    assert {"token_ids", "logprobs", "gen_ai.output.messages"} & data.keys() == set()


@pytest.mark.parametrize("where", ["prompt", "answer"])
def test_content_over_a_mebibyte_leaves_the_fact_without_it(desk: Desk, where: str) -> None:
    much = "ü" * 300_000
    messages = [{"role": "user", "content": much if where == "prompt" else "x"}]
    if where == "answer":
        desk.engine.says(*(delta(much[:1000]) for _ in range(300)), USAGE_CHUNK, DONE)
    answer = desk.ask(headers={"consent": "training"}, messages=messages, stream=where == "answer")
    data = desk.finished(answer)["data"]
    assert data["content_omitted"].endswith(" bytes")
    assert content_in(data) == []
    assert (data["outcome"], data["gen_ai.usage.output_tokens"]) == ("ok", 2)


def test_a_mebibyte_beside_the_content_does_not_cost_the_fact(desk: Desk) -> None:
    data = desk.finished(desk.ask(stop=["x" * 2_000_000], headers={"consent": "code"}))["data"]
    assert data["sampling"]["omitted"].endswith(" bytes")
    assert data["gen_ai.output.messages"]


def test_odd_requests_are_served_and_recorded(desk: Desk) -> None:
    odd: list[Any] = [
        [{"role": "assistant", "tool_calls": [{"id": "x", "type": "custom", "custom": {}}]}],
        [{"role": "assistant", "tool_calls": 5, "content": 7}], [None, 3, "hi"],
        [{"role": "user", "content": ["hi", None, {"type": "text"}, {"type": "tool_call"}]}],
        [{"role": "user", "content": "half \ud83d, nul \0"}],
    ]  # fmt: skip
    answers = [desk.ask(messages=messages, headers={"consent": "code"}) for messages in odd]
    assert [each.body["messages"] for each in desk.engine.received] == odd
    for answer in answers:
        assert answer.status_code == 200
        assert desk.finished(answer)["data"]["outcome"] == "ok"


def test_header_values_with_odd_characters_are_kept_as_the_ids_they_are(desk: Desk) -> None:
    cases = [
        ("zoë ✨".encode(), "zoë ✨"), ("zoë".encode("latin-1"), "zoë"), (b"a'\"{};,=\t%00", "a'\"{};,=\t%00"),
        (b"", None), (b"x" * 800, "x" * 800),
    ]  # fmt: skip
    answers = [desk.ask(headers={"user": sent, "conversation": sent}) for sent, _ in cases]
    for answer, (_, meant) in zip(answers, cases, strict=True):
        fact = desk.finished(answer)
        assert fact.get("user") == meant
        assert fact["data"].get("gen_ai.conversation.id") == meant
