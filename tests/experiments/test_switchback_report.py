"""Switchbacks over HTTP: dealt by the gateway, read period by period."""

import itertools
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.assign import assign
from experiments.registry import Experiments
from tests.facts import fact
from tests.running import Running
from tests.serving.engines import an_engine
from thumbwheel.cli import main

PERIOD = 600
Values = dict[int, tuple[int, int]]
"""Failed and all completions, by period."""


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "key": "s1",
        "variants": [{"key": "a", "checkpoint": "m1"}, {"key": "b", "checkpoint": "m2"}],
        "metrics": {"goals": ["error_rate"], "guardrails": [{"metric": "thumbs_net", "margin": 1}]},
        "allocation": {"kind": "switchback", "period_s": PERIOD},
    } | changes


def begin(running: Running, url: str = "http://127.0.0.1:9/v1", **changes: Any) -> Experiments:
    for name in ("m1", "m2"):
        engine = {"id": name, "engine": {"url": url}}
        running.http.post("/v1/checkpoints", json=engine).raise_for_status()
    running.http.post("/v1/experiments", json=plan(**changes)).raise_for_status()
    running.http.post("/v1/experiments/s1/start").raise_for_status()
    return Experiments(running.server.ingest.control)


def tell(running: Running, experiments: Experiments, values: Values) -> datetime:
    """Each period's completions, two minutes into it, twice; the time when the last one is over."""
    experiment, intake = experiments.get("s1"), running.server.ingest.intake
    assert experiment.phase_started_at
    start = datetime.fromisoformat(experiment.phase_started_at)
    for period, (failed, served) in values.items():
        at = start + timedelta(seconds=period * PERIOD + 120)
        dealt = assign(experiment.spec, "u", at=at)
        assert dealt
        facts = [
            fact("completion.finished", id=f"{period}-{n}", user="u", data={
                "completion.id": f"{period}-{n}", "checkpoint": dealt.checkpoint, "experiment": "s1",
                "version": 1, "variant": dealt.variant, "assignment": dealt.assignment_id,
                "reason": "randomised", "outcome": "error" if n < failed else "ok",
            })
            for n in range(served)
        ]  # fmt: skip
        intake.now = lambda at=at: at  # type: ignore[misc]
        intake.take_own(*facts)
        intake.take_own(*facts)
    running.until_stored()
    return start + timedelta(seconds=(max(values) + 1) * PERIOD)


def read(running: Running, at: datetime) -> dict[str, Any]:
    answer = running.http.get("/v1/experiments/s1/switchback", params={"as_of": at.isoformat()})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def drawn(periods: int, seed: int) -> Values:
    rng = np.random.default_rng(seed)
    return {k: (int(rng.binomial(20, 0.2 + 0.05 * (k % 5))), 20 + k % 3) for k in range(periods)}


def by_hand(arms: list[int], values: Values) -> list[float]:
    """Horvitz and Thompson's terms of a fair coin, each period less the mean of the others."""
    y = np.array([failed / served for failed, served in values.values()])
    terms = []
    for k, arm in enumerate(arms):
        rest = np.delete(y, k).mean()
        terms.append(float((y[k] - rest) * (2 if arm else -2)))
    return terms


def schedule(experiments: Experiments, periods: int) -> list[int]:
    spec = experiments.get("s1").spec
    assert spec.switchback
    return spec.switchback.schedule(periods, spec.salt, spec.weights)


def test_the_p_is_the_share_of_all_schedules_that_are_as_far_out(running: Running) -> None:
    experiments = begin(running)
    values = drawn(10, 4)
    found = read(running, tell(running, experiments, values))
    arms = schedule(experiments, 10)
    real = abs(sum(by_hand(arms, values)))
    others = [
        abs(sum(by_hand(list(each), values))) for each in itertools.product((0, 1), repeat=10)
    ]
    (errors, thumbs) = found["metrics"]
    assert errors["p_value"] == pytest.approx(np.mean([each >= real - 1e-9 for each in others]))
    assert errors["effect"] == pytest.approx(sum(by_hand(arms, values)) / 10)
    assert errors["interval"] is None
    assert "periods" in errors["note"]
    assert found["periods"]["dealt"] == {"a": 10 - sum(arms), "b": sum(arms)}
    own = [f / n for (f, n), arm in zip(values.values(), arms, strict=True) if arm]
    assert errors["means"]["b"] == pytest.approx(np.mean(own))
    assert thumbs["reason"]  # nobody gave a thumb: nothing varies
    assert thumbs["p_value"] is None


