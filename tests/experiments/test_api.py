from typing import Any

import pytest

from tests.running import Running


def plan(key: str = "e1", **changes: Any) -> dict[str, Any]:
    return {
        "key": key,
        "variants": [
            {"key": "control", "checkpoint": "m1"},
            {"key": "treatment", "checkpoint": "m2", "weight": 3},
        ],
    } | changes


@pytest.fixture(autouse=True)
def _checkpoints(running: Running) -> None:
    for name in ("m1", "m2"):
        engine = {"url": "http://127.0.0.1:9/v1"}
        running.http.post("/v1/checkpoints", json={"id": name, "engine": engine})


def post(running: Running, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    answer = running.http.post(f"/v1/{path}", json=body)
    return answer.status_code, answer.json()


def test_an_experiment_is_drafted_started_and_stopped(running: Running) -> None:
    status, made = post(running, "experiments", plan())
    assert (status, made["status"]) == (201, "draft")
    assert post(running, "assignments", {"unit": {"user": "u1"}})[1] == {"assignments": []}
    assert post(running, "experiments/e1/start")[1]["status"] == "running"
    assert len(post(running, "assignments", {"unit": {"user": "u1"}})[1]["assignments"]) == 1
    assert post(running, "experiments/e1/stop")[1]["status"] == "stopped"
    assert post(running, "assignments", {"unit": {"user": "u1"}})[1] == {"assignments": []}
    assert running.http.get("/v1/experiments/e1").json()["version"] == 1
    assert [e["key"] for e in running.http.get("/v1/experiments").json()["experiments"]] == ["e1"]


def test_an_illegal_change_says_what_to_do_instead(running: Running) -> None:
    post(running, "experiments", plan())
    assert post(running, "experiments", plan())[0] == 409
    assert post(running, "experiments/e1/stop")[0] == 409
    post(running, "experiments/e1/start")
    status, problem = post(running, "experiments/e1/start")
    assert status == 409
    assert "create a new experiment" in problem["detail"]
    post(running, "experiments", plan("e2"))
    status, problem = post(running, "experiments/e2/start")
    assert status == 409
    assert "'e1'" in problem["detail"]
    assert "smaller coverage" in problem["detail"]
    assert post(running, "experiments/none/start")[0] == 404
    assert running.http.get("/v1/experiments/none/report").status_code == 404


def test_an_arm_that_nothing_can_serve_is_not_started(running: Running) -> None:
    unserved = [{"key": k, "checkpoint": c} for k, c in (("a", "m1"), ("b", "m9"))]
    post(running, "experiments", plan(variants=unserved))
    status, problem = post(running, "experiments/e1/start")
    assert status == 409
    assert "no checkpoint 'm9'" in problem["detail"]


def test_experiments_of_a_layer_share_nobody(running: Running) -> None:
    for key in ("e1", "e2"):
        post(running, "experiments", plan(key, coverage=0.5))
        assert post(running, f"experiments/{key}/start")[0] == 200
    for number in range(60):
        (only,) = post(running, "assignments", {"unit": {"user": f"u{number}"}})[1]["assignments"]
        assert only["experiment"] in ("e1", "e2")


def test_asking_is_pure_and_sticky_and_records_nothing(running: Running) -> None:
    post(running, "experiments", plan())
    post(running, "experiments/e1/start")
    before = running.server.ingest.log.lag("nobody")
    first, second = (post(running, "assignments", {"unit": {"user": "u"}})[1] for _ in range(2))
    assert first == second
    (given,) = first["assignments"]
    assert given["propensity"] == {"control": 0.25, "treatment": 0.75}[given["variant"]]
    assert given["reason"] == "randomised"
    assert running.server.ingest.log.lag("nobody") == before
    nobody = post(running, "assignments", {"unit": {"organization": "o"}})
    assert nobody == (200, {"assignments": []})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"variants": [{"key": "a", "checkpoint": "m"}]}, "variants"),
        ({"variants": [{"key": "a", "checkpoint": "m"}] * 2}, "variants"),
        ({"variants": [{"key": k, "checkpoint": "m", "weight": 0} for k in "ab"]}, "variants"),
        ({"variants": [{"key": k, "checkpoint": "m", "weight": -1} for k in "ab"]}, "weight"),
        ({"metrics": {"goals": ["joy"]}}, "metrics"),
        ({"metrics": {"guardrails": [{"metric": "joy", "margin": 1}]}}, "metrics"),
        ({"alpha": 1.5}, "alpha"),
        ({"coverage": 0}, "coverage"),
        ({"reading": "daily"}, "reading"),
        ({"unit": "turn"}, "unit"),
        ({"planned_units": 0}, "planned_units"),
        ({"key": "e1'; DROP TABLE events; --"}, "key"),
        ({"surprise": True}, "surprise"),
    ],
)
def test_a_bad_plan_is_refused_at_save_with_the_field_named(
    running: Running, changes: dict[str, Any], field: str
) -> None:
    status, problem = post(running, "experiments", plan(**changes))
    assert status == 422
    assert any(field in error["field"] for error in problem["errors"]), problem
    assert running.http.get("/v1/experiments").json() == {"experiments": []}


def test_a_layer_splits_one_kind_of_unit(running: Running) -> None:
    post(running, "experiments", plan("e1", layer="models"))
    status, problem = post(running, "experiments", plan("e2", layer="models", unit="organization"))
    assert status == 422
    assert problem["errors"][0]["field"] == "unit"


def test_every_metric_comes_with_its_definition(running: Running) -> None:
    metrics = running.http.get("/v1/metrics").json()["metrics"]
    assert {"thumbs_net", "undo_rate"} <= {each["key"] for each in metrics}
    assert all(each["definition"] and each["title"] for each in metrics)


def test_an_editors_key_may_ask_for_its_arm_and_not_for_reports(running: Running) -> None:
    post(running, "experiments", plan())
    with running.with_scopes("ingest", "serve") as editor:
        assert editor.post("/v1/assignments", json={"unit": {"user": "u"}}).status_code == 200
        assert editor.get("/v1/experiments/e1/report").status_code == 403
