import gzip
import json
from typing import Any

import httpx
import pytest
import zstandard

from tests.facts import fact
from tests.running import Running

BATCH = {"Content-Type": "application/cloudevents-batch+json"}


def post(running: Running, content: bytes, **headers: str) -> httpx.Response:
    return running.http.post("/v1/events", content=content, headers=BATCH | headers)


def test_a_fact_comes_back_as_stored_with_when_and_where(running: Running) -> None:
    event = fact(time="2026-11-30T12:00:00+09:00")
    answer = running.http.post("/v1/events", json=[event]).json()
    assert answer["accepted"] == 1
    assert answer["results"] == [{"id": event["id"], "status": "accepted"}]
    running.until_stored()
    stored = running.http.get(f"/v1/events/{event['id']}").json()
    assert event.items() <= stored.items()
    assert stored["position"] == answer["position"]
    assert stored["received_at"].endswith("+00:00")


def test_a_value_over_one_mebibyte_is_kept_apart_and_comes_back_in_its_place(
    running: Running,
) -> None:
    event = fact(consent="code", data={"turn.id": "t", "prompt": "\ud83d" + "é" * (2 << 20)})
    text = json.dumps(event, indent=1)
    assert post(running, f"[{text}]".encode()).json()["accepted"] == 1
    running.until_stored()
    stored = running.http.get(f"/v1/events/{event['id']}").text
    assert stored.startswith(text.rstrip()[:-1])


def test_a_fact_is_404_until_it_is_there_and_409_when_two_sources_share_its_id(
    running: Running,
) -> None:
    assert running.http.get("/v1/events/none").status_code == 404
    event = fact()
    running.http.post("/v1/events", json=[event, event | {"source": "/ext/b"}])
    running.until_stored()
    path = f"/v1/events/{event['id']}"
    assert running.http.get(path).status_code == 409
    assert running.http.get(path, params={"source": "/ext/b"}).json()["source"] == "/ext/b"


def test_one_event_and_a_batch_have_their_media_types(running: Running) -> None:
    one = running.http.post(
        "/v1/events",
        content=json.dumps(fact()),
        headers={"Content-Type": "application/cloudevents+json; charset=utf-8"},
    )
    assert one.json()["accepted"] == 1
    assert post(running, json.dumps([fact(), fact()]).encode()).json()["accepted"] == 2
    assert post(running, b"[]").json() == {
        "results": [], "accepted": 0, "duplicate": 0, "rejected": 0, "position": None,
    }  # fmt: skip


def test_compressed_bodies_are_read(running: Running) -> None:
    body = json.dumps([fact()]).encode()
    answer = post(running, gzip.compress(body), **{"Content-Encoding": "gzip"})
    assert answer.json()["accepted"] == 1
    packed = zstandard.ZstdCompressor().compress(body)
    assert post(running, packed, **{"Content-Encoding": "zstd"}).json()["duplicate"] == 1


def test_when_it_was_sent_is_kept_beside_when_it_came(running: Running) -> None:
    event = fact()
    sent = "2026-11-30T11:22:33.500000+00:00"
    answer = post(running, json.dumps([event]).encode(), **{"Thumbwheel-Sent-At": sent})
    assert answer.json()["accepted"] == 1
    running.until_stored()
    assert running.http.get(f"/v1/events/{event['id']}").json()["sent_at"] == sent


