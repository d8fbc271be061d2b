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
        ({"layer": "a' OR 1=1"}, "layer"),
        ({"segments": ["country; DROP TABLE events"]}, "segments"),
        ({"targeting": [{"attribute": "x' --", "operator": "equals", "value": 1}]}, "attribute"),
        ({"targeting": [{"attribute": "x", "operator": "like", "value": 1}]}, "operator"),
        ({"targeting": [{"attribute": "x", "operator": "in", "value": 1}]}, "targeting"),
        ({"variants": [{"key": k, "checkpoint": "m", "weight": 0.4} for k in "ab"]}, "variants"),
        ({"coverage": 0.5, "ramp_to": 0.1}, "ramp_to"),
        ({"hashing": {"algorithm": "md5"}}, "hashing"),
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


def put(running: Running, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    answer = running.http.put(f"/v1/{path}", json=body)
    return answer.status_code, answer.json()


def test_an_experiment_is_paused_ramped_and_begun_anew(running: Running) -> None:
    post(running, "experiments", plan(coverage=0.1))
    post(running, "experiments/e1/start")
    assert post(running, "experiments/e1/pause")[1]["status"] == "paused"
    assert post(running, "experiments/e1/start")[1]["status"] == "running"
    status, ramped = post(running, "experiments/e1/ramp", {"coverage": 0.5})
    assert (status, ramped["coverage"], ramped["version"]) == (200, 0.5, 1)
    status, problem = post(running, "experiments/e1/ramp", {"coverage": 0.2})
    assert status == 409
    assert "POST /v1/experiments/e1/phase" in problem["detail"]
    assert [each["field"] for each in problem["errors"]] == ["coverage"]
    status, begun = post(running, "experiments/e1/phase", {"coverage": 0.2})
    assert (status, begun["version"], begun["coverage"]) == (200, 2, 0.2)
    assert post(running, "experiments/e1/ramp", {"coverage": 1.5})[0] == 422
    actions = running.http.get("/v1/experiments/e1").json()["changes"]
    assert [each["action"] for each in actions] == ["create", "start", "pause", "start", "ramp", "phase"]  # fmt: skip
    old = running.http.get("/v1/experiments/e1/report", params={"version": 1}).json()
    assert (old["experiment"]["version"], old["experiment"]["coverage"]) == (1, 0.5)
    assert running.http.get("/v1/experiments/e1/report?version=9").status_code == 404


def test_changed_weights_are_refused_and_looser_targeting_is_taken(running: Running) -> None:
    german = {"attribute": "country", "operator": "equals", "value": "de"}
    post(running, "experiments", plan(targeting=[german]))
    post(running, "experiments/e1/start")
    here, there = ({"unit": {"user": "u"}, "attributes": {"country": c}} for c in ("de", "fr"))
    assert len(post(running, "assignments", here)[1]["assignments"]) == 1
    assert post(running, "assignments", there)[1] == {"assignments": []}
    even = [{"key": k, "checkpoint": "m1"} for k in ("control", "treatment")]
    status, problem = put(running, "experiments/e1", plan(targeting=[german], variants=even))
    assert (status, problem["errors"][0]["field"]) == (409, "variants")
    assert put(running, "experiments/e1", plan())[0] == 200
    assert len(post(running, "assignments", there)[1]["assignments"]) == 1


def test_a_pinned_unit_is_assigned_its_arm_until_the_pin_ends(running: Running) -> None:
    post(running, "experiments", plan())
    post(running, "experiments/e1/start")
    (drawn,) = post(running, "assignments", {"unit": {"user": "u"}})[1]["assignments"]
    other = {"control": "treatment", "treatment": "control"}[drawn["variant"]]
    assert post(running, "experiments/e1/pin", {"unit": "u", "variant": other})[0] == 200
    (pinned,) = post(running, "assignments", {"unit": {"user": "u"}})[1]["assignments"]
    assert (pinned["variant"], pinned["reason"]) == (other, "pinned")
    assert running.http.get("/v1/experiments/e1").json()["pinned"] == {"u": other}
    post(running, "experiments/e1/pin", {"unit": "u", "variant": None})
    assert post(running, "assignments", {"unit": {"user": "u"}})[1]["assignments"] == [drawn]
    assert post(running, "experiments/e1/pin", {"unit": "u", "variant": "z"})[0] == 422


def test_a_layer_owns_its_unit_and_holds_units_out(running: Running) -> None:
    body = {"unit": "user", "holdout": {"share": 0.5, "checkpoint": "m2"}}
    assert put(running, "layers/product", body)[0] == 200
    assert put(running, "layers/inner", {"unit": "user", "within": "product"})[0] == 200
    status, problem = put(running, "layers/product", {**body, "within": "inner"})
    assert (status, problem["errors"][0]["field"]) == (422, "within")
    assert [each["key"] for each in running.http.get("/v1/layers").json()["layers"]] == ["inner", "product"]  # fmt: skip
    status, problem = post(running, "experiments", plan(layer="inner", unit="organization"))
    assert (status, problem["errors"][0]["field"]) == (422, "unit")
    post(running, "experiments", plan(layer="inner"))
    post(running, "experiments/e1/start")
    reasons = set()
    for number in range(20):
        (given,) = post(running, "assignments", {"unit": {"user": f"u{number}"}})[1]["assignments"]
        reasons.add((given["reason"], given["reason"] == "holdout" and given["checkpoint"]))
    assert reasons == {("randomised", False), ("holdout", "m2")}
    for bad in ("share", "checkpoint"):
        wrong = {"share": 0.1, "checkpoint": "m1"} | {bad: 0.7 if bad == "share" else "m9"}
        status, problem = put(running, "layers/other", {"unit": "user", "holdout": wrong})
        assert status == 422
        assert bad in problem["errors"][0]["field"]
    assert put(running, "layers/x'; DROP TABLE", {"unit": "user"})[0] == 422
