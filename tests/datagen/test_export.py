"""Training sets from the repo's own real history, from served completions, and from odd content."""

import json
import os
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from datagen.export import Dataset, export
from datagen.traces import Filter
from ingest.drain import Drain
from ingest.importers import read_history
from ingest.intake import Intake
from ingest.messages import to_parts
from ingest.store import Store

SAMPLE = Path(str(files("ingest.importers") / "sample" / "aider-history.md"))


def keep(intake: Intake, drain: Drain, events: list[dict[str, Any]]) -> None:
    for start in range(0, len(events), 200):
        intake.take_own(*events[start : start + 200])
    while drain.step(timeout_s=0):
        pass


def unredacted(answer: str) -> list[str]:
    """The parts of an answer that are as its author wrote them."""
    return re.split(r"\[REDACTED:\w+\]", answer)


def rows(dataset: Dataset) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (dataset.folder / "data.jsonl").read_text().splitlines()]


def histories() -> Iterator[Path]:
    yield SAMPLE
    if folder := os.environ.get("THUMBWHEEL_TEST_DATA"):
        yield Path(folder) / "aider-chat-history.md.xz"


@pytest.mark.parametrize("path", list(histories()), ids=lambda path: path.name)
def test_every_undo_of_an_applied_edit_gives_an_undesirable_row_of_one_conversation(
    path: Path, intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    events = list(read_history("aider", path).events(consent="training", user="dev"))
    keep(intake, drain, events)
    found = rows(export(store, "kto", Filter(), tmp_path))
    undone = {
        event["data"]["undo.id"]
        for event in events
        if event["type"] == "thumbwheel.diff.reverted.v1" and "diff.id" in event["data"]
    }
    reverts = {event["id"]: event["data"].get("undo.id") for event in events}
    shown = {reverts[fact] for row in found if not row["label"] for fact in row["evidence"]}
    assert undone <= shown
    conversation = {event["id"]: event.get("partitionkey") for event in events}
    kept = store.rows("SELECT id, body FROM events FINAL")
    texts = {fact["id"]: json.dumps(json.loads(fact["body"])["data"]) for fact in kept}
    for row in found:
        assert {conversation[fact] for fact in row["facts"]} == {row["conversation"]}
        assert row["prompt"][-1]["role"] == "user"
        said = " ".join(texts[fact] for fact in row["facts"])
        for message in (*row["prompt"], *row["completion"]):
            assert json.dumps(message["content"])[1:-1] in said.encode().decode()


def test_the_samples_undos_are_those_a_reader_of_the_file_finds(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    keep(intake, drain, list(read_history("aider", SAMPLE).events(consent="training", user="d")))
    found = rows(export(store, "kto", Filter(), tmp_path))
    sessions = re.split(r"^# aider chat started at .*$", SAMPLE.read_text(), flags=re.MULTILINE)
    undos = sum(
        len(re.findall(r"^#### /undo  $", session[first.start() :], flags=re.MULTILINE))
        for session in sessions
        if (first := re.search(r"^> Applied edit to", session, flags=re.MULTILINE))
    )
    evidence = [fact for row in found if not row["label"] for fact in row["evidence"]]
    assert len(evidence) == undos == 17
    answers = {row["completion"][0]["content"] for row in found}
    parts = [part for answer in answers for part in unredacted(answer)]
    assert all(part in SAMPLE.read_text() for part in parts)


def test_content_without_consent_for_training_never_reaches_a_row(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    for consent in ("metrics", "code"):
        history = read_history("aider", SAMPLE)
        keep(intake, drain, list(history.events(consent=consent, user=consent)))
    dataset = export(store, "kto", Filter(), tmp_path)
    assert rows(dataset) == []
    assert pq.read_table(dataset.folder / "data.parquet").column_names[:3] == [
        "prompt", "completion", "label",
    ]  # fmt: skip


def test_the_same_facts_give_the_same_bytes_in_any_order(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    events = list(read_history("aider", SAMPLE).events(consent="training", user="d"))
    Random(1).shuffle(events)
    keep(intake, drain, events)
    first = export(store, "kto", Filter(), tmp_path / "1")
    Random(2).shuffle(events)
    keep(intake, drain, events)
    second = export(store, "kto", Filter(), tmp_path / "2")
    assert first.manifest["digest"] == second.manifest["digest"]
    table = pq.read_table(second.folder / "data.parquet").to_pylist()
    assert table == rows(second)


def served(number: int, *, text: Any = "fine", **changes: Any) -> dict[str, Any]:
    name = f"c{number}"
    return {
        "specversion": "1.0", "id": f"{name}-finished", "source": "/serving", "user": "u",
        "type": "thumbwheel.completion.finished.v1", "consent": "training",
        "partitionkey": changes.pop("conversation", "talk"),
        "data": {
            "completion.id": name, "turn.id": f"t{number}", "checkpoint": "m1",
            "reason": "default", "outcome": "ok",
            "gen_ai.input.messages": to_parts([{"role": "user", "content": f"ask {number}"}]),
            "gen_ai.output.messages": to_parts([{"role": "assistant", "content": text}]),
        } | changes,
    }  # fmt: skip


def thumb(kind: str, target: str, value: int, rater: str = "u") -> dict[str, Any]:
    return {
        "specversion": "1.0", "id": f"{rater}-{target}-{value}", "source": "/f", "user": rater,
        "type": "thumbwheel.feedback.submitted.v1",
        "data": {"target": {"kind": kind, "id": target}, "gen_ai.evaluation.score.value": value},
    }  # fmt: skip


def edit(number: int, *, undone: bool) -> list[dict[str, Any]]:
    said = {"proposed": {"completion.id": f"c{number}"}, "decided": {"outcome": "accepted"}}
    if undone:
        said["reverted"] = {"by": "undo"}
    return [
        {
            "specversion": "1.0", "id": f"{kind}{number}", "source": "/ext", "user": "u",
            "type": f"thumbwheel.diff.{kind}.v1", "consent": "training",
            "data": {"diff.id": f"d{number}"} | data,
        }
        for kind, data in said.items()
    ]  # fmt: skip


def test_labels_follow_the_strongest_signal(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    facts = [served(number) for number in range(8)]
    facts += [
        thumb("completion", "c0", 1),
        thumb("turn", "t1", 0),
        *edit(2, undone=True),
        *edit(3, undone=False),
        *edit(4, undone=True), thumb("completion", "c4", 1),
        *edit(5, undone=False), thumb("diff", "d5", 0),
        thumb("completion", "c6", 1), thumb("completion", "c6", 0, rater="v"),
    ]  # fmt: skip
    keep(intake, drain, facts)
    dataset = export(store, "kto", Filter(), tmp_path)
    labels = {row["id"]: (row["label"], row["signal"]) for row in rows(dataset)}
    assert labels == {
        "c0": (True, "thumb"), "c1": (False, "thumb"), "c2": (False, "undo"),
        "c3": (True, "kept"), "c4": (True, "thumb"), "c5": (False, "thumb"),
    }  # fmt: skip
    assert dataset.manifest["skipped"] == {"thumbs disagree": 1, "no signal": 1}
    sft = rows(export(store, "sft", Filter(), tmp_path / "sft"))
    assert {row["id"] for row in sft} == {"c0", "c3", "c4"}
    assert sft[0]["messages"][-1] == {"role": "assistant", "content": "fine"}


def test_what_is_simulated_broken_or_no_text_is_said_or_left_out(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    odd = "half \ud83d, nul \0, \U0001f600, \u202ertl"
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    facts = [
        served(0, text=odd, simulated=True),
        served(1, outcome="cancelled"),
        served(2, text=picture),
    ]
    keep(intake, drain, [*facts, *(thumb("completion", f"c{n}", 1) for n in range(3))])
    dataset = export(store, "kto", Filter(), tmp_path)
    (row,) = rows(dataset)
    assert row["completion"][0]["content"] == odd.replace("\ud83d", "\ufffd")
    assert row["simulated"] is True
    assert dataset.manifest["simulated_rows"] == 1
    assert dataset.manifest["skipped"] == {"content is not text": 1}
    assert pq.read_table(dataset.folder / "data.parquet").to_pylist() == [row]


def test_filters_choose_answers_not_whole_conversations(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    facts = [served(0, experiment="e1", version=1), served(1, checkpoint="m2"), served(2)]
    keep(intake, drain, [*facts, *(thumb("completion", f"c{n}", 1) for n in range(3))])

    def ids(chosen: Filter) -> set[str]:
        return {row["id"] for row in rows(export(store, "kto", chosen, tmp_path))}

    assert ids(Filter(experiment="e1")) == {"c0"}
    assert ids(Filter(checkpoint="m2")) == {"c1"}
    assert ids(Filter()) == {"c0", "c1", "c2"}


def test_a_conversation_id_that_two_people_share_joins_no_words(
    intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    facts = []
    for user in ("ann", "bob"):
        events = list(read_history("aider", SAMPLE).events(consent="training", user=user))
        facts += [event | {"partitionkey": "the same"} for event in events]
        for event in facts:
            event["data"] = {
                k: v for k, v in event["data"].items() if k != "gen_ai.conversation.id"
            }
    keep(intake, drain, facts)
    source = {event["id"] + event["source"]: event["source"] for event in facts}
    for row in rows(export(store, "kto", Filter(), tmp_path)):
        assert all(fact + row["origin"] in source for fact in row["facts"])
        assert len(row["facts"]) < len(facts) / 2 + 1
