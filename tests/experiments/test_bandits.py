"""Bandits over HTTP: batches with shares of their own, and answers that hold in spite of them."""

import json
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from experiments.assign import Assignment, Bucketer
from experiments.records import Decisions
from experiments.registry import Experiments
from experiments.sticky import MemorySticky
from experiments.watch import Watch
from tests.facts import fact
from tests.running import Running
from tests.serving.engines import an_engine
from thumbwheel.cli import main

RATES = {"a": 0.30, "b": 0.15}


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "key": "b1",
        "variants": [{"key": "a", "checkpoint": "m1"}, {"key": "b", "checkpoint": "m2"}],
        "allocation": {"kind": "bandit", "metric": "error_rate", "batch_units": 200},
    } | changes


@pytest.fixture
def begun(running: Running) -> Experiments:
    for name in ("m1", "m2"):
        engine = {"id": name, "engine": {"url": "http://127.0.0.1:9/v1"}}
        running.http.post("/v1/checkpoints", json=engine).raise_for_status()
    running.http.post("/v1/experiments", json=plan()).raise_for_status()
    running.http.post("/v1/experiments/b1/start").raise_for_status()
    experiments = Experiments(running.server.ingest.control)
    experiments.sticky = MemorySticky()  # hundreds of arms, each of which a disk would sync
    return experiments


def dealt(experiments: Experiments, unit: str) -> Assignment:
    spec = experiments.get("b1").spec
    found = Bucketer().assign(spec, unit, {}, sticky=experiments.sticky)
    assert found
    return found


def serve(
    running: Running, experiments: Experiments, units: range, rng: np.random.Generator
) -> dict[str, list[int]]:
    """Each unit is exposed and gets one answer; whether they failed, by arm."""
    facts, failed = [], {"a": list[int](), "b": list[int]()}
    for number in units:
        unit, given = f"u{number}", dealt(experiments, f"u{number}")
        fails = bool(rng.random() < RATES[given.variant])
        failed[given.variant].append(int(fails))
        common = {"experiment": "b1", "version": given.version, "reason": "randomised"}
        facts += [
            fact("experiment.exposed", data={
                **common, "assignment": given.assignment_id, "unit_type": "user", "unit": unit,
                "assigned": given.variant, "received": given.variant,
                "propensity": given.propensity,
            }),
            fact("completion.finished", user=unit, data={
                **common, "completion.id": f"c-{unit}", "checkpoint": given.checkpoint,
                "variant": given.variant, "outcome": "error" if fails else "ok",
            }),
        ]  # fmt: skip
    running.server.ingest.intake.take_own(*facts)
    running.until_stored()
    return failed


def reweigh(running: Running) -> tuple[int, dict[str, Any]]:
    answer = running.http.post("/v1/experiments/b1/reweigh")
    return answer.status_code, answer.json()


def shares_of(failed: dict[str, list[int]], floor: float = 0.1) -> dict[str, float]:
    """Thompson's for fewer failures, in closed form for two arms."""
    a, b = np.array(failed["a"]), np.array(failed["b"])
    error = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    best = float(norm.cdf((a.mean() - b.mean()) / error))
    return {"b": floor + (1 - 2 * floor) * best, "a": floor + (1 - 2 * floor) * (1 - best)}


def bols(batches: list[dict[str, list[int]]]) -> tuple[float, float]:
    """Estimate and standard error of Zhang, Janson & Murphy, with each arm's variance pooled."""
    spread = {
        arm: sum(np.var(each[arm]) * len(each[arm]) for each in batches)
        / sum(len(each[arm]) - 1 for each in batches)
        for arm in "ab"
    }
    gaps = [np.mean(each["b"]) - np.mean(each["a"]) for each in batches]
    weights = [
        (spread["a"] / len(each["a"]) + spread["b"] / len(each["b"])) ** -0.5 for each in batches
    ]
    estimate = np.dot(gaps, weights) / np.sum(weights)
    return float(estimate), float(np.sqrt(len(batches)) / np.sum(weights))


