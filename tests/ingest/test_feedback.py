from datetime import datetime
from typing import Any

import pytest

from ingest.errors import ThumbwheelError
from tests.facts import fact
from tests.ingest.ratings import TARGET
from tests.running import Running


def rate(running: Running, value: object, **changes: Any) -> dict[str, Any]:
    answer = running.http.post(
        "/v1/feedback", json={"target": TARGET, "value": value, "rater": "ann", **changes}
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def current(running: Running) -> list[tuple[str, float | None, str]]:
    running.until_stored()
    rows = running.server.ingest.store.rows(
        "SELECT rater, value, label FROM current_feedback(as_of = now64(6, 'UTC')) ORDER BY rater"
    )
    return [(row["rater"], row["value"], row["label"]) for row in rows]


def test_the_last_word_of_each_rater_counts(running: Running) -> None:
    first = rate(running, value=True)
    again = rate(running, value=True)
    assert (again["id"], again["revision"]) == (first["id"], 1)
    assert rate(running, value=False)["revision"] == 2
    rate(running, value=True, rater="bob")
    assert current(running) == [("ann", 0.0, "down"), ("bob", 1.0, "up")]


def test_a_withdrawn_rating_counts_no_more_until_given_again(running: Running) -> None:
    given = rate(running, value=True)
    assert running.http.delete(f"/v1/feedback/{given['id']}").json()["withdrawn"] is True
    assert running.http.delete(f"/v1/feedback/{given['id']}").status_code == 200
    assert current(running) == []
    assert rate(running, value=True)["revision"] == 2
    assert current(running) == [("ann", 1.0, "up")]
    assert running.http.delete("/v1/feedback/none").status_code == 404


def test_words_and_numbers_are_values_too(running: Running) -> None:
    rate(running, value="helpful", name="kind")
    rate(running, value=0.25, name="score")
    assert sorted(current(running), key=str) == [("ann", 0.25, ""), ("ann", None, "helpful")]


def test_the_key_stands_for_a_rater_that_names_itself_not(running: Running) -> None:
    running.http.post("/v1/feedback", json={"target": TARGET, "value": True})
    ((rater, _, _),) = current(running)
    assert rater.startswith("key:")


def test_an_editors_own_feedback_facts_follow_the_same_rule(running: Running) -> None:
    def vote(value: int, revision: int) -> dict[str, Any]:
        return fact(
            "feedback.submitted",
            user="cem",
            data={
                "target": TARGET,
                "gen_ai.evaluation.score.value": value,
                "revision": revision,
            },
        )

    late, early = vote(1, 2), vote(0, 1)
    running.http.post("/v1/events", json=[late])
    running.http.post("/v1/events", json=[early])
    assert current(running) == [("cem", 1.0, "")]
    withdrawal = fact("feedback.withdrawn", user="cem", data={"supersedes": late["id"]})
    running.http.post("/v1/events", json=[withdrawal])
    assert current(running) == []


def test_a_vote_counts_however_it_is_named_or_said(running: Running) -> None:
    said: dict[str, dict[str, Any]] = {
        "a": {"gen_ai.evaluation.name": "user_vote", "gen_ai.evaluation.score.value": 1},
        "b": {"gen_ai.evaluation.name": "user_vote", "gen_ai.evaluation.score.label": "down"},
        "c": {"gen_ai.evaluation.score.value": "up"},
        "d": {"gen_ai.evaluation.score.value": "meh"},
    }
    votes = [
        fact("feedback.submitted", user=user, data={"target": TARGET} | vote)
        for user, vote in said.items()
    ]
    assert running.http.post("/v1/events", json=votes).json()["accepted"] == 4
    rate(running, value="down", rater="e")
    assert current(running) == [
        ("a", 1.0, ""), ("b", 0.0, "down"), ("c", 1.0, "up"), ("d", None, "meh"), ("e", 0.0, "down"),
    ]  # fmt: skip
    rows = running.server.ingest.store.rows(
        "SELECT DISTINCT name FROM current_feedback(as_of = now64(6, 'UTC'))"
    )
    assert rows == [{"name": "thumb"}]


def test_a_comment_is_content_and_bad_fields_are_named(running: Running) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"value": True, "comment": "x", "consent": "metrics"}, "comment"),
        ({"value": None}, "value"),
        ({"value": True, "target": {"kind": "file", "id": "x"}}, "target.kind"),
        ({"value": True, "surprise": 1}, "surprise"),
    ]
    for body, field in bad:
        answer = running.http.post("/v1/feedback", json={"target": TARGET} | body)
        assert answer.status_code == 422
        assert any(field in error["field"] for error in answer.json()["errors"]), answer.text


