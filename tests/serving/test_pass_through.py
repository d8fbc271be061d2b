import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serving.conftest import Desk
from tests.serving.engines import ANSWER, DONE, HELLO, USAGE_CHUNK, delta, event


def test_an_answer_comes_as_the_engine_sent_it(desk: Desk) -> None:
    answer = desk.ask()
    assert (answer.status_code, answer.content) == (200, ANSWER)
    assert answer.headers["content-type"] == "application/json"


_ODD = (
    b": a comment\n\nevent: x\nid: 3\ndata:" + delta("\u2028\x85\x0c\x1c\n")[5:],
    b"data: " + json.dumps({"choices": [{"delta": {"content": "\u2028\x85ü"}}]},
                           ensure_ascii=False).encode() + b"\r\n\r\n",
    b"data: not json\n\n", b"data: [1]\n\n", b"data: " + b"[" * 3000 + b"\n\n",
    *(piece for piece in (HELLO[0][:9], HELLO[0][9:])), HELLO[1], HELLO[2], DONE,
)  # fmt: skip


@pytest.mark.parametrize("pieces", [(*HELLO, DONE), _ODD], ids=["plain", "odd"])
def test_a_stream_comes_byte_by_byte_as_the_engine_sent_it(
    desk: Desk, pieces: tuple[bytes, ...]
) -> None:
    desk.engine.says(*pieces)
    answer = desk.ask(stream=True)
    assert answer.content == b"".join(pieces)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert desk.finished(answer)["data"]["outcome"] == "ok"


def test_a_request_reaches_the_engine_in_its_own_words_and_with_its_own_key(desk: Desk) -> None:
    desk.register("m2", model="their-name", api_key="sk-theirs").raise_for_status()
    desk.register("m3", url=f"{desk.engine.url}/?version=2").raise_for_status()
    desk.ask("m2", tools=[{"x": 1}], custom={"deep": [None]}, headers={"user": "u1"})
    desk.ask("m1", messages=[{"role": "user", "content": "half \ud83d"}])
    desk.ask("m3")
    ours = desk.http.headers["authorization"].removeprefix("Bearer ")
    theirs, keyless, queried = desk.engine.received
    assert theirs.path == "/v1/chat/completions"
    assert theirs.headers["authorization"] == "Bearer sk-theirs"
    assert theirs.body == {
        "model": "their-name", "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"x": 1}], "custom": {"deep": [None]},
    }  # fmt: skip
    assert "authorization" not in keyless.headers
    assert keyless.body["model"] == "m1"
    assert keyless.body["messages"][0]["content"] == "half \ud83d"
    assert queried.path == "/v1/chat/completions?version=2"
    assert ours not in str(desk.engine.received)
    assert "x-thumbwheel-user" not in theirs.headers


def test_what_the_answer_cost_is_asked_for_but_shown_only_to_a_client_that_asked(
    desk: Desk,
) -> None:
    desk.engine.says(*HELLO, USAGE_CHUNK, DONE)
    silent = desk.ask(stream=True, stream_options={"x": 1})
    curious = desk.ask(stream=True, stream_options={"include_usage": True})
    odd = desk.ask(stream=True, stream_options=[1])
    assert b"usage" not in silent.content
    assert silent.text.rstrip().endswith("[DONE]")
    assert USAGE_CHUNK in curious.content
    options = [each.body["stream_options"] for each in desk.engine.received]
    assert options == [{"x": 1, "include_usage": True}, {"include_usage": True}, [1]]
    for answer in (silent, curious, odd):
        assert desk.finished(answer)["data"]["gen_ai.usage.output_tokens"] == 2


def test_an_engine_that_does_not_stream_is_passed_on_whole(desk: Desk) -> None:
    answer = desk.ask(stream=True)
    assert answer.content == ANSWER
    data = desk.finished(answer)["data"]
    assert (data["outcome"], data["gen_ai.response.model"]) == ("ok", "engine-model")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_engines_refusal_is_passed_on_and_recorded(
    desk: Desk, status: int, stream: bool
) -> None:
    refusal = {"error": {"message": "no", "type": "x", "param": None, "code": None}}
    desk.engine.answers(refusal, status=status, headers=(("Retry-After", "7"),))
    answer = desk.ask(stream=stream)
    assert (answer.status_code, answer.json()) == (status, refusal)
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["x-thumbwheel-checkpoint"] == "m1"
    data = desk.finished(answer)["data"]
    assert (data["outcome"], data["error.type"]) == ("error", str(status))