def test_weights_follow_the_facts_and_whoever_was_in_keeps_arm_and_share(
    running: Running, begun: Experiments
) -> None:
    rng = np.random.default_rng(5)
    first = serve(running, begun, range(300), rng)
    before = {n: dealt(begun, f"u{n}") for n in range(300)}
    status, made = reweigh(running)
    assert (status, made["version"]) == (200, 2)
    expected = shares_of(first)
    got = {each["key"]: each["weight"] / 1e6 for each in made["variants"]}
    assert got == pytest.approx(expected, abs=1e-6)
    assert expected["b"] > 0.6
    # An exposure knows the share it was dealt with, for ever.
    assert {n: dealt(begun, f"u{n}") for n in range(300)} == before
    later = [dealt(begun, f"v{n}") for n in range(400)]
    assert {each.version for each in later} == {2}
    assert {each.variant: each.propensity for each in later} == pytest.approx(got)
    count = sum(each.variant == "b" for each in later)
    assert abs(count - 400 * got["b"]) < 4 * np.sqrt(400 * got["b"] * got["a"])
    actions = running.http.get("/v1/experiments/b1").json()["changes"]
    assert [(each["action"], each["version"]) for each in actions][-2:] == [
        ("start", 1),
        ("reweigh", 2),
    ]


def test_arms_are_compared_batch_by_batch_and_each_split_with_its_own_shares(
    running: Running, begun: Experiments
) -> None:
    rng = np.random.default_rng(8)
    batches = []
    for number in range(3):
        batches.append(serve(running, begun, range(number * 300, number * 300 + 300), rng))
        assert reweigh(running)[0] == 200
    found = running.http.get("/v1/experiments/b1/bandit").json()
    assert [each["units"] for each in found["batches"]] == [
        *({arm: len(each[arm]) for arm in "ab"} for each in batches),
        {"a": 0, "b": 0},
    ]
    chi = sum(
        (each["units"]["b"] - 300 * each["shares"]["b"]) for each in found["batches"][:3]
    ) ** 2 / sum(300 * each["shares"]["b"] * each["shares"]["a"] for each in found["batches"][:3])
    assert found["srm"]["statistic"] == pytest.approx(chi)
    assert not found["srm_alarm"]
    (compared,) = found["comparisons"]
    estimate, error = bols(batches)
    assert (compared["variant"], compared["control"]) == ("b", "a")
    assert compared["effect"] == pytest.approx(estimate)
    low, high = compared["interval"]
    assert (high - low) / 2 == pytest.approx(1.963 * error, rel=3e-3)  # t with hundreds of df
    by_scores = running.http.get("/v1/experiments/b1/bandit?method=aw-aipw").json()
    assert by_scores["comparisons"][0]["method"] == "aw-aipw"
    assert by_scores["comparisons"][0]["effect"] == pytest.approx(estimate, abs=0.05)


def test_one_batch_has_the_interval_of_a_plain_difference(
    running: Running, begun: Experiments
) -> None:
    batch = serve(running, begun, range(400), np.random.default_rng(1))
    (compared,) = running.http.get("/v1/experiments/b1/bandit").json()["comparisons"]
    estimate, error = bols([batch])
    assert compared["effect"] == pytest.approx(estimate)
    low, high = compared["interval"]
    assert (high - low) / 2 == pytest.approx(1.966 * error, rel=2e-3)  # t with some 390 df


def test_weights_wait_until_there_is_enough_to_go_by(running: Running, begun: Experiments) -> None:
    rng = np.random.default_rng(2)
    assert "0 of 200 units" in reweigh(running)[1]["detail"]
    serve(running, begun, range(198), rng)
    assert reweigh(running)[0] == 409
    (compared,) = running.http.get("/v1/experiments/b1/bandit").json()["comparisons"]
    assert compared["effect"] is not None
    serve(running, begun, range(198, 400), rng)
    assert reweigh(running)[0] == 200
    assert "0 of 200 units" in reweigh(running)[1]["detail"]
    running.http.post("/v1/experiments/b1/pause").raise_for_status()
    assert "paused" in reweigh(running)[1]["detail"]


def test_a_new_phase_forgets_the_run_and_may_have_fixed_arms(
    running: Running, begun: Experiments
) -> None:
    serve(running, begun, range(300), np.random.default_rng(3))
    assert reweigh(running)[0] == 200
    again = running.http.post("/v1/experiments/b1/phase", json={}).json()
    assert again["version"] == 3
    assert dealt(begun, "u0").version == 3
    found = running.http.get("/v1/experiments/b1/bandit").json()
    assert [each["version"] for each in found["batches"]] == [3]
    assert found["comparisons"][0]["reason"]
    assert running.http.get("/v1/experiments/b1/report").status_code == 409
    fixed = {"allocation": {"kind": "fixed"}}
    assert running.http.post("/v1/experiments/b1/phase", json=fixed).json()["version"] == 4
    assert running.http.get("/v1/experiments/b1/report").status_code == 200
    assert reweigh(running)[0] == 409


