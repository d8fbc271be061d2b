import json

import pytest
from sqlalchemy import Engine

from ingest._audit import Audit
from ingest.control import writing
from ingest.errors import NotFound, Unavailable
from ingest.keys import Keys
from tests.ingest.test_rates import Clock
from tests.running import Running


def actions(running: Running) -> list[tuple[str, str, str]]:
    entries = running.http.get("/v1/audit").json()["entries"]
    return [(entry["action"], entry["target"], entry["outcome"]) for entry in entries]


def test_who_made_and_revoked_a_key_is_kept_and_no_secret_is(running: Running) -> None:
    made = running.http.post("/v1/keys", json={"scopes": ["ingest"], "label": "ed"}).json()
    running.http.delete(f"/v1/keys/{made['id']}")
    answer = running.http.get("/v1/audit")
    revoked, created, first, *_ = answer.json()["entries"]
    mine = first["target"]
    assert (created["action"], created["target"], created["key_id"]) == (
        "key.create", made["id"], mine,
    )  # fmt: skip
    assert (revoked["action"], revoked["target"], revoked["key_id"]) == (
        "key.revoke", made["id"], mine,
    )  # fmt: skip
    assert first["key_id"] == "server"
    assert made["key"] not in answer.text


def test_a_change_and_its_entry_are_one(control: Engine) -> None:
    keys = Keys(control)
    with pytest.raises(NotFound):
        keys.revoke("none")
    assert keys.audit.newest(limit=10) == []
    audit = Audit(control)

    def change() -> None:
        with writing(control) as connection:
            audit.note("user.erase", "u1", key_id="k1", within=connection)
            connection.exec_driver_sql("SELECT * FROM no_such_table")

    with pytest.raises(Unavailable):
        change()
    assert audit.newest(limit=10) == []


def test_a_key_without_the_scope_that_tries_is_kept_once_a_minute(control: Engine) -> None:
    clock = Clock()
    keys = Keys(control, clock=clock)
    for _ in range(100):
        keys.refused("k1", "POST /v1/keys")
    keys.refused("k1", "GET /v1/audit")
    clock.now += 61
    keys.refused("k1", "POST /v1/keys")
    noted = [entry["action"] for entry in keys.audit.newest(limit=10)]
    assert noted == ["POST /v1/keys", "GET /v1/audit", "POST /v1/keys"]


def test_an_editors_attempt_at_an_operators_work_is_kept(running: Running) -> None:
    with running.with_scopes("ingest", "serve") as editor:
        assert editor.delete("/v1/keys/whatever").status_code == 403
        assert editor.get("/v1/audit").status_code == 403
    refused = ("", "refused: the key lacks scope 'admin'")
    assert actions(running)[:2] == [
        ("GET /v1/audit", *refused),
        ("DELETE /v1/keys/{id}", *refused),
    ]


def test_the_audit_comes_in_pages_newest_first(running: Running) -> None:
    audit = running.server.ingest.keys.audit
    for number in range(25):
        audit.note("user.erase", f"u{number}", key_id="k1", outcome="3 facts")
    seen: list[str] = []
    before: int | None = None
    while True:
        query = {"limit": 10} | ({"before": before} if before else {})
        page = running.http.get("/v1/audit", params=query).json()
        seen += [each["target"] for each in page["entries"] if each["action"] == "user.erase"]
        if (before := page["next"]) is None:
            break
    assert seen == [f"u{number}" for number in reversed(range(25))]
    assert running.http.get("/v1/audit", params={"limit": 0}).status_code == 422


def test_a_long_target_is_cut_and_the_entry_still_kept(control: Engine) -> None:
    audit = Audit(control)
    audit.note("user.erase", "u" * 5_000)
    (entry,) = audit.newest(limit=1)
    assert entry["target"] == "u" * 800
    assert json.dumps(entry)
