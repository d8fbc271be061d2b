from typing import Any

import httpx
import pytest

from tests.serving.conftest import MESSAGES, Desk

_REFUSED: list[tuple[str, bytes, dict[str, str], int]] = [
    ("not JSON", b"hello", {}, 400),
    ("no object", b"[]", {}, 400),
    ("NaN", b'{"model": "m1", "messages": [1], "temperature": NaN}', {}, 400),
    ("infinite", b'{"model": "m1", "messages": [1], "temperature": 1e999}', {}, 400),
    ("too deep", b'{"model": "m1", "messages": ' + b"[" * 400 + b"]" * 400 + b"}", {}, 400),
    ("much too deep", b"[" * 99_999, {}, 400),
    ("no UTF-8", b'{"model": "\xff"}', {}, 400),
    ("not gzip", b"{}", {"Content-Encoding": "gzip"}, 400),
    ("too large", b" " * (21 << 20), {}, 413),
    ("no model", b'{"messages": [{}]}', {}, 422),
    ("a model that is no name", b'{"model": 5, "messages": [{}]}', {}, 422),
    ("no messages", b'{"model": "m1"}', {}, 422),
    ("empty messages", b'{"model": "m1", "messages": []}', {}, 422),
    ("wrong consent", b'{"model": "m1", "messages": [{}]}', {"x-thumbwheel-consent": "all"}, 422),
    ("long user", b'{"model": "m1", "messages": [{}]}', {"x-thumbwheel-user": "u" * 801}, 422),
    ("unknown", b'{"model": "nowhere", "messages": [{}]}', {}, 404),
    ("odd names", '{"model": "Модель\\r\\nx: y\\ud800\\u0000", "messages": [{}]}'.encode(), {}, 404),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "headers", "status"), [case[1:] for case in _REFUSED], ids=[c[0] for c in _REFUSED]
)
def test_what_cannot_be_served_is_refused_in_openais_shape(
    desk: Desk, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = desk.http.post("/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert (error["param"] is not None) == (status == 422)
    assert answer.headers["x-thumbwheel-completion-id"].startswith("cmpl-")
    assert float(answer.headers["x-thumbwheel-overhead-ms"]) >= 0
    assert "x" not in answer.headers
    assert desk.engine.received == []


def test_without_a_key_401_and_without_the_scope_403_in_openais_shape(desk: Desk) -> None:
    wanted = {"model": "m1", "messages": MESSAGES}
    with httpx.Client(base_url=desk.running.url) as nobody:
        answer = nobody.post("/v1/chat/completions", json=wanted)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "Unauthorized")
        assert nobody.get("/v1/models").status_code == 401
    with desk.running.with_scopes("ingest") as editor:
        answer = editor.post("/v1/chat/completions", json=wanted)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "Forbidden")
    with desk.running.with_scopes("serve") as editor:
        assert editor.post("/v1/chat/completions", json=wanted).status_code == 200
        assert editor.get("/v1/checkpoints").status_code == 403


def test_a_good_answer_says_what_made_it(desk: Desk) -> None:
    headers = desk.ask().headers
    assert headers["x-thumbwheel-checkpoint"] == "m1"
    assert headers["x-thumbwheel-completion-id"] != desk.ask().headers["x-thumbwheel-completion-id"]
    assert 0 <= float(headers["x-thumbwheel-overhead-ms"]) < 5000


def test_the_models_are_the_route_and_every_checkpoint(desk: Desk) -> None:
    listing = desk.http.get("/v1/models").json()
    assert listing["object"] == "list"
    assert [each["id"] for each in listing["data"]][:2] == ["agent", "m1"]
    assert {each["object"] for each in listing["data"]} == {"model"}


def test_a_checkpoint_never_changes_and_never_tells_its_secret(desk: Desk) -> None:
    made = desk.register("org/a.b:1", api_key="sk-secret")
    assert made.status_code == 201
    again = desk.register("org/a.b:1", api_key="sk-other")
    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")
    one, every = desk.http.get("/v1/checkpoints/org/a.b:1"), desk.http.get("/v1/checkpoints")
    assert one.json()["engine"]["api_key"] == "set"
    assert "org/a.b:1" in [each["id"] for each in every.json()["checkpoints"]]
    for answer in (made, again, one, every):
        assert "sk-" not in answer.text


_BAD: list[dict[str, Any]] = [
    {"id": "", "engine": {"url": "http://x"}}, {"id": "a b", "engine": {"url": "http://x"}},
    {"id": "a\n", "engine": {"url": "http://x"}}, {"id": "ä", "engine": {"url": "http://x"}},
    {"id": "a", "engine": {"url": "ftp://x"}}, {"id": "a", "engine": {}},
    {"id": "a", "engine": {"url": "http://u:sk-hidden@x"}}, {"id": "a", "x": 1},
    {"id": "a", "engine": {"url": "http://x", "timeout_s": 0}},
    {"id": "a", "engine": {"url": "http://x", "api_key": "sk-hidden\r\nx: y"}},
    {"id": "a", "engine": {"url": "http://x", "api_key": "sk-hiddenü"}},
]  # fmt: skip


def test_a_checkpoint_that_could_not_be_called_is_refused_without_repeating_its_secret(
    desk: Desk,
) -> None:
    for wanted in _BAD:
        answer = desk.http.post("/v1/checkpoints", json=wanted)
        assert answer.status_code == 422, wanted
        assert "sk-hidden" not in answer.text


def test_an_alias_moves_and_never_hides_a_checkpoint(desk: Desk) -> None:
    for name in ("one", "two"):
        desk.register(name).raise_for_status()
        moved = desk.http.post(f"/v1/checkpoints/{name}/alias", json={"alias": "star"})
        assert moved.json() == {"id": name, "alias": "star"}
        assert desk.ask("star").headers["x-thumbwheel-checkpoint"] == name
    assert desk.http.get("/v1/checkpoints").json()["aliases"]["star"] == "two"
    for taken in ("one", "agent"):
        answer = desk.http.post("/v1/checkpoints/two/alias", json={"alias": taken})
        assert answer.status_code == 409
    assert desk.register("star").status_code == desk.register("agent").status_code == 409
    assert desk.http.post("/v1/checkpoints/two/alias", json={"alias": "A B"}).status_code == 422
    assert desk.http.post("/v1/checkpoints/none/alias", json={"alias": "x"}).status_code == 404
    assert desk.http.get("/v1/checkpoints/none").status_code == 404