def test_the_watch_reweighs_when_a_batch_is_full_and_records_no_verdict(
    running: Running, begun: Experiments
) -> None:
    room = running.server.ingest
    decisions = Decisions(room.control, room.store)
    watch = Watch(begun, decisions)
    watch.turn()
    assert begun.get("b1").version == 1
    serve(running, begun, range(300), np.random.default_rng(4))
    watch.turn()
    watch.turn()
    assert begun.get("b1").version == 2
    assert decisions.all("b1") == []


@pytest.mark.parametrize(
    ("how", "changes", "field"),
    [
        ({"floor": 0.6}, {}, "allocation.floor"),
        ({"floor": 0.5}, {}, "allocation.floor"),
        ({"floor": 0.01}, {}, "allocation.floor"),
        ({"floor": 0.06, "batch_units": 100}, {}, "allocation.batch_units"),
        ({"metric": "joy"}, {}, "allocation.metric"),
        ({"metric": "time_to_first_token_p95"}, {}, "allocation.metric"),
        ({"policy": "greedy"}, {}, "policy"),
        ({}, {"hashing": {"algorithm": "growthbook-v2"}}, "hashing"),
        ({"floor": 0.4}, {"variants": [
            {"key": "a", "checkpoint": "m1", "weight": 0.7},
            {"key": "b", "checkpoint": "m2", "weight": 0.3},
        ]}, "variants"),
    ],
)  # fmt: skip
def test_a_bandit_that_could_not_be_read_is_refused_at_save(
    running: Running, how: dict[str, Any], changes: dict[str, Any], field: str
) -> None:
    body = plan(allocation={"kind": "bandit", "metric": "error_rate"} | how, **changes)
    answer = running.http.post("/v1/experiments", json=body)
    assert answer.status_code == 422
    assert any(field in each["field"] for each in answer.json()["errors"]), answer.text


def test_the_terminal_shows_batches_and_begins_the_next(
    running: Running, begun: Experiments, capsys: pytest.CaptureFixture[str]
) -> None:
    key = running.http.headers["Authorization"].removeprefix("Bearer ")
    environment = {"THUMBWHEEL_KEY": key, "THUMBWHEEL_URL": running.url}
    serve(running, begun, range(300), np.random.default_rng(6))
    assert main(["reweigh", "b1"], environment) == 0
    assert "Batch 2 of b1" in capsys.readouterr().out
    assert main(["reweigh", "b1"], environment) == 1
    assert main(["bandit", "b1"], environment) == 0
    shown = capsys.readouterr().out
    assert "split as dealt" in shown
    assert "b − a" in shown
    assert main(["bandit", "b1", "--json"], environment) == 0
    assert len(json.loads(capsys.readouterr().out)["batches"]) == 2


def test_the_gateway_serves_each_user_by_the_batch_it_came_in_with(running: Running) -> None:
    with an_engine() as engine:
        for name in ("m1", "m2"):
            known = {"id": name, "engine": {"url": engine.url}}
            running.http.post("/v1/checkpoints", json=known).raise_for_status()
        running.http.post("/v1/experiments", json=plan()).raise_for_status()
        running.http.post("/v1/experiments/b1/start").raise_for_status()

        def asks(*users: str) -> list[str]:
            return [
                running.http.post(
                    "/v1/chat/completions",
                    headers={"x-thumbwheel-user": user},
                    json={"model": "agent", "messages": [{"role": "user", "content": "hi"}]},
                ).headers["x-thumbwheel-assignment-id"]
                for user in users
            ]

        early = asks("ann", "bob")
        Experiments(running.server.ingest.control).reweigh("b1", {"a": 0.2, "b": 0.8}, 1)
        # What runs is read once a second; an administrative call in this process reads it anew.
        running.http.post("/v1/experiments/b1/ramp", json={"coverage": 1}).raise_for_status()
        assert asks("ann", "bob") == early
        (late,) = asks("eve")
    running.until_stored()
    rows = running.server.ingest.store.rows(
        "SELECT data.unit AS unit, data.version AS version, variant, "
        "JSONExtractString(body, 'data', 'assignment') AS assignment, "
        "JSONExtractFloat(body, 'data', 'propensity') AS propensity "
        "FROM events FINAL WHERE type = 'thumbwheel.experiment.exposed.v1' ORDER BY unit"
    )
    assert [(row["unit"], row["version"]) for row in rows] == [("ann", 1), ("bob", 1), ("eve", 2)]
    assert [row["assignment"] for row in rows] == [*early, late]
    assert [row["propensity"] for row in rows[:2]] == [0.5, 0.5]
    assert rows[2]["propensity"] == {"a": 0.2, "b": 0.8}[rows[2]["variant"]]
