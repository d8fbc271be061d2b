"""The HTTP surface does what its OpenAPI document says, whatever is sent."""

import threading
from collections.abc import Iterator, Mapping
from itertools import product
from json import dumps
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import APIOperation, Case, CheckFunction, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ingest.web import PROBLEM_JSON
from tests.facts import fact
from tests.running import Running

CHAT = "/v1/chat/completions"
"""Answers errors in OpenAI's shape."""
LINK = "/v1/feedback/links/{token}"
PROBES = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/")
_CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
_EXAMPLES = 4
_FEW = settings(
    max_examples=_EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

Document = dict[str, Any]


@pytest.fixture
def document(running: Running) -> Document:
    """Without what it says of keys: with made-up ones nothing else would be tried."""
    document: Document = running.http.get("/openapi.json").json()
    for _, _, operation in operations(document):
        given = operation.get("parameters", [])
        operation["parameters"] = [each for each in given if each["name"] != "authorization"]
        operation.pop("security", None)
    return document


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


OF_AN_EXPERIMENT = (
    "report", "switchback", "bandit", "reweigh", "start", "pause", "ramp", "phase", "pin", "stop",
    "decisions",
)  # fmt: skip


@pytest.fixture
def known(running: Running) -> Mapping[str, dict[str, str]]:
    """One of everything, by the path that shows it."""

    def post(path: str, body: object) -> dict[str, Any]:
        answer = running.http.post(path, json=body)
        assert answer.is_success, (path, answer.text)
        return dict(answer.json())

    post("/v1/events", [fact("turn.submitted", id="e1")])
    target = {"kind": "turn", "id": "t1"}
    rating = post("/v1/feedback", {"target": target, "value": True})["id"]
    link = post("/v1/feedback/links", {"target": target, "rater": "ann"})["url"]
    for name in ("m1", "m2"):
        engine = {"url": "http://127.0.0.1:9/v1"}
        post("/v1/checkpoints", {"id": name, "engine": engine})
    variants = [{"key": name, "checkpoint": name} for name in ("m1", "m2")]
    post("/v1/experiments", {"key": "x1", "variants": variants})
    decision = post("/v1/experiments/x1/decisions", {})["id"]
    dataset = post("/v1/datasets", {"format": "kto"})["id"]
    spare = post("/v1/keys", {"scopes": ["ingest"]})["id"]
    running.until_stored()
    until_built(running.http, dataset)
    return {
        "/v1/events/{id}": {"id": "e1"},
        "/v1/feedback/{id}": {"id": rating},
        LINK: {"token": link.rpartition("/")[2]},
        "/v1/checkpoints/{id}": {"id": "m1"},
        "/v1/checkpoints/{id}/alias": {"id": "m1"},
        "/v1/experiments/{key}": {"key": "x1"},
        **{f"/v1/experiments/{{key}}/{name}": {"key": "x1"} for name in OF_AN_EXPERIMENT},
        "/v1/experiments/{key}/decisions/{id}/again": {"key": "x1", "id": decision},
        "/v1/experiments/{key}/decisions/{id}/override": {"key": "x1", "id": decision},
        "/v1/layers/{key}": {"key": "default"},
        "/v1/datasets/{id}": {"id": dataset},
        "/v1/datasets/{id}/files/{name}": {"id": dataset, "name": "manifest.json"},
        "/v1/keys/{id}": {"id": spare},
    }


def until_built(http: httpx.Client, dataset: str) -> str:
    """How it ended."""
    while (status := http.get(f"/v1/datasets/{dataset}").json()["status"]) == "building":
        threading.Event().wait(0.02)
    return str(status)


class Sender:
    """Sends made-up cases with a key that has every scope, and notes what was not as documented."""

    def __init__(self, running: Running, document: Document) -> None:
        self._running = running
        self._schema = schemathesis.openapi.from_dict(document)
        self._schema.config.update(base_url=running.url)
        self.wrong: list[str] = []

    def operations(self) -> Iterator[APIOperation[Any, Any, Any, Any]]:
        for found in self._schema.get_all_operations():
            assert isinstance(found, Ok), found
            yield found.ok()

    def try_out(
        self, operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, **fixed: Any
    ) -> None:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            return  # what could be wrong is the path alone, and that is any text
        _FEW(given(case=operation.as_strategy(mode, **fixed))(self._send))()

    def _send(self, case: Case[Any]) -> None:
        # A fresh connection: an answer before the whole body was read ends the old one.
        key = self._running.http.headers["authorization"]
        answer = case.call(headers={"Authorization": key, "Connection": "close"}, timeout=60)
        checks = _CHECKS[:1] if case.path == CHAT else _CHECKS
        try:
            case.validate_response(answer, checks=checks)
        except FailureGroup as failures:
            self.wrong += [f"{failures.exceptions}\n{case.as_curl_command()}"]
        if case.operation.label == "POST /v1/datasets" and answer.status_code == 202:
            until_built(self._running.http, answer.json()["id"])


def test_every_operation_answers_what_its_document_says(
    running: Running, document: Document
) -> None:
    sender = Sender(running, document)
    for operation in sender.operations():
        sender.try_out(operation, GenerationMode.POSITIVE)
        sender.try_out(operation, GenerationMode.NEGATIVE)
    assert sender.wrong == []
    assert running.http.get("/v1/keys").status_code == 200


def test_what_exists_is_answered_as_its_document_says(
    running: Running, document: Document, known: Mapping[str, dict[str, str]]
) -> None:
    sender = Sender(running, document)
    # What ends something comes last, so that all else still finds it.
    found = sorted(sender.operations(), key=lambda each: each.method == "delete")
    for operation in found:
        if operation.path in known:
            names = known[operation.path]
            sender.try_out(operation, GenerationMode.POSITIVE, path_parameters=names)
    assert sender.wrong == []
    assert known.keys() <= document["paths"].keys()


HOSTILE = {
    "half a character as a name": b'{"\\ud800": 1}',
    "brackets": b"[" * 200_000,
    "braces": b'{"a":' * 100_000,
    "closed brackets": b"[" * 50_000 + b"]" * 50_000,
    "NaN": b"NaN",
    "5,000 digits": b'{"x": ' + b"9" * 5_000 + b"}",
    "beyond a double": b'{"x": 1e400}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "no UTF-8": b'{"\xff": 1}',
    "NUL": b'{"\\u0000": "\\u0000"}',
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "nothing": b"",
}


def test_no_body_breaks_any_route(running: Running, document: Document) -> None:
    json = {"Content-Type": "application/json", "Connection": "close"}
    for path, method, _ in operations(document):
        for name, body in HOSTILE.items() if method == "POST" else ():
            answer = running.http.post(path, content=body, headers=json)
            assert answer.status_code < 500, (path, name, answer.text)
            if path == CHAT:
                assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
            elif not answer.is_success:
                assert answer.headers["content-type"] == PROBLEM_JSON, (path, name)


def test_a_body_beyond_the_limit_is_refused_by_every_route(
    running: Running, document: Document
) -> None:
    huge = b'{"x": "' + b"x" * (24 << 20) + b'"}'
    for path, method, operation in operations(document):
        if method == "POST" and "requestBody" in operation:
            with httpx.Client(base_url=running.url, headers=running.http.headers) as http:
                answer = http.post(path, content=huge, headers={"Content-Type": "application/json"})
            assert answer.status_code == 413, (path, answer.text[:200])


def test_a_long_made_up_name_does_not_come_back_whole(running: Running) -> None:
    answer = running.http.post("/v1/feedback/ask", json={"turn": "t", "k" * 100_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 2_000


def test_without_a_key_every_route_is_closed_but_probes_and_links(
    running: Running, document: Document
) -> None:
    with httpx.Client(base_url=running.url) as stranger:
        for path, method, _ in operations(document):
            answer = stranger.request(method, path)
            assert answer.status_code == (404 if path == LINK else 401), (method, path)
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
        assert {stranger.get(path).status_code for path in PROBES} == {200}


def test_a_number_beyond_all_bounds_never_makes_a_plan_that_cannot_be_read(
    running: Running,
) -> None:
    """Python's `json` reads such numbers, and one plan that cannot be read hides all others."""
    json = {"Content-Type": "application/json", "Connection": "close"}
    fields = ("alpha", "coverage", "margin", "planned_units", "weight")
    for number, (serial, field) in product(
        ("1e400", "NaN", "-Infinity", "9" * 400), enumerate(fields)
    ):
        guardrail: dict[str, object] = {"metric": "thumbs_net", "margin": 0}
        control: dict[str, object] = {"key": "a", "checkpoint": "m1"}
        plan: dict[str, object] = {
            "key": f"x{serial}{len(number)}",
            "metrics": {"guardrails": [guardrail]},
            "variants": [control, {"key": "b", "checkpoint": "m2"}],
        }
        {"margin": guardrail, "weight": control}.get(field, plan)[field] = "N"
        body = dumps(plan).replace('"N"', number)
        answer = running.http.post("/v1/experiments", content=body, headers=json)
        assert answer.status_code in {201, 422}, (field, number, answer.text)
        assert running.http.get("/v1/experiments").status_code == 200, (field, number)


FAR = ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "0999-01-01T00:00:00Z",
       "1899-12-31T00:00:00Z", "2300-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00")  # fmt: skip


def test_a_time_that_no_clock_shows_breaks_no_question(
    running: Running, known: Mapping[str, dict[str, str]], document: Document
) -> None:
    def ask(path: str, name: str, time: str) -> httpx.Response:
        headers = {"Connection": "close"}
        return running.http.get(path, params={name: time}, headers=headers)

    asked = 0
    for path, method, operation in operations(document):
        url = path.format(**known.get(path, {"id": "x", "token": "x"}))
        for each in operation.get("parameters", []):
            if "date-time" in str(each) and method == "GET":
                answers = {time: ask(url, each["name"], time) for time in FAR}
                wrong = {
                    t: a.text for t, a in answers.items() if a.status_code not in {200, 409, 422}
                }
                assert wrong == {}, (path, each["name"])
                asked += 1
    assert asked >= 1
    for time in FAR:
        wanted = {"format": "sft", "filter": {"since": time, "until": time}}
        answer = running.http.post("/v1/datasets", json=wanted)
        built = answer.is_success and until_built(running.http, answer.json()["id"])
        assert answer.status_code == 422 or built == "ready", time