def test_many_periods_have_the_designs_interval_and_an_unfinished_one_does_not_count(
    running: Running,
) -> None:
    experiments = begin(running)
    values = drawn(50, 7)
    end = tell(running, experiments, values)
    terms = by_hand(schedule(experiments, 50), values)
    (errors, _) = read(running, end + timedelta(seconds=PERIOD - 1))["metrics"]
    error = np.sqrt(np.sum(np.square(terms))) / 50
    low, high = np.mean(terms) - 1.959963985 * error, np.mean(terms) + 1.959963985 * error
    assert errors["interval"] == pytest.approx([low, high])
    assert read(running, end - timedelta(seconds=1))["periods"]["dealt"] != {}
    shorter = read(running, end - timedelta(seconds=1))["periods"]["dealt"]
    assert sum(shorter.values()) == 49


def test_the_wash_in_of_a_period_is_not_measured_and_empty_periods_are_told(
    running: Running,
) -> None:
    how = {"kind": "switchback", "period_s": PERIOD, "wash_in_s": 121}
    experiments = begin(running, allocation=how)
    found = read(running, tell(running, experiments, drawn(8, 1)))
    (errors, _) = found["metrics"]
    assert sum(errors["empty"].values()) == 8
    assert "no period with a value" in errors["reason"]


def test_the_gateway_gives_everybody_the_arm_of_the_period_and_names_it(running: Running) -> None:
    with an_engine() as engine:
        experiments = begin(running, engine.url)
        answers = [
            running.http.post(
                "/v1/chat/completions",
                headers={"x-thumbwheel-user": f"u{n}"},
                json={"model": "agent", "messages": [{"role": "user", "content": "hi"}]},
            )
            for n in range(6)
        ]
    arm = "ab"[schedule(experiments, 1)[0]]
    assert {each.headers["x-thumbwheel-variant"] for each in answers} == {arm}
    ids = [each.headers["x-thumbwheel-assignment-id"] for each in answers]
    assert {each.partition(".")[2] for each in ids} == {"0"}
    assert len(set(ids)) == 6
    running.until_stored()
    rows = running.server.ingest.store.rows(
        "SELECT JSONExtractString(body, 'data', 'assignment') AS assignment, "
        "JSONExtractFloat(body, 'data', 'propensity') AS propensity FROM events FINAL "
        "WHERE type = 'thumbwheel.experiment.exposed.v1'"
    )
    assert {row["assignment"] for row in rows} == set(ids)
    assert {row["propensity"] for row in rows} == {0.5}


def test_the_report_over_users_says_where_to_look(running: Running) -> None:
    begin(running)
    refused = running.http.get("/v1/experiments/s1/report")
    assert refused.status_code == 409
    assert "/v1/experiments/s1/switchback" in refused.json()["detail"]
    assert running.http.get("/v1/experiments/s1/bandit").status_code == 409
    far = running.http.get("/v1/experiments/s1/switchback?as_of=2200-01-01T00:00:00Z")
    assert (far.status_code, far.json()["errors"][0]["field"]) == (422, "as_of")
    other = plan(key="f1", allocation={"kind": "fixed"})
    running.http.post("/v1/experiments", json=other).raise_for_status()
    assert running.http.get("/v1/experiments/f1/switchback").status_code == 409
    assert running.http.get("/v1/experiments/f1/report").status_code == 200


THREE = [{"key": k, "checkpoint": "m1"} for k in "abc"]


