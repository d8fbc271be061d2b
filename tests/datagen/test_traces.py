"""What becomes of odd, double and ambiguous facts: no export fails, and no word is misplaced."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from datagen.export import Dataset, export
from datagen.traces import Filter
from ingest.messages import to_parts
from ingest.store import Store
from tests.datagen.test_export import rows
from tests.facts import fact

NOON = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
ASKED = [{"role": "user", "content": "ask"}]

Tell = Callable[..., None]
Build = Callable[..., Dataset]


@pytest.fixture
def build(store: Store, tmp_path: Path) -> Build:
    def building(format: Any = "kto", **chosen: Any) -> Dataset:
        return export(store, format, Filter(**chosen), tmp_path / format)

    return building


def said(kind: str, data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    envelope = {"source": "/ext", "user": "u", "consent": "training", "partitionkey": "talk"}
    return fact(kind, **(envelope | changes), data=data)


def served(
    name: str, *, prompt: Any = ASKED, answer: Any = "fine", **changes: Any
) -> dict[str, Any]:
    message = answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}
    data = {
        "completion.id": name, "checkpoint": "m", "reason": "default", "outcome": "ok",
        "gen_ai.input.messages": to_parts(prompt), "gen_ai.output.messages": to_parts([message]),
    } | changes.pop("data", {})  # fmt: skip
    return said("completion.finished", data, **({"source": "/serving"} | changes))


def asked(text: str, number: int, **data: Any) -> dict[str, Any]:
    return said("turn.submitted", {"prompt": text, "turn.id": f"t{number}"} | data, sequence=number)


def answered(name: str, number: int, text: Any, **data: Any) -> dict[str, Any]:
    output = to_parts([{"role": "assistant", "content": text}])
    return said(
        "inference.completed",
        {"completion.id": name, "gen_ai.output.messages": output} | data,
        sequence=number,
    )


def thumb(target: str, value: int = 1, kind: str = "completion", **changes: Any) -> dict[str, Any]:
    data = {"target": {"kind": kind, "id": target}, "gen_ai.evaluation.score.value": value}
    return said("feedback.submitted", data, consent="metrics", **changes)


def test_an_answer_that_editor_and_server_both_report_is_one_row_with_the_servers_prompt(
    tell: Tell, build: Build
) -> None:
    tell(asked("what the editor saw", 1), answered("c1", 2, "fine", **{"turn.id": "t1"}))
    tell(served("c1", prompt=[{"role": "system", "content": "rules"}, *ASKED]))
    tell(thumb("t1", kind="turn"))
    (row,) = rows(build())
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert (row["origin"], row["label"]) == ("/serving", True)


def test_a_turn_name_that_two_conversations_use_judges_neither(tell: Tell, build: Build) -> None:
    for user in ("ann", "bob"):
        tell(served(f"c-{user}", user=user, partitionkey=user, data={"turn.id": "t1"}))
    tell(thumb("t1", kind="turn"))
    assert build().manifest["skipped"] == {"no signal": 2}


def test_a_thumb_on_an_answer_named_like_an_edit_stays_on_that_answer(
    tell: Tell, build: Build
) -> None:
    tell(served("same"), served("other"), thumb("same"))
    tell(said("diff.proposed", {"diff.id": "same", "completion.id": "other"}))
    assert [row["id"] for row in rows(build())] == ["same"]


def test_an_edit_claimed_by_two_answers_judges_the_same_one_in_any_order(
    tell: Tell, build: Build
) -> None:
    tell(served("c1"), served("c2"))
    for name in ("c2", "c1"):
        tell(said("diff.proposed", {"diff.id": "d", "completion.id": name}))
    tell(said("diff.reverted", {"diff.id": "d", "by": "undo"}))
    assert [row["id"] for row in rows(build())] == ["c1"]


def test_what_a_check_said_stands_before_the_answer_to_it(tell: Tell, build: Build) -> None:
    told = {"sent_to_model": True, "gen_ai.tool.call.result": {"failed": 2}}
    tell(asked("do it", 1), answered("c1", 2, "done"), thumb("c2"))
    tell(said("tool.called", told, sequence=3), answered("c2", 4, "done now"))
    (row,) = rows(build())
    assert [message["content"] for message in row["prompt"]] == ["do it", "done", '{"failed": 2}']


def test_a_tool_result_that_was_not_sent_along_breaks_nothing(tell: Tell, build: Build) -> None:
    tell(asked("do it", 1), said("tool.called", {"sent_to_model": True}, sequence=2))
    tell(answered("c1", 3, "done"), thumb("c1"))
    assert len(rows(build())) == 1


def test_an_answer_to_an_unknown_question_is_counted_and_left_out(tell: Tell, build: Build) -> None:
    tell(asked("do it", 1), answered("c1", 2, "done"), answered("c2", 3, "and done"))
    tell(thumb("c1"), thumb("c2"))
    dataset = build()
    assert [row["id"] for row in rows(dataset)] == ["c1"]
    assert dataset.manifest["skipped"] == {"what was asked is not known": 1}


@pytest.mark.parametrize("odd", ["just text", ["text"], {"a": 1}, [1, 2], [None], 7, [[]]])
def test_messages_of_another_shape_fail_no_export(tell: Tell, build: Build, odd: Any) -> None:
    tell(served("c1", data={"gen_ai.input.messages": odd}), thumb("c1"))
    tell(served("c2", data={"gen_ai.output.messages": odd}), thumb("c2"))
    tell(served("c3"), thumb("c3"))
    assert [row["id"] for row in rows(build())] == ["c3"]


def test_fields_that_clients_fill_differently_fit_one_table(tell: Tell, build: Build) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    conversation = [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "a.py"},
    ]
    tell(served("c1", prompt=[{"role": "user", "content": "a", "x": {"y": 1}}]), thumb("c1"))
    tell(served("c2", prompt=[{"role": "user", "content": "a", "x": [1]}]), thumb("c2"))
    tell(served("c3", prompt=conversation), thumb("c3"))
    tell(served("c4", answer={"role": "assistant", "tool_calls": [call]}), thumb("c4"))
    tell(served("c5", answer={"role": "assistant", "tool_calls": [{"odd": 1}]}), thumb("c5"))
    tell(served("c6", answer={"role": "assistant", "content": "a", "name": "b"}), thumb("c6"))
    dataset = build()
    found = {row["id"]: row for row in rows(dataset)}
    assert sorted(found) == ["c1", "c2", "c3", "c4", "c6"]
    assert found["c3"]["prompt"] == conversation
    assert found["c4"]["completion"][0]["tool_calls"] == [call]
    assert dataset.manifest["skipped"] == {"content is not text": 1}

    def filled(message: dict[str, Any]) -> dict[str, Any]:
        names = ("role", "content", "name", "tool_call_id", "tool_calls")
        return {name: message.get(name) for name in names}

    for stored in pq.read_table(dataset.folder / "data.parquet").to_pylist():
        row = found[stored["id"]]
        for column in ("prompt", "completion"):
            assert stored[column] == [filled(message) for message in row[column]]


def test_times_choose_answers_to_the_microsecond(tell: Tell, build: Build) -> None:
    step = timedelta(microseconds=400_000)
    for number in range(3):
        name = f"c{number}"
        tell(served(name, partitionkey=name), thumb(name), at=NOON + number * step)

    def ids(**chosen: Any) -> set[str]:
        return {row["id"] for row in rows(build(**chosen))}

    assert ids(since=NOON + step) == {"c1", "c2"}
    assert ids(until=NOON + 2 * step) == {"c0", "c1"}
    assert ids(since=NOON + step, until=NOON + step + timedelta(microseconds=1)) == {"c1"}


def test_a_withdrawn_thumb_leaves_no_row_and_a_revised_one_changes_its_label(
    tell: Tell, build: Build
) -> None:
    tell(served("c1"), thumb("c1", id="first"))
    assert [row["label"] for row in rows(build())] == [True]
    tell(thumb("c1", 0, id="second"), at=NOON + timedelta(minutes=1))
    assert [row["label"] for row in rows(build())] == [False]
    tell(said("feedback.withdrawn", {"supersedes": "second"}))
    assert rows(build()) == []


def test_words_typed_with_a_rating_and_content_without_consent_reach_no_row(
    tell: Tell, build: Build
) -> None:
    secret = "a word that nobody gave for training"
    tell(asked(secret, 1) | {"consent": "code"}, asked("do it", 2), answered("c1", 3, "done"))
    tell(answered("c2", 4, secret) | {"consent": "code"}, thumb("c2"))
    rating = {
        "target": {"kind": "completion", "id": "c1"},
        "gen_ai.evaluation.score.value": 1,
        "gen_ai.evaluation.explanation": secret,
    }
    tell(said("feedback.submitted", rating, consent="code"))
    dataset = build()
    assert [row["id"] for row in rows(dataset)] == ["c1"]
    assert secret not in (dataset.folder / "data.jsonl").read_text()
