import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serving.conftest import MESSAGES, Desk
from tests.serving.engines import DONE, delta

STREAM: dict[str, Any] = {"model": "m1", "messages": MESSAGES, "stream": True}
CODE = {"x-thumbwheel-consent": "code"}


def said(fact: dict[str, Any]) -> str:
    (message,) = fact["data"]["gen_ai.output.messages"]
    return str(message["parts"][0]["content"])


@pytest.mark.parametrize("ending", ["cut", "stall", "whole"])
def test_a_stream_that_breaks_tells_the_client_and_keeps_the_text_so_far(
    desk: Desk, ending: Any
) -> None:
    hasty = desk.register(f"hasty-{ending}", timeout_s=0.4).json()["id"]
    desk.engine.says(delta("Hel"), delta("lo"), b'data: {"half', ending=ending)
    answer = desk.ask(hasty, stream=True, headers={"consent": "code"})
    assert answer.status_code == 200
    last = answer.text.rstrip().rpartition("\n\n")[2]
    assert last.startswith("data: ")
    assert '"code": "EngineFailed"' in last
    fact = desk.finished(answer)
    assert fact["data"]["outcome"] == "error"
    assert fact["data"]["error.type"] == {
        "cut": "RemoteProtocolError", "stall": "ReadTimeout", "whole": "incomplete",
    }[ending]  # fmt: skip
    assert said(fact) == "Hello"


def test_an_engine_that_ends_after_its_reason_but_without_done_is_whole(desk: Desk) -> None:
    desk.engine.says(delta("x"), delta(finish_reason="length"))
    data = desk.finished(desk.ask(stream=True))["data"]
    assert (data["outcome"], data["gen_ai.response.finish_reasons"]) == ("ok", ["length"])


def test_what_breaks_after_done_is_no_error(desk: Desk) -> None:
    desk.engine.says(delta("x"), DONE, ending="cut")
    answer = desk.ask(stream=True)
    assert answer.content == delta("x") + DONE
    assert desk.finished(answer)["data"]["outcome"] == "ok"


@pytest.mark.parametrize("ending", ["stall", "endless"])
def test_a_client_that_hangs_up_frees_the_engine_and_its_text_so_far_is_kept(
    desk: Desk, ending: Any
) -> None:
    desk.engine.says(delta("so "), delta("far"), ending=ending)
    with httpx.Client(base_url=desk.running.url, headers=desk.http.headers) as client:
        stream = client.stream("POST", "/v1/chat/completions", json=STREAM, headers=CODE)
        with stream as answer:
            seen = ""
            for text in answer.iter_text():
                seen += text
                if "far" in seen:
                    break
    assert desk.engine.left.wait(5)
    fact = desk.finished(answer)
    assert fact["data"]["outcome"] == "cancelled"
    assert said(fact).startswith("so far")


def test_a_client_that_leaves_before_the_first_byte_is_recorded_as_cancelled(desk: Desk) -> None:
    desk.engine.says(delta("late"), ending="endless")
    desk.engine.gate.clear()
    host, _, port = desk.running.url.removeprefix("http://").partition(":")
    body = b'{"model": "m1", "stream": true, "messages": [{"role": "user", "content": "x"}]}'
    with socket.create_connection((host, int(port))) as client:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            f"x-thumbwheel-conversation: gone\r\nAuthorization: {desk.http.headers['authorization']}\r\n\r\n"
        )
        client.sendall(head.encode() + body)
        assert desk.engine.asked.wait(5)
    threading.Event().wait(0.1)
    desk.engine.gate.set()
    assert desk.engine.left.wait(5)
    question = (
        "SELECT JSONExtractString(body, 'data', 'outcome') AS outcome FROM events "
        "WHERE conversation = 'gone'"
    )
    for _ in range(100):
        rows = list(desk.running.server.ingest.store.rows(question))
        if rows:
            break
        threading.Event().wait(0.05)
    assert [row["outcome"] for row in rows] == ["cancelled"]


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_is_down_is_a_502_in_openais_shape_and_a_fact(
    desk: Desk, stream: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    down = desk.register(f"down-{stream}", url=f"http://127.0.0.1:{port}/v1").json()["id"]
    answer = desk.ask(down, stream=stream)
    assert answer.status_code == 502
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == "EngineFailed"
    assert answer.headers["retry-after"]
    assert answer.headers["x-thumbwheel-checkpoint"] == down
    assert float(answer.headers["x-thumbwheel-overhead-ms"]) >= 0
    data = desk.finished(answer)["data"]
    assert (data["outcome"], data["error.type"]) == ("error", "ConnectError")


@pytest.mark.parametrize("ending", ["cut", "stall"])
def test_an_answer_that_breaks_off_is_a_502_and_a_fact(desk: Desk, ending: Any) -> None:
    hasty = desk.register(f"hasty-{ending}-json", timeout_s=0.4).json()["id"]
    desk.engine.says(b'{"half', kind="application/json", ending=ending)
    answer = desk.ask(hasty)
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")
    assert desk.finished(answer)["data"]["outcome"] == "error"


def test_endless_streams_whose_clients_leave_do_not_hold_up_the_next(desk: Desk) -> None:
    desk.engine.says(delta("x" * 1000), ending="endless")

    def leave(_: int) -> httpx.Response:
        with (
            httpx.Client(base_url=desk.running.url, headers=desk.http.headers) as client,
            client.stream("POST", "/v1/chat/completions", json=STREAM) as answer,
        ):
            next(answer.iter_bytes())
        return answer

    with ThreadPoolExecutor(10) as pool:
        left = list(pool.map(leave, range(10)))
    assert {desk.finished(answer)["data"]["outcome"] for answer in left} == {"cancelled"}
    desk.engine.says(delta("fine"), DONE)
    assert desk.ask(stream=True).content == delta("fine") + DONE