@pytest.mark.parametrize(
    ("how", "changes", "field"),
    [
        ({"period_s": 59}, {}, "period_s"),
        ({}, {}, "period_s"),
        ({"wash_in_s": 600}, {}, "wash_in_s"),
        ({"carryover": -1}, {}, "carryover"),
        ({}, {"variants": THREE}, "variants"),
        ({}, {"sticky": True}, "sticky"),
        ({}, {"hashing": {"algorithm": "growthbook-v2"}}, "hashing"),
        ({}, {"metrics": {"goals": ["time_to_first_token_p95"]}}, "metrics"),
        ({"kind": "in turns"}, {}, "allocation"),
    ],
)
def test_what_cannot_be_switched_is_refused_at_save(
    running: Running, how: dict[str, Any], changes: dict[str, Any], field: str
) -> None:
    base = {} if field == "period_s" else {"period_s": PERIOD}
    body = plan(**changes, allocation={"kind": "switchback", **base, **how})
    answer = running.http.post("/v1/experiments", json=body)
    assert answer.status_code == 422
    assert any(field in each["field"] for each in answer.json()["errors"]), answer.text


def test_a_plan_in_a_file_becomes_a_draft_and_its_periods_are_shown(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = running.http.headers["Authorization"].removeprefix("Bearer ")
    environment = {"THUMBWHEEL_KEY": key, "THUMBWHEEL_URL": running.url}
    file = tmp_path / "plan.json"
    file.write_text("{")
    assert main(["draft", str(file)], environment) == 2
    file.write_text(json.dumps(plan()))
    assert main(["draft", str(file)], environment) == 0
    assert main(["switchback", "s1"], environment) == 1  # not started
    for name in ("m1", "m2"):
        running.http.post("/v1/checkpoints", json={"id": name, "engine": {"url": "http://x/v1"}})
    assert main(["experiment", "start", "s1"], environment) == 0
    values = drawn(6, 2)
    end = tell(running, Experiments(running.server.ingest.control), values)
    capsys.readouterr()
    assert main(["switchback", "s1", "--as-of", end.isoformat()], environment) == 0
    shown = capsys.readouterr().out
    assert "periods of 600 s" in shown
    assert "error_rate" in shown


def test_a_late_thumb_and_an_edit_count_in_the_period_that_served_their_answer(
    running: Running,
) -> None:
    goals = {"goals": ["thumbs_net", "undo_rate"]}
    experiments = begin(running, metrics=goals)
    end = tell(running, experiments, dict.fromkeys(range(12), (0, 4)))
    late = end - timedelta(seconds=1)
    running.server.ingest.intake.now = lambda: late
    ups = {0: 3, 4: 1, 5: 2, 11: 4}
    facts = []
    for period, up in ups.items():
        for n in range(up):
            target = {"kind": "completion", "id": f"{period}-{n}"}
            said = {"target": target, "gen_ai.evaluation.score.value": 1.0, "rater": "ann"}
            facts.append(fact("feedback.submitted", data=said))
    for period in range(12):
        edit = {"diff.id": f"d{period}", "completion.id": f"{period}-0"}
        facts.append(fact("diff.proposed", data=edit))
    facts.append(fact("diff.reverted", data={"diff.id": "d7", "by": "undo"}))
    dealt = assign(experiments.get("s1").spec, "u", at=late)
    assert dealt
    facts.append(
        fact("completion.finished", user="u", data={
            "completion.id": "began before the wash-in", "checkpoint": dealt.checkpoint,
            "experiment": "s1", "version": 1, "variant": dealt.variant,
            "assignment": dealt.assignment_id, "reason": "randomised", "outcome": "ok",
            "duration_s": 1e305,
        })
    )  # fmt: skip
    running.server.ingest.intake.take_own(*facts)
    running.until_stored()
    (thumbs, undone) = read(running, end)["metrics"]
    arms = schedule(experiments, 12)
    assert thumbs["effect"] == pytest.approx(
        sum(by_hand(arms, {k: (ups.get(k, 0), 4) for k in range(12)})) / 12
    )
    assert undone["effect"] == pytest.approx(
        sum(by_hand(arms, {k: (int(k == 7), 1) for k in range(12)})) / 12
    )
    assert thumbs["adjusted_p"] >= thumbs["p_value"]
