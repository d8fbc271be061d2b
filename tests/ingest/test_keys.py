import secrets
import sqlite3
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event

from ingest.control import open_control
from ingest.errors import Unauthorized
from ingest.keys import FRESH_S, Keys
from tests.ingest.test_rates import Clock
from tests.running import Running


class Asked:
    """Counts the questions that reach a database."""

    def __init__(self, engine: Engine) -> None:
        self.count = 0
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, *_: Any) -> None:
        self.count += 1


def opens(keys: Keys, secret: str) -> bool:
    try:
        keys.check(secret)
    except Unauthorized:
        return False
    return True


def stranger() -> str:
    return f"tw_{secrets.token_urlsafe(32)}"


def test_a_key_is_asked_for_once_in_a_second(control: Engine) -> None:
    clock = Clock()
    keys = Keys(control, clock=clock)
    _, secret = keys.create(("ingest",))
    asked = Asked(control)
    assert all(opens(keys, secret) for _ in range(50))
    assert asked.count == 1
    clock.now += FRESH_S + 0.01
    assert opens(keys, secret)
    assert asked.count == 2


def test_a_key_that_was_just_made_opens_at_once(control: Engine) -> None:
    keys = Keys(control)
    assert not opens(keys, stranger())
    key_id, secret = keys.create(("ingest", "serve"))
    who = keys.check(secret)
    assert who.key_id == key_id
    assert sorted(who.scopes) == ["ingest", "serve"]


def test_a_revoked_key_opens_nothing_at_once_here_and_within_a_second_elsewhere(
    control: Engine,
) -> None:
    clock = Clock()
    here, elsewhere = Keys(control, clock=clock), Keys(control, clock=clock)
    key_id, secret = here.create(("ingest",))
    assert opens(here, secret)
    assert opens(elsewhere, secret)
    here.revoke(key_id)
    assert not opens(here, secret)
    clock.now += FRESH_S + 0.01
    assert not opens(elsewhere, secret)


def test_an_answer_from_before_a_revocation_does_not_outlive_it(control: Engine) -> None:
    keys = Keys(control, clock=Clock())
    key_id, secret = keys.create(("ingest",))
    answered, revoked = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        if threading.current_thread().name == "asking":
            answered.set()
            revoked.wait(10)

    event.listen(control, "after_cursor_execute", hold)
    asking = threading.Thread(target=lambda: keys.check(secret), name="asking")
    asking.start()
    answered.wait(10)
    keys.revoke(key_id)
    revoked.set()
    asking.join()
    assert not opens(keys, secret)


def test_a_wrong_key_that_repeats_is_refused_from_memory(control: Engine) -> None:
    keys = Keys(control, clock=Clock())
    asked = Asked(control)
    wrong = stranger()
    assert not any(opens(keys, wrong) for _ in range(50))
    assert asked.count == 1


def test_what_does_not_look_like_a_key_reaches_no_database(control: Engine) -> None:
    keys = Keys(control)
    asked = Asked(control)
    for wrong in ("", "tw_", "x" * 46, "tw_" + "é" * 44, "tw_" + "a" * 100_000, "\ud800" * 46):
        assert not opens(keys, wrong)
    assert asked.count == 0


def test_guessing_fills_no_memory_and_drives_no_key_out_of_it(control: Engine) -> None:
    keys = Keys(control, clock=Clock())
    _, secret = keys.create(("ingest",))
    assert opens(keys, secret)
    assert not any(opens(keys, stranger()) for _ in range(1_200))
    assert len(keys._strangers) == 1_000  # noqa: SLF001 - memory has no outside
    asked = Asked(control)
    assert opens(keys, secret)
    assert asked.count == 0


def test_a_folder_of_an_older_version_keeps_its_keys_and_gets_the_new_columns(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    engine = open_control(url)
    key_id, secret = Keys(engine).create(("ingest",), rate=7)
    engine.dispose()
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.execute("ALTER TABLE keys DROP COLUMN rate")
        old.execute("DROP TABLE audit")
    old.close()
    for _ in range(2):
        engine = open_control(url)
        keys = Keys(engine)
        assert keys.check(secret).key_id == key_id
        (listed,) = keys.all()
        assert (listed["id"], listed["rate"]) == (key_id, None)
        engine.dispose()


def test_the_database_holds_no_secret(control: Engine, tmp_path: Path) -> None:
    _, secret = Keys(control).create(("admin",), label="operator")
    files = [path.read_bytes() for path in tmp_path.glob("control.db*")]
    assert any(b"operator" in content for content in files)
    assert not any(secret.encode() in content for content in files)


@pytest.mark.parametrize("header", ["", "Bearer", "Basic abc", "tw_abc", "bearer tw_a"])
def test_without_a_valid_key_nothing_opens(running: Running, header: str) -> None:
    with httpx.Client(base_url=running.url, headers={"Authorization": header}) as nobody:
        answer = nobody.get("/v1/keys")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json()["detail"]


def test_a_key_opens_with_any_spelling_of_bearer(running: Running) -> None:
    _, secret = running.server.ingest.keys.create(("ingest",))
    for header in (f"bearer {secret}", f"BEARER  {secret}"):
        with httpx.Client(base_url=running.url, headers={"Authorization": header}) as editor:
            assert editor.post("/v1/events", json=[]).status_code == 200


def test_the_openapi_says_which_routes_need_a_key(running: Running) -> None:
    described = running.http.get("/openapi.json").json()
    assert described["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert described["paths"]["/v1/keys"]["get"]["security"] == [{"key": []}]
    assert described["paths"]["/v1/events"]["post"]["security"] == [{"key": []}]
