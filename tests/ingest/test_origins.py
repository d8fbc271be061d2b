import re

import httpx
import pytest

from ingest._origins import pattern
from ingest.app import create_app
from ingest.errors import BadInput
from ingest.settings import WEB_EDITORS
from tests.running import Running

EDITOR = "https://vscode.dev"
_CORS = "access-control-"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://vscode.dev", True),
        ("https://github.dev", True),
        ("https://abc-1.vscode-cdn.net", True),
        ("https://vscode-cdn.net", False),
        ("https://a.b.vscode-cdn.net", False),
        ("https://-a.vscode-cdn.net", False),
        ("https://vscode.dev.evil.example", False),
        ("https://evil.example/.vscode-cdn.net", False),
        ("https://evil.example#.vscode-cdn.net", False),
        ("https://vscodexdev", False),
        ("http://vscode.dev", False),
        ("https://vscode.dev:8443", False),
        ("https://vscode.dev\n", False),
        ("null", False),
        ("", False),
    ],
)
def test_an_origin_is_exactly_what_is_listed_with_one_label_for_a_star(
    origin: str, allowed: bool
) -> None:
    assert bool(re.fullmatch(pattern(WEB_EDITORS), origin)) == allowed


@pytest.mark.parametrize(
    "origin",
    ["*", "vscode.dev", "https://vscode.dev/", "https://*", "https://a.*.dev", "https://*a.dev",
     "ftp://a.dev", "https://a.dev?x", "https://a..dev", "https://user@a.dev"],
)  # fmt: skip
def test_what_is_no_origin_stops_the_start_by_name(origin: str) -> None:
    with pytest.raises(BadInput, match=re.escape(repr(origin))):
        create_app("x", [], ready={}, origins=f"https://good.dev {origin}")


def preflight(running: Running, origin: str, headers: str) -> httpx.Response:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": headers,
    }
    with httpx.Client(base_url=running.url) as browser:
        return browser.options("/v1/events", headers=asked)


def test_a_listed_page_may_ask_without_a_key_for_what_an_editor_sends(running: Running) -> None:
    wanted = "authorization, content-type, content-encoding, thumbwheel-sent-at, x-thumbwheel-turn"
    answer = preflight(running, EDITOR, wanted)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == EDITOR
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in wanted.split(", "))
    assert "access-control-allow-credentials" not in answer.headers
    assert preflight(running, EDITOR, "x-anything").status_code == 400


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://vscode.dev.evil.io"])
def test_an_origin_that_is_not_listed_hears_nothing(running: Running, origin: str) -> None:
    answers = [
        preflight(running, origin, "authorization"),
        running.http.post("/v1/events", json=[], headers={"Origin": origin}),
    ]
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith(_CORS)]


def test_a_listed_page_reads_answers_and_errors_and_our_headers(running: Running) -> None:
    with httpx.Client(base_url=running.url, headers={"Origin": EDITOR}) as browser:
        refused = browser.post("/v1/events", json=[])
    taken = running.http.post("/v1/events", json=[], headers={"Origin": EDITOR})
    assert (refused.status_code, taken.status_code) == (401, 200)
    for answer in (refused, taken):
        assert answer.headers["access-control-allow-origin"] == EDITOR
        exposed = answer.headers["access-control-expose-headers"].lower()
        assert "retry-after" in exposed
        assert "x-thumbwheel-completion-id" in exposed


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/nowhere", "/v1/keys"])
def test_no_browser_guesses_what_an_answer_is(running: Running, path: str) -> None:
    answer = running.http.get(path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
