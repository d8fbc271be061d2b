import json

import pytest
from pydantic import ValidationError

from ingest.events import (
    CONTENT_FIELDS,
    KNOWN_TYPES,
    UnknownEvent,
    content_in,
    json_schema,
    key_of,
    parse,
)
from tests.facts import fact


def test_every_type_of_the_wire_format_is_known() -> None:
    nouns = {
        "session.started", "session.ended", "consent.changed", "turn.submitted",
        "inference.completed", "turn.completed", "turn.cancelled", "tool.called", "diff.proposed",
        "diff.shown", "diff.decided", "diff.first_edit", "diff.survival", "diff.reverted",
        "diff.committed", "completion.shown", "completion.accepted",
        "completion.partially_accepted", "completion.ended", "completion.finished",
        "answer.action", "feedback.submitted", "feedback.withdrawn", "feedback.shown", "feedback.asked", "experiment.exposed",
        "report.filed", "privacy.redacted", "queue.dropped", "client.error", "import.recorded",
    }  # fmt: skip
    assert {f"thumbwheel.{noun}.v1" for noun in nouns} == KNOWN_TYPES


def test_facts_are_frozen() -> None:
    event = parse(fact())
    with pytest.raises(ValidationError, match="frozen"):
        event.id = "another"  # type: ignore[misc]


def test_unknown_types_and_versions_are_taken_as_they_are() -> None:
    for kind in ("thumbwheel.turn.submitted.v7", "com.example.brand.new"):
        event = parse(fact(type=kind, data={"anything": [1, None]}))
        assert isinstance(event, UnknownEvent)
        assert event.data == {"anything": [1, None]}


def test_a_newer_minor_version_may_break_our_idea_of_a_known_type() -> None:
    odd = fact(data={"turn.id": 7})
    with pytest.raises(ValidationError):
        parse(odd)
    assert isinstance(parse(odd | {"dataschema": "urn:thumbwheel:events:1.4"}), UnknownEvent)


def test_unknown_fields_of_known_types_are_kept() -> None:
    event = parse(fact(data={"turn.id": "t", "mood": "sunny"}, ownext="x"))
    assert event.model_dump(by_alias=True)["data"]["mood"] == "sunny"
    assert event.model_extra == {"ownext": "x"}


def test_the_schema_speaks_wire_names_and_marks_content() -> None:
    schema = json.loads(json.dumps(json_schema()))
    turn = schema["$defs"]["TurnSubmitted"]["properties"]
    assert "turn.id" in turn
    assert "x-thumbwheel-content" in json.dumps(turn["prompt"])
    assert {"prompt", "before", "after", "gen_ai.tool.call.result"} <= CONTENT_FIELDS
    assert len(schema["discriminator"]["mapping"]) == len(KNOWN_TYPES)


def test_content_is_found_inside_hunks() -> None:
    assert content_in({"hunks": [{"id": "1", "after": "x"}], "prompt": ""}) == ["after"]


def test_facts_of_a_conversation_share_a_key() -> None:
    asked = fact(data={"turn.id": "t", "gen_ai.conversation.id": "c9"})
    assert key_of(asked) == "c9"
    assert key_of(asked | {"partitionkey": "p"}) == "p"
    assert key_of(fact(data={"turn.id": "t"})) == "/ext/test/session"