_BOMB = gzip.compress(b" " * (64 << 20))
_REFUSALS: list[tuple[str, bytes, dict[str, str], int]] = [
    ("not JSON", b"hello", {}, 400),
    ("an object where a batch is", b"{}", {}, 400),
    ("cut short", b'[{"id": "1"', {}, 400),
    ("not gzip", b"[]", {"Content-Encoding": "gzip"}, 400),
    ("gzip cut short", gzip.compress(b"[]" * 99)[:-5], {"Content-Encoding": "gzip"}, 400),
    ("zstd cut short", zstandard.ZstdCompressor().compress(b"[" * 999)[:-5],
     {"Content-Encoding": "zstd"}, 400),
    ("a bomb", _BOMB, {"Content-Encoding": "gzip"}, 413),
    ("too many events", json.dumps([{}] * 1001).encode(), {}, 413),
    ("too many bytes", b"[" + b" " * (20 << 20) + b"]", {}, 413),
    ("another encoding", b"[]", {"Content-Encoding": "br"}, 415),
    ("another type", b"[]", {"Content-Type": "text/csv"}, 415),
    ("a sent-at that is no time", b"[]", {"Thumbwheel-Sent-At": "noon"}, 422),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "headers", "status"), [case[1:] for case in _REFUSALS], ids=[c[0] for c in _REFUSALS]
)
def test_a_request_that_is_refused_as_a_whole_takes_nothing(
    running: Running, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = running.http.post("/v1/events", content=body, headers=BATCH | headers)
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem["detail"]
    assert {"type", "title"} <= problem.keys()
    assert "Traceback" not in answer.text
    assert running.server.ingest.log.lag("store") == 0


def test_keys_open_what_their_scopes_say(running: Running) -> None:
    with httpx.Client(base_url=running.url) as nobody:
        answer = nobody.post("/v1/events", json=[])
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    with running.with_scopes("analyst") as analyst:
        assert analyst.post("/v1/events", json=[]).status_code == 403
    with running.with_scopes("ingest") as editor:
        assert editor.post("/v1/events", json=[]).status_code == 200
        assert editor.get("/v1/events/x").status_code == 403
        assert editor.get("/v1/keys").status_code == 403


def test_an_editors_key_cannot_forge_what_only_a_server_mints(running: Running) -> None:
    exposure = {
        "assignment": "a", "experiment": "e", "version": 1, "unit_type": "user", "unit": "u",
        "assigned": "b", "received": "b", "propensity": 0.5, "reason": "randomised",
    }  # fmt: skip
    forged = fact("experiment.exposed", source="/serving", data=exposure)
    with running.with_scopes("ingest", "serve") as editor:
        (verdict,) = editor.post("/v1/events", json=[forged]).json()["results"]
    assert verdict["status"] == "rejected"
    assert verdict["reason"].startswith("type: only a server mints")
    assert running.http.post("/v1/events", json=[forged]).json()["accepted"] == 1


def test_a_key_is_made_listed_without_its_secret_and_revoked(running: Running) -> None:
    made = running.http.post("/v1/keys", json={"scopes": ["ingest"], "label": "ed"}).json()
    with httpx.Client(
        base_url=running.url, headers={"Authorization": f"Bearer {made['key']}"}
    ) as editor:
        assert editor.post("/v1/events", json=[]).status_code == 200
        listing = running.http.get("/v1/keys")
        assert made["id"] in listing.text
        assert made["key"] not in listing.text
        assert "hash" not in listing.text
        assert running.http.delete(f"/v1/keys/{made['id']}").status_code == 204
        assert editor.post("/v1/events", json=[]).status_code == 401
    assert running.http.post("/v1/keys", json={"scopes": ["root"]}).status_code == 422
    assert running.http.delete("/v1/keys/none").status_code == 404


def test_an_audit_names_what_is_missing(running: Running) -> None:
    event = fact()
    running.http.post("/v1/events", json=[event])
    running.until_stored()
    facts = [{"source": event["source"], "id": i} for i in (event["id"], "never sent")]
    answer: dict[str, Any] = running.http.post("/v1/events/audit", json={"facts": facts}).json()
    assert (answer["stored"], answer["repeated"]) == (1, [])
    assert answer["missing"] == [facts[1]]


def test_the_server_says_how_it_is(running: Running) -> None:
    with httpx.Client(base_url=running.url) as nobody:
        assert nobody.get("/healthz").status_code == 200
        assert nobody.get("/readyz").json() == {"ready": True, "causes": {}}
        assert "thumbwheel_log_lag 0.0" in nobody.get("/metrics").text
        assert "/v1/events" in nobody.get("/openapi.json").json()["paths"]
        assert nobody.get("/nowhere").json()["status"] == 404
        assert "<title>Thumbwheel</title>" in nobody.get("/").text


def test_readiness_names_the_part_that_does_not_answer(running: Running) -> None:
    running.server.drain.stop.set()
    for _ in range(200):
        answer = running.http.get("/readyz")
        if answer.status_code == 503:
            break
    assert list(answer.json()["causes"]) == ["drain"]
