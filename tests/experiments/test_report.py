"""Moments and reports against sums made in plain Python from the same facts."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np
import pytest

from experiments.metrics import METRICS, read
from experiments.registry import Experiment, Goals, Guardrail, Plan, PlannedVariant
from experiments.report import Report, report
from ingest.drain import Drain
from ingest.intake import Intake
from ingest.log import open_log
from ingest.store import Store

ARMS = ("a", "b")
FAR = datetime(2100, 1, 1, tzinfo=UTC)


def experiment(**changes: Any) -> Experiment:
    plan = {
        "key": "e1",
        "variants": tuple(PlannedVariant(key=arm, checkpoint=f"model-{arm}") for arm in ARMS),
        "metrics": Goals(
            goals=("thumbs_net",), guardrails=(Guardrail(metric="undo_rate", margin=0.05),)
        ),
        "reading": "fixed",
    } | changes
    return Experiment(Plan(**plan), "running", 1, (0, 10_000), "", None, None)


@dataclass
class World:
    """Random facts of an experiment, and what they add up to for each user."""

    facts: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    arms: dict[str, str] = field(default_factory=dict)
    mixed: set[str] = field(default_factory=set)

    def say(self, kind: str, name: str, user: str, data: dict[str, Any]) -> None:
        self.facts.append(
            {
                "specversion": "1.0", "id": name, "source": "/t", "user": user,
                "type": f"thumbwheel.{kind}.v1", "partitionkey": user, "data": data,
            }
        )  # fmt: skip

    def expose(self, user: str, arm: str) -> None:
        if self.arms.setdefault(user, arm) != arm:
            self.mixed.add(user)
        self.say("experiment.exposed", f"x-{user}-{arm}", user, {
            "assignment": user, "experiment": "e1", "version": 1, "unit_type": "user",
            "unit": user, "assigned": arm, "received": arm, "propensity": 0.5,
            "reason": "randomised",
        })  # fmt: skip

    def serve(self, user: str, name: str, **changes: Any) -> None:
        data = {
            "completion.id": name, "turn.id": f"turn-{name}", "checkpoint": "m",
            "experiment": "e1", "version": 1, "variant": self.arms.get(user, "a"),
            "reason": "randomised", "outcome": "ok",
        } | changes  # fmt: skip
        self.say("completion.finished", f"f-{name}", user, data)
        if data["experiment"] == "e1" and data["version"] == 1 and data["reason"] == "randomised":
            self.sums[user]["completions"] += 1
            self.sums[user]["errors"] += data["outcome"] == "error"

    def vote(self, user: str, kind: str, target: str, votes: list[int], rater: str) -> None:
        """The last of the votes counts."""
        for revision, value in enumerate(votes, start=1):
            self.say("feedback.submitted", f"v-{kind}-{target}-{rater}-{revision}", rater, {
                "target": {"kind": kind, "id": target}, "gen_ai.evaluation.score.value": value,
                "revision": revision, "rater": rater,
            })  # fmt: skip
        self.sums[user]["up" if votes[-1] else "down"] += 1

    def edit(self, user: str, completion: str, *, by_turn: bool, undone: int) -> str:
        diff = f"d-{completion}"
        where = {"turn.id": f"turn-{completion}"} if by_turn else {"completion.id": completion}
        self.say("diff.proposed", f"p-{diff}", user, {"diff.id": diff, **where})
        for number in range(undone):
            self.say("diff.reverted", f"r-{diff}-{number}", user, {"diff.id": diff, "by": "undo"})
        self.sums[user]["edits"] += 1
        self.sums[user]["reverted"] += undone > 0
        return diff


def world(seed: int, users: int = 60) -> World:
    draw, made = Random(seed), World()
    for number in range(users):
        user = f"u{number}"
        made.expose(user, draw.choice(ARMS))
        if draw.random() < 0.05:
            made.expose(user, "b" if made.arms[user] == "a" else "a")
        for turn in range(draw.randrange(1, 6)):
            name = f"{user}-{turn}"
            made.serve(user, name, outcome=draw.choice(("ok", "ok", "error", "cancelled")))
            if draw.random() < 0.5:
                kind = draw.choice(("completion", "turn"))
                target = name if kind == "completion" else f"turn-{name}"
                made.vote(user, kind, target, [draw.randrange(2) for _ in range(3)], user)
            if draw.random() < 0.2:
                made.vote(user, "completion", name, [draw.randrange(2)], "a colleague")
            if draw.random() < 0.6:
                diff = made.edit(user, name, by_turn=draw.random() < 0.5, undone=draw.randrange(3))
                if draw.random() < 0.3:
                    made.vote(user, "diff", diff, [1], user)
        made.serve(user, f"{user}-pinned", reason="pinned")
        made.serve(user, f"{user}-old", version=2)
        made.serve(user, f"{user}-other", experiment="e2")
    return made


def keep(store: Store, tmp: Any, facts: list[dict[str, Any]], batch: int = 500) -> None:
    log = open_log(f"sqlite:///{tmp}/{Random().random()}.db")
    consumer = log.consumer("store")
    intake, drain = Intake(log, store), Drain(consumer, store)
    for start in range(0, len(facts), batch):
        intake.take_own(*facts[start : start + batch])
    while drain.step(timeout_s=0):
        pass
    consumer.close()
    log.close()


def test_moments_are_those_of_the_users_own_sums(store: Store, tmp_path: Any) -> None:
    made = world(1)
    keep(store, tmp_path, made.facts)
    reading = read(store, experiment().spec, list(METRICS.values()), as_of=FAR)
    assert reading.excluded_units == len(made.mixed) > 0
    columns = {
        "thumbs_net": ("up", "down", -1, "completions"),
        "thumbs_response": ("up", "down", 1, "completions"),
        "undo_rate": ("reverted", "none", 0, "edits"),
        "error_rate": ("errors", "none", 0, "completions"),
    }
    for arm in ARMS:
        users = [u for u in made.arms if made.arms[u] == arm and u not in made.mixed]
        assert reading.arms[arm].units == len(users)
        for key, (plus, minus, sign, bottom) in columns.items():
            tops = np.array([made.sums[u][plus] + sign * made.sums[u][minus] for u in users])
            bottoms = np.array([made.sums[u][bottom] for u in users])
            moments = reading.arms[arm].moments[key]
            assert moments.mean == pytest.approx(tops.mean(), rel=1e-12)
            assert moments.var == pytest.approx(tops.var(ddof=1), rel=1e-12)
            assert moments.den_mean == pytest.approx(bottoms.mean(), rel=1e-12)
            assert moments.den_var == pytest.approx(bottoms.var(ddof=1), rel=1e-12)
            assert moments.cov == pytest.approx(np.cov(tops, bottoms)[0, 1], rel=1e-12)


def test_replayed_shuffled_and_cut_otherwise_the_facts_say_the_same(
    store_dsn: str, store: Store, tmp_path: Any
) -> None:
    made = world(2)
    keep(store, tmp_path, made.facts)
    again = Store.open(store_dsn, database=f"again_{Random().randrange(10**9)}")
    shuffled = made.facts * 2
    Random(3).shuffle(shuffled)
    keep(again, tmp_path, shuffled, batch=37)
    first, second = (report(each, experiment(), as_of=FAR) for each in (store, again))
    again.drop()
    assert (first.metrics, first.decision, first.health.srm) == (
        second.metrics, second.decision, second.health.srm,
    )  # fmt: skip


def test_a_report_of_the_past_says_what_was_known_then(store: Store, tmp_path: Any) -> None:
    made = world(4)
    keep(store, tmp_path, made.facts)
    then = datetime.now(UTC)
    before = report(store, experiment(), as_of=then)
    late = World(arms=made.arms)
    for user in made.arms:
        late.vote(user, "completion", f"{user}-0", [0], "late rater")
    keep(store, tmp_path, late.facts)
    assert report(store, experiment(), as_of=then).metrics == before.metrics
    assert report(store, experiment(), as_of=FAR).metrics != before.metrics


def arms_with(ups: tuple[int, int], users: tuple[int, int], undone: tuple[int, int]) -> World:
    """Of 300 users an arm, how many praise and how many undo."""
    made = World()
    for arm, praise, count, undo in zip(ARMS, ups, users, undone, strict=True):
        for number in range(count):
            user = f"{arm}{number}"
            made.expose(user, arm)
            made.serve(user, user)
            made.edit(user, user, by_turn=False, undone=number < undo)
            if number < praise:
                made.vote(user, "completion", user, [1], user)
    return made


def verdict(store: Store, tmp: Any, made: World, **changes: Any) -> Report:
    keep(store, tmp, made.facts)
    return report(store, experiment(**changes), as_of=FAR)


def test_a_better_goal_with_safe_guardrails_ships(store: Store, tmp_path: Any) -> None:
    found = verdict(store, tmp_path, arms_with((30, 150), (300, 300), (20, 20)))
    assert (found.decision.verdict, found.decision.variant) == ("ship", "b")
    comparison = found.metrics[0].comparisons[0]
    assert comparison.effect == pytest.approx(150 / 300 - 30 / 300)
    assert comparison.relative_effect == pytest.approx(4.0)


def test_a_guardrail_beyond_its_margin_rolls_back(store: Store, tmp_path: Any) -> None:
    found = verdict(store, tmp_path, arms_with((30, 150), (300, 300), (20, 120)))
    assert (found.decision.verdict, found.decision.variant) == ("rollback", "b")


def test_a_guardrail_that_is_not_proven_safe_holds_the_goal_back(
    store: Store, tmp_path: Any
) -> None:
    found = verdict(store, tmp_path, arms_with((30, 150), (300, 300), (60, 66)))
    assert found.decision.verdict == "continue"
    assert "undo_rate" in found.decision.rule


def test_a_mismatched_split_blocks_every_verdict(store: Store, tmp_path: Any) -> None:
    found = verdict(store, tmp_path, arms_with((30, 100), (400, 250), (20, 20)))
    assert found.decision.verdict == "blocked"
    assert found.health.srm_alarm


def test_a_sequential_reading_is_wider_and_waits_for_its_burn_in(
    store: Store, tmp_path: Any
) -> None:
    made = arms_with((30, 80), (150, 150), (5, 5))
    fixed = verdict(store, tmp_path, made).metrics[0].comparisons[0]
    found = report(store, experiment(reading="sequential"), as_of=FAR)
    sequential = found.metrics[0].comparisons[0]
    assert fixed.interval is not None
    assert sequential.interval is not None
    assert sequential.interval[0] < fixed.interval[0] < fixed.interval[1] < sequential.interval[1]
    assert found.decision.verdict == "continue"
    assert sequential.reason is not None
    assert "too early" in sequential.reason


def test_freshness_is_that_of_the_store_also_before_the_first_exposure(
    store: Store, tmp_path: Any
) -> None:
    assert report(store, experiment(), as_of=FAR).health.newest_fact is None
    keep(store, tmp_path, world(5, users=1).facts)
    newest = report(store, experiment(key="another"), as_of=FAR).health.newest_fact
    assert newest is not None
    assert newest.startswith(f"{datetime.now(UTC):%Y-}")


def test_nothing_known_gives_reasons_not_numbers(store: Store) -> None:
    found = report(store, experiment(), as_of=FAR)
    comparison = found.metrics[0].comparisons[0]
    assert comparison.effect is None
    assert comparison.interval is None
    assert comparison.reason == "an arm has fewer than 2 units"
    assert found.decision.verdict == "continue"
    assert json.dumps(found.experiment)
