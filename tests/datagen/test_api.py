import time
from pathlib import Path

from tests.running import Running


def test_a_dataset_is_asked_for_awaited_and_fetched(running: Running) -> None:
    answer = running.http.post("/v1/datasets", json={"format": "kto"})
    assert answer.status_code == 202
    path = f"/v1/datasets/{answer.json()['id']}"
    while (state := running.http.get(path).json())["status"] == "building":
        time.sleep(0.02)
    assert state["status"] == "ready"
    assert state["rows"] == 0
    for file in state["files"]:
        fetched = running.http.get(f"{path}/files/{file['name']}")
        assert len(fetched.content) == file["bytes"]


def test_only_the_files_of_a_dataset_can_be_fetched(running: Running, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"secret": 1}')
    for path in ("none", "none/files/data.jsonl", "..", "%2e%2e/files/manifest.json"):
        answer = running.http.get(f"/v1/datasets/{path}")
        assert answer.status_code in (404, 405)
        assert "secret" not in answer.text


def test_bad_wishes_are_named_and_the_scope_is_ml(running: Running) -> None:
    bad = running.http.post("/v1/datasets", json={"format": "csv", "filter": {"since": "noon"}})
    fields = {error["field"] for error in bad.json()["errors"]}
    assert bad.status_code == 422
    assert fields == {"format", "filter.since"}
    with running.with_scopes("analyst") as analyst:
        assert analyst.post("/v1/datasets", json={"format": "kto"}).status_code == 403
