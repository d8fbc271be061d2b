from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import pytest

from ingest._sampler import Question, Sampler
from ingest.errors import BadInput
from ingest.events import SERVER_TYPES, json_schema
from ingest.intake import Intake
from ingest.store import Store
from tests.facts import fact
from tests.running import Running

TURNS = [f"turn-{number}" for number in range(20_000)]


def drawn(intake: Intake, share: float, **salt: str) -> set[str]:
    sampler = Sampler(intake, share, **salt)
    return {turn for turn in TURNS if sampler.draws(turn)}


@pytest.mark.parametrize("share", [0.01, 0.25, 0.9])
def test_the_share_that_is_drawn_is_the_share_asked_for(intake: Intake, share: float) -> None:
    spread = (share * (1 - share) / len(TURNS)) ** 0.5
    assert abs(len(drawn(intake, share)) / len(TURNS) - share) < 4 * spread


def test_none_and_all_are_shares_too(intake: Intake) -> None:
    assert drawn(intake, 0) == set()
    assert drawn(intake, 1) == set(TURNS)


def test_a_larger_share_keeps_the_turns_of_a_smaller_one(intake: Intake) -> None:
    assert drawn(intake, 0.01) < drawn(intake, 0.02)


def test_another_salt_draws_independently(intake: Intake) -> None:
    both = drawn(intake, 0.5) & drawn(intake, 0.5, salt="another")
    assert abs(len(both) / len(TURNS) - 0.25) < 4 * (0.25 * 0.75 / len(TURNS)) ** 0.5


def test_neighbouring_ids_are_drawn_like_others(intake: Intake) -> None:
    sampler = Sampler(intake, 0.5)
    turns = [sampler.draws(str(UUID(int=number))) for number in range(10_000)]
    pairs = sum(a == b for a, b in pairwise(turns))
    assert abs(pairs / 9_999 - 0.5) < 4 * (0.25 / 9_999) ** 0.5


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(intake: Intake, share: float) -> None:
    with pytest.raises(BadInput, match="ask_share"):
        Sampler(intake, share)


def test_whoever_asks_again_hears_the_same_and_it_is_one_fact(
    running: Running, intake: Intake
) -> None:
    share = running.server.ingest.settings.ask_share
    mine = Sampler(intake, share)
    yes = next(turn for turn in TURNS if mine.draws(turn))
    no = next(turn for turn in TURNS if not mine.draws(turn))
    for turn, user in ((yes, "ann"), (yes, "bob"), (no, "ann"), (yes, "ann")):
        body = {"turn": turn, "user": user, "conversation": "c1"}
        answer = running.http.post("/v1/feedback/ask", json=body)
        assert answer.json() == {"ask": turn == yes, "propensity": share}
    running.until_stored()
    rows = running.server.ingest.store.rows(
        "SELECT source, turn, conversation, user, "
        "JSONExtractBool(body, 'data', 'asked') AS asked, "
        "JSONExtractFloat(body, 'data', 'propensity') AS propensity "
        "FROM events FINAL WHERE type = 'thumbwheel.feedback.asked.v1'"
    )
    assert rows == [
        {"source": "/feedback", "turn": yes, "conversation": "c1", "user": "ann", "asked": True,
         "propensity": share}
    ]  # fmt: skip


def test_only_a_server_says_that_a_turn_was_asked_about(running: Running) -> None:
    asked = fact("feedback.asked", data={"turn.id": "t", "asked": True, "propensity": 0.01})
    with running.with_scopes("ingest") as editor:
        assert editor.post("/v1/events", json=[asked]).json()["rejected"] == 1
        assert editor.post("/v1/feedback/ask", json={"turn": "t"}).status_code == 200
        nothing = editor.post("/v1/feedback/ask", json={"turn": ""})
        assert nothing.json()["errors"][0]["field"] == "turn"
    with running.with_scopes("analyst") as analyst:
        assert analyst.post("/v1/feedback/ask", json={"turn": "t"}).status_code == 403


def test_the_widget_on_screen_is_a_fact_of_the_editor(running: Running) -> None:
    shown = fact(
        "feedback.shown",
        data={
            "target": {"kind": "turn", "id": "t1"}, "surface": "chat", "forced": True,
            "propensity": 0.01,
        },
    )  # fmt: skip
    wrong = fact("feedback.shown", data=shown["data"] | {"propensity": 2})
    results = running.http.post("/v1/events", json=[shown, wrong]).json()["results"]
    assert [result["status"] for result in results] == ["accepted", "rejected"]
    assert results[1]["reason"].startswith("data.propensity")


def test_the_schema_has_both_facts() -> None:
    types = set(json_schema()["discriminator"]["mapping"])
    assert {"thumbwheel.feedback.shown.v1", "thumbwheel.feedback.asked.v1"} <= types
    assert "thumbwheel.feedback.asked.v1" in SERVER_TYPES
    assert "thumbwheel.feedback.shown.v1" not in SERVER_TYPES


def test_answers_weighted_by_propensity_stand_for_all_turns(
    intake: Intake, store: Store, tell: Callable[..., None]
) -> None:
    """One turn in four is bad. Everyone who is asked says so; unasked, only the angry speak."""
    sampler = Sampler(intake, 0.1)
    turns = TURNS[:2_000]
    bad = set(turns[::4])
    asked = [turn for turn in turns if sampler.draws(turn)]
    for turn in asked:
        sampler.ask(Question(turn=turn))
    angry = [turn for turn in bad if turn not in asked]
    tell(
        *(
            fact(
                "feedback.submitted",
                user="u",
                data={
                    "target": {"kind": "turn", "id": turn},
                    "gen_ai.evaluation.score.value": int(turn not in bad),
                },
            )
            for turn in (*asked, *angry)
        )
    )
    (row,) = store.rows(
        "SELECT avg(value) AS naive, sumIf(value / p, p > 0) / sumIf(1 / p, p > 0) AS weighted "
        "FROM current_feedback(as_of = now64(6, 'UTC')) AS said LEFT JOIN ("
        "  SELECT turn, JSONExtractFloat(body, 'data', 'propensity') AS p FROM events FINAL"
        "  WHERE type = 'thumbwheel.feedback.asked.v1'"
        ") AS asked ON said.target_id = asked.turn"
    )
    assert row["weighted"] == pytest.approx(sum(turn not in bad for turn in asked) / len(asked))
    assert abs(row["weighted"] - 0.75) < 4 * (0.75 * 0.25 / len(asked)) ** 0.5
    assert row["naive"] < 0.5
