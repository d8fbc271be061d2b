from typing import Any

from ingest.errors import ThumbwheelError
from tests.facts import fact
from tests.running import Running

TARGET = {"kind": "completion", "id": "cmpl-1"}


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
