"""The operator's commands against a whole server, as a shell runs them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice

import pytest

from ingest._rows import DEAD_COLUMNS
from tests.facts import fact
from tests.running import Running
from thumbwheel.cli import main
from thumbwheel.client import Api
from thumbwheel.operations import follow, line_of

Run = Callable[..., int]


@pytest.fixture
def environment(running: Running) -> dict[str, str]:
    key = running.http.headers["Authorization"].removeprefix("Bearer ")
    return {"THUMBWHEEL_URL": running.url, "THUMBWHEEL_KEY": key}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    return lambda *words: main(words, environment)


def put_letter(running: Running, content: object, *, at: int) -> None:
    row = (f"local/0/{at}", 0, "broken", json.dumps(content).encode())
    running.server.ingest.store.insert("dead_letters", DEAD_COLUMNS, [row], token=str(at))


def test_dead_letters_are_listed_shown_and_replayed(
    running: Running, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    event = fact()
    put_letter(running, event, at=1)
    put_letter(running, fact(time="noon"), at=2)
    put_letter(running, event, at=3)
    assert run("dead-letters", "list") == 0
    assert "local:0:1:0" in capsys.readouterr().out
    assert run("dead-letters", "show", "local:0:1:0") == 0
    assert json.loads(json.loads(capsys.readouterr().out)["raw"]) == event
    assert run("dead-letters", "replay", "local:0:1:0") == 0
    assert capsys.readouterr().out == "local:0:1:0 is accepted\n"
    running.until_stored()
    assert run("dead-letters", "replay", "--all") == 1
    assert capsys.readouterr().out == "0 accepted, 1 known already, 1 rejected again and waiting\n"
    assert run("dead-letters", "list", "--status", "waiting") == 0
    listed = capsys.readouterr().out
    assert "local:0:2:0" in listed
    assert "local:0:1:0" not in listed


def test_a_wrong_id_and_a_missing_choice_are_said(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("nowhere", "a/b?c"):
        assert run("dead-letters", "show", wrong) == 1
        assert "(404)" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        run("dead-letters", "replay")
    assert stopped.value.code == 2


def test_the_audit_says_who_did_what(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("key", "create", "--scope", "ingest", "--rate", "5") == 0
    made = capsys.readouterr().out.splitlines()[0]
    assert run("audit") == 0
    table = capsys.readouterr().out
    assert "key.create" in table
    assert made not in table
    assert run("audit", "--json", "--limit", "1") == 0
    assert json.loads(capsys.readouterr().out)["action"] == "key.create"
    assert run("audit", "--limit", "0") == 2
    assert run("key", "list") == 0
    assert "5" in capsys.readouterr().out


def test_a_line_says_when_what_who_and_where_and_no_content() -> None:
    event = fact(user="u1", data={"gen_ai.conversation.id": "c1", "prompt": "do not show me"})
    line = line_of(event | {"received_at": "2026-11-30T12:00:00+00:00"})
    assert line == (
        "2026-11-30T12:00:00+00:00 thumbwheel.turn.submitted.v1 "
        f"user=u1 conversation=c1 id={event['id']}"
    )


def test_names_cannot_move_the_cursor_of_a_terminal() -> None:
    event = fact(user="\x1b[2Jgone\r\n", data=None) | {"received_at": "t"}
    assert line_of(event).isprintable()


def test_a_fact_that_was_sent_twice_is_followed_once(
    running: Running, environment: dict[str, str]
) -> None:
    event, other = fact(), fact()
    store = running.server.ingest.store
    running.http.post("/v1/events", json=[event])
    running.until_stored()
    rows = store.rows("SELECT * FROM events")
    columns = [name for name in rows[0] if name != "position"]
    again = [[*(rows[0][name] for name in columns), "local/0/90000"]]
    store.insert("events", [*columns, "position"], again, token="again")
    running.http.post("/v1/events", json=[other])
    running.until_stored()
    with Api.connect(environment["THUMBWHEEL_URL"], environment["THUMBWHEEL_KEY"]).http as http:
        facts = follow(Api(running.url, http), {"since": "2020-01-01T00:00:00Z"})
        found = [each["id"] for each in islice(facts, 2)]
    assert sorted(found) == sorted([event["id"], other["id"]])


def test_tail_follows_what_comes_and_ends_at_ctrl_c(
    running: Running, environment: dict[str, str]
) -> None:
    running.http.post("/v1/events", json=[fact(user="before")])
    running.until_stored()
    command = [sys.executable, "-m", "thumbwheel", "tail", "--type", "thumbwheel.turn.submitted.v1"]
    tail = subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert tail.stdout
    # It may not have asked for the end yet when the first ones are sent, so they are sent on.
    seen: list[str] = []
    os.set_blocking(tail.stdout.fileno(), False)
    for number in range(600):
        running.http.post(
            "/v1/events",
            json=[fact(user=f"u{number}"), fact("turn.completed", user="another type")],
        )
        running.until_stored()
        if line := tail.stdout.readline():
            seen.append(line)
            break
    tail.send_signal(signal.SIGINT)
    _, errors = tail.communicate(timeout=30)
    assert tail.returncode == 130
    assert errors == "thumbwheel: stopped\n"
    assert "user=u" in seen[0]
    assert "before" not in seen[0]
    assert "another type" not in seen[0]
