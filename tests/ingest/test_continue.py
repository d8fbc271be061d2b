import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from ingest._continue import facts_of
from ingest._dev_event import DevEvent
from ingest.drain import Drain
from ingest.events import content_in, parse
from ingest.room import Ingest
from tests.ingest.continue_reports import REPORTS, SESSION, WRITTEN, posted
from tests.ingest.doors import Door

CODE = {"x-thumbwheel-consent": "code"}
ALL = tuple(REPORTS)


@pytest.fixture
def door(room: Ingest, drain: Drain, serve: Callable[[FastAPI], str]) -> Iterator[Door]:
    door = Door.open(room, drain, serve)
    with door.http:
        yield door


def post(door: Door, *reports: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    answers = [door.http.post("/v1/continue", json=each, headers=headers) for each in reports]
    assert [answer.status_code for answer in answers] == [200] * len(reports), answers[0].text
    return [answer.json() for answer in answers]


def test_each_report_has_its_facts(door: Door) -> None:
    answers = post(door, *map(posted, ALL), **CODE)
    assert sum(answer["accepted"] for answer in answers) == len(door.facts())
    kinds = [fact["type"].removeprefix("thumbwheel.") for fact in door.facts()]
    assert sorted(kinds) == sorted(
        ["completion.shown.v1", "completion.ended.v1"] * 2
        + ["inference.completed.v1"] * 2
        + ["completion.accepted.v1", "diff.proposed.v1", "diff.decided.v1", "tool.called.v1"]
        + ["feedback.submitted.v1", "dev.continue.tokensGenerated", "dev.continue.quickEdit"]
        + ["dev.continue.aNewOne"]
    )
    assert {fact["source"] for fact in door.facts()} == {"/continue"}


def test_a_receipt_is_that_of_events(door: Door) -> None:
    (answer,) = post(door, posted("chatInteraction"))
    (fact,) = door.facts()
    assert answer == {
        "results": [{"id": fact["id"], "status": "accepted"}],
        "accepted": 1, "duplicate": 0, "rejected": 0, "position": answer["position"],
    }  # fmt: skip
    assert answer["position"]
    assert fact["time"] == "2026-06-18T17:21:52.123Z"
    assert fact["partitionkey"] == SESSION


def test_a_vote_a_chat_and_an_edits_outcome_join(door: Door) -> None:
    chat, edit = posted("chatInteraction"), posted("editInteraction")
    post(door, chat, edit, posted("chatFeedback"), posted("editOutcome", accepted=False))
    (vote,) = door.data("feedback.submitted")
    answers = door.facts("inference.completed")
    spoken = {one["data"]["completion.id"]: "sessionId" in str(one) or one for one in answers}
    assert vote["target"]["kind"] == "completion"
    assert vote["target"]["id"] in spoken
    assert vote["gen_ai.evaluation.score.value"] == 1
    (proposed,), (decided,) = door.data("diff.proposed"), door.data("diff.decided")
    assert proposed["completion.id"] in set(spoken) - {vote["target"]["id"]}
    assert decided == {"diff.id": proposed["diff.id"], "outcome": "rejected"}
    assert door.room.store.rows("SELECT * FROM pending_feedback(as_of = now64(6, 'UTC'))") == []


def test_the_last_vote_counts_also_when_it_is_the_first_again(door: Door) -> None:
    votes = [
        posted("chatFeedback", feedback=up, timestamp=f"2026-06-18T17:21:5{at}.000Z")
        for at, up in enumerate((True, False, True))
    ]
    post(door, *votes[:2])
    assert len(door.facts()) == 2
    question = "SELECT value FROM current_feedback(as_of = now64(6, 'UTC'))"
    assert door.room.store.rows(question) == [{"value": 0}]
    post(door, votes[2])
    assert len(door.facts()) == 3
    assert door.room.store.rows(question) == [{"value": 1}]


def test_a_report_sent_again_is_a_duplicate(door: Door) -> None:
    reports = [posted(name) for name in ALL]
    post(door, *reports)
    before = door.facts()
    assert all(answer["accepted"] == 0 for answer in post(door, *reports))
    assert door.facts() == before


def test_a_resumed_session_that_sends_its_history_again_adds_nothing(door: Door) -> None:
    """Written reports are known by what is written, whatever the clock says the second time."""
    written = [name for name in WRITTEN if name != "chatFeedback"]
    post(door, *(posted(name) for name in written))
    before = door.facts()
    post(door, *(posted(name, timestamp="2026-06-19T08:00:00.000Z") for name in written))
    assert door.facts() == before


def test_tools_whose_call_ids_repeat_lose_no_rows(door: Door) -> None:
    post(door, posted("toolUsage"), posted("toolUsage", toolCallArgs='{"path": "b"}'))
    assert len(door.facts("tool.called")) == 2


@pytest.mark.parametrize(
    ("level", "headers", "consent"),
    [
        ("all", {}, "metrics"),
        ("noCode", {}, "metrics"),
        ("noCode", {"x-thumbwheel-consent": "training"}, "metrics"),
        ("someday", {"x-thumbwheel-consent": "training"}, "metrics"),
        ("all", {"x-thumbwheel-consent": "code"}, "code"),
        ("all", {"x-thumbwheel-consent": "training"}, "training"),
    ],
)
def test_code_is_kept_only_where_level_and_consent_allow_it(
    door: Door, level: str, headers: dict[str, str], consent: str
) -> None:
    # A level that does not exist, and one that says noCode but sends code, both keep none.
    reports = [posted(name) | {"level": level} for name in ALL]
    post(door, *reports, **headers)
    facts = door.facts()
    assert {fact["consent"] for fact in facts} == {consent}
    assert ("hush" in json.dumps(facts)) is (consent != "metrics")
    assert len(facts) == 14


def test_at_no_code_reports_stay_apart_by_their_times(door: Door) -> None:
    times = ("2026-06-18T17:21:52.123Z", "2026-06-18T17:21:53.000Z")
    for name in ("chatInteraction", "chatFeedback", "editOutcome", "tokensGenerated"):
        post(door, *(posted(name, level="noCode", timestamp=time) for time in times))
    assert len(door.facts("inference.completed")) == 2
    assert len({one["target"]["id"] for one in door.data("feedback.submitted")}) == 2
    assert len(door.facts("diff.decided")) == 2
    assert len(door.facts("dev.continue.tokensGenerated")) == 2


def test_a_completion_is_shown_once_and_ends_as_reported(door: Door) -> None:
    """Continue calls one ignored after 10 s and may report it accepted after all."""
    post(door, posted("autocomplete", accepted=False), posted("autocomplete"), **CODE)
    (shown,) = door.data("completion.shown")
    assert shown["completion.id"] == "1f0e"
    assert shown["duration_s"] == 0.412
    assert shown["continue"]["debounceDelay"] == 350
    assert shown["gen_ai.input.messages"][0]["parts"][1] == {"type": "prefix", "content": "hush("}
    assert [one["accepted_u16_total"] for one in door.data("completion.accepted")] == [4]
    assert {one["end"] for one in door.data("completion.ended")} == {"accepted", "ignored"}
    post(door, posted("nextEditOutcome"))
    assert "superseded" in {one["end"] for one in door.data("completion.ended")}


def test_tokens_are_apart_from_the_answers_they_are_of(door: Door) -> None:
    """Continue reports a chat's answer and its tokens each; as inferences they would count twice."""
    post(door, posted("chatInteraction"), posted("tokensGenerated"))
    assert len(door.facts("inference.completed")) == 1
    (tokens,) = door.data("dev.continue.tokensGenerated")
    assert (tokens["gen_ai.usage.input_tokens"], tokens["gen_ai.usage.output_tokens"]) == (812, 33)


def test_whose_report_it_is_may_be_said_by_the_destination(door: Door) -> None:
    post(door, posted("toolUsage", userId="token"))
    post(door, posted("chatInteraction", userId="token"), **{"x-thumbwheel-user": "ann"})
    assert [fact["user"] for fact in door.facts("tool.called")] == ["token"]
    assert [fact["user"] for fact in door.facts("inference.completed")] == ["ann"]


def test_half_characters_and_odd_times_do_no_harm(door: Door) -> None:
    odd = posted("chatInteraction", completion="\ud83d", timestamp="yesterday")
    body = json.dumps(odd).encode()
    assert door.http.post("/v1/continue", content=body, headers=CODE).json()["accepted"] == 1
    post(
        door,
        posted("nextEditOutcome", timestamp=10**30, elapsed=-1),
        posted("aNewOne", size=10**30, timestamp=""),
    )
    assert len(door.facts()) == 4
    assert not any("time" in fact for fact in door.facts())


REFUSALS = [
    (b"hello", 400),
    (b"[]", 400),
    (b"{}", 422),
    (b'{"name": "x"}', 422),
    (b'{"name": 5, "data": {}}', 422),
    (b'{"name": "", "data": {}}', 422),
    (b'{"name": "x", "data": []}', 422),
    (b'{"name": "x", "data": {"a": NaN}}', 422),
    (b'{"name": "x", "data": {}, "name": "y"}', 422),
]


def test_what_is_no_report_is_refused_with_the_field(door: Door) -> None:
    for body, status in REFUSALS:
        answer = door.http.post("/v1/continue", content=body)
        assert (answer.status_code, answer.json()["status"]) == (status, status), body
    wrong = {"x-thumbwheel-consent": "all"}
    answer = door.http.post("/v1/continue", json=posted("toolUsage"), headers=wrong)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "x-thumbwheel-consent"
    assert door.facts() == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
FIELDS = sorted({field for name in REPORTS for field in posted(name)["data"]})


@given(st.sampled_from(ALL), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
def test_whatever_a_field_holds_the_facts_are_valid_and_keep_to_consent(
    name: str, changes: dict[str, Any]
) -> None:
    data = posted(name)["data"] | changes
    for consent in ("metrics", "code"):
        for fact in facts_of(DevEvent(name, data, consent)):
            assert parse(fact).id == fact["id"]
            assert consent != "metrics" or content_in(fact["data"]) == []
