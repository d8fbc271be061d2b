"""Datasets made from facts that are erased afterwards."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from datagen.api import Exports, Wanted
from datagen.erased import mark
from ingest.errors import NotFound
from ingest.store import Store
from tests.facts import fact


def dataset(root: Path, name: str, *facts: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    rows = [{"facts": [each], "evidence": [], "text": f"of {each}"} for each in facts]
    (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "data.parquet").write_bytes(b"of " + "".join(facts).encode())
    (folder / "manifest.json").write_text(json.dumps({"rows": len(rows), "files": [{}]}))
    return folder


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


def test_a_dataset_with_an_erased_fact_keeps_its_marked_manifest_alone(tmp_path: Path) -> None:
    touched = dataset(tmp_path, "sft-1", "f1", "f2", "f3")
    untouched = dataset(tmp_path, "sft-2", "f4")
    before = {path.name: path.read_bytes() for path in untouched.iterdir()}
    assert mark(tmp_path, "e1", {"f1", "f3", "f9"}) == ["sft-1"]
    assert [path.name for path in touched.iterdir()] == ["manifest.json"]
    kept = manifest(touched)
    assert (kept["rows"], kept["stale"], kept["erased_facts"]) == (3, True, 2)
    assert (kept["erasure"], kept["files"]) == ("e1", [])
    assert {path.name: path.read_bytes() for path in untouched.iterdir()} == before


def test_a_mark_that_was_cut_short_is_completed_and_answered_alike(tmp_path: Path) -> None:
    touched = dataset(tmp_path, "sft-1", "f1")
    rows = (touched / "data.jsonl").read_text()
    mark(tmp_path, "e1", {"f1"})
    (touched / "data.jsonl").write_text(rows)
    assert mark(tmp_path, "e1", {"f1"}) == ["sft-1"]
    assert not (touched / "data.jsonl").exists()
    assert mark(tmp_path, "e2", {"f1"}) == []


def test_what_an_export_left_that_never_ended_goes_but_not_one_under_way(tmp_path: Path) -> None:
    for name in ("kto-1", "kto-2"):
        (dataset(tmp_path, name, "f1") / "manifest.json").unlink()
    assert mark(tmp_path, "e1", {"f1"}, building=lambda name: name == "kto-2") == []
    assert [path.parent.name for path in tmp_path.rglob("data.*")] == ["kto-2", "kto-2"]
    assert mark(tmp_path / "none", "e1", {"f1"}) == []


class SlowStore(Store):
    """Answers once it is let go."""

    gate = threading.Event()

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        self.gate.wait()
        return super().rows(sql, **parameters)


def test_a_dataset_being_built_is_waited_for(store: Store, tmp_path: Path, tell: Any) -> None:
    context = {"turn.id": "t", "gen_ai.conversation.id": "c"}
    asked = fact(consent="training", sequence=1, data=context | {"prompt": "why"})
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "so"}]}]
    said = fact(
        "inference.completed",
        consent="training",
        sequence=2,
        data=context | {"completion.id": "k", "gen_ai.output.messages": answer},
    )
    thumb = fact(
        "feedback.submitted",
        consent="training",
        data={"target": {"kind": "completion", "id": "k"}, "gen_ai.evaluation.score.value": 1},
    )
    tell(asked, said, thumb)
    slow = SlowStore(**vars(store))
    exports = Exports(slow, tmp_path / "datasets")
    name = exports.begin(Wanted(format="sft"))
    found: list[str] = []
    eraser = threading.Thread(target=lambda: found.extend(exports.erase("e1", {thumb["id"]})))
    eraser.start()
    slow.gate.set()
    eraser.join()
    assert found == [name]
    state = exports.state(name)
    assert (state["status"], state["rows"], state["stale"]) == ("ready", 1, True)
    with pytest.raises(NotFound, match="erased"):
        exports.file(name, "data.jsonl")
    assert exports.file(name, "manifest.json").is_file()