def test_every_error_of_ours_knows_its_status() -> None:
    statuses = {error.__name__: error.status for error in ThumbwheelError.__subclasses__()}
    assert all(400 <= status < 600 for status in statuses.values())


def test_one_judge_run_retried_makes_one_score(running: Running) -> None:
    """langfuse#13823: a run that was retried left two scores."""
    run = {"name": "correctness", "value": 0.75, "rater": "judge-7", "source": "model"}
    answers = [running.http.post("/v1/feedback", json={"target": TARGET} | run) for _ in range(3)]
    assert {(answer.json()["id"], answer.json()["revision"]) for answer in answers} == {
        (answers[0].json()["id"], 1)
    }
    assert current(running) == [("judge-7", 0.75, "")]


def test_feedback_milliseconds_after_the_answer_is_taken_and_joined_later(
    running: Running,
) -> None:
    """tensorzero#1680: feedback was refused until the answer had been stored."""
    given = rate(running, value=True)
    running.until_stored()
    path = f"/v1/feedback/{given['id']}"
    assert running.http.get(path).json()["joined"] is False
    shown = fact("completion.shown", data={"completion.id": TARGET["id"]})
    assert running.http.post("/v1/events", json=[shown]).json()["accepted"] == 1
    running.until_stored()
    assert running.http.get(path).json()["joined"] is True


def test_a_rating_is_read_back_with_every_word_that_led_to_it(running: Running) -> None:
    given = rate(running, value=True)
    rate(running, value=False, comment="broke the build")
    path = f"/v1/feedback/{given['id']}"
    running.until_stored()
    with running.with_scopes("ingest") as editor:
        seen = editor.get(path).json()
        assert editor.get("/v1/feedback/none").status_code == 404
    history = seen.pop("history")
    assert seen == {
        "id": given["id"], "target": TARGET, "name": "thumb", "rater": "ann", "value": 0.0,
        "label": "down", "revision": 2, "withdrawn": False, "joined": False,
    }  # fmt: skip
    assert [(each["revision"], each["value"], each["withdrawal"]) for each in history] == [
        (1, 1.0, False), (2, 0.0, False),
    ]  # fmt: skip
    assert "broke the build" not in str(history)
    assert [each["comment"] for each in running.http.get(path).json()["history"]] == [
        None, "broke the build",
    ]  # fmt: skip
    running.http.delete(path)
    running.until_stored()
    seen = running.http.get(path).json()
    assert (seen["withdrawn"], seen["value"], seen["label"], seen["revision"]) == (
        True, None, None, 2,
    )  # fmt: skip
    assert [each["withdrawal"] for each in seen["history"]] == [False, False, True]
    times = [datetime.fromisoformat(each["received_at"]) for each in seen["history"]]
    assert times == sorted(times)
    assert all(time.tzinfo for time in times)


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("value", '"value": NaN'),
        ("value", '"value": 1e999'),
        ("value", f'"value": 1{"0" * 400}'),
        ("value", '"value": ""'),
        ("value", '"value": "\\ud800"'),
        ("comment", f'"value": 1, "comment": "{"x" * 60_001}"'),
        ("target.id", f'"value": 1, "target": {{"kind": "turn", "id": "{"x" * 801}"}}'),
        ("target.more", '"value": 1, "target": {"kind": "turn", "id": "x", "more": 1}'),
        ("reasons.0", f'"value": 1, "reasons": ["{"x" * 201}"]'),
    ],
)
def test_what_no_rating_can_hold_is_refused_by_name(
    running: Running, field: str, body: str
) -> None:
    target = '"target": {"kind": "turn", "id": "x"}, ' if '"target"' not in body else ""
    answer = running.http.post(
        "/v1/feedback",
        content="{" + target + body + "}",
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["errors"][0]["field"].startswith(field)


def test_the_largest_rating_that_is_allowed_fits_into_a_fact(running: Running) -> None:
    largest = {
        "target": {"kind": "completion", "id": "🙂" * 800},
        "name": "🙂" * 200,
        "value": "🙂" * 1000,
        "comment": "🙂" * 60_000,
        "reasons": ["🙂" * 200] * 50,
        "rater": "🙂" * 800,
    }
    assert running.http.post("/v1/feedback", json=largest).status_code == 200