_NAN_ANSWER = b'{"choices": [{"message": {"content": "x", "deep": %s}, "logprobs": {"content": [{"logprob": -Infinity}, 3, {}]}}]}'
_TWISTED: list[Any] = [
    {"usage": "many", "choices": None, "id": 5, "model": [], "prompt_token_ids": "x"},
    {"choices": [{"index": "0", "finish_reason": 3, "message": "hi", "logprobs": [1]}]},
    {"choices": [{"message": {"content": 5, "tool_calls": 7}, "token_ids": ["a"]}]},
    {"choices": [{"message": {"tool_calls": [None, {"type": "custom", "custom": {}}]}}]},
    {"usage": {"prompt_tokens": -1, "completion_tokens": 1e99, "total": True}},
    {"usage": {"prompt_tokens": True, "completion_tokens": 1 << 70}, "model": "x" * 2_000_000},
]  # fmt: skip


def test_odd_answers_reach_the_client_and_leave_a_fact_with_what_was_understood(
    desk: Desk,
) -> None:
    texts = [json.dumps(each).encode() for each in _TWISTED]
    texts += [_NAN_ANSWER % b"1", _NAN_ANSWER % (b"[" * 300 + b"]" * 300)]
    answers = []
    for text in texts:
        desk.engine.says(text, kind="application/json")
        answer = desk.ask(headers={"consent": "training"})
        assert (answer.status_code, answer.content) == (200, text)
        answers.append(answer)
    for answer in answers:
        data = desk.finished(answer)["data"]
        assert data["outcome"] == "ok"
        assert "gen_ai.usage.output_tokens" not in data


@pytest.mark.parametrize("garbage", [b"<html>", b"", b"[1]", b"\xff\xfe", b"[" * 99_999])
def test_an_answer_that_is_no_json_object_is_passed_on_and_recorded_as_an_error(
    desk: Desk, garbage: bytes
) -> None:
    desk.engine.says(garbage, kind="application/json")
    answer = desk.ask()
    assert answer.content == garbage
    data = desk.finished(answer)["data"]
    assert (data["outcome"], data["error.type"]) == ("error", "unreadable")


def test_odd_streamed_pieces_reach_the_client_and_do_not_spoil_the_record(desk: Desk) -> None:
    odd: list[Any] = [
        {"choices": None, "usage": "x"}, {"choices": [None]}, {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": 5, "tool_calls": [1, {"function": 2, "index": "x"}]}}]},
        {"choices": [{"index": 1, "delta": {"content": "another answer"}}]},
        {"choices": [{"finish_reason": 5, "delta": {"content": ["x"]}}]}, {"error": None},
    ]  # fmt: skip
    pieces = (delta("fi"), *map(event, odd), delta("ne"), b"data:[DONE]\n\n")
    desk.engine.says(*pieces)
    answer = desk.ask(stream=True, headers={"consent": "code"})
    assert answer.content == b"".join(pieces)
    data = desk.finished(answer)["data"]
    assert data["outcome"] == "ok"
    (message,) = data["gen_ai.output.messages"]
    assert message["parts"][0] == {"type": "text", "content": "fine"}


def test_an_error_within_a_stream_is_an_error_although_the_stream_ends_well(desk: Desk) -> None:
    desk.engine.says(delta("He"), event({"error": {"message": "out of memory"}}), DONE)
    answer = desk.ask(stream=True)
    data = desk.finished(answer)["data"]
    assert (data["outcome"], data["error.type"]) == ("error", "engine")


def test_a_stream_arrives_while_the_engine_still_speaks(desk: Desk) -> None:
    desk.engine.says(delta("first"), ending="stall")
    body = {"model": "m1", "messages": [{"role": "user", "content": "x"}], "stream": True}
    with desk.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert "first" in next(answer.iter_text())


def test_fifty_streams_at_once_are_each_whole_and_each_recorded(desk: Desk) -> None:
    desk.engine.says(*(delta(f"{n} ") for n in range(40)), delta(finish_reason="stop"), DONE)
    whole = b"".join(desk.engine.script.pieces)

    def ask(n: int) -> httpx.Response:
        return desk.ask(stream=True, headers={"user": f"u{n}", "conversation": f"c{n}"})

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(ask, range(50)))
    assert {answer.content for answer in answers} == {whole}
    assert {desk.finished(answer)["data"]["outcome"] for answer in answers} == {"ok"}
