"""A hundred small demos in this process: does the report know what the simulation knows?"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from experiments.assign import Assignment, assign
from experiments.registry import Experiment, Goals, Plan, PlannedVariant
from experiments.report import Report, report
from ingest.drain import Drain
from ingest.intake import Intake
from ingest.log import open_log
from ingest.store import Store
from ingest.wire import Raw
from thumbwheel.demo.population import Behaviour, Developer, Population, answer, is_right, prompt
from thumbwheel.demo.traffic import turn_facts, turn_id

SEEDS = range(100)
DEVELOPERS = 480
UNREAD = ("thumbwheel.turn.submitted.v1", "thumbwheel.diff.decided.v1")
"""No metric reads them; without them the proof takes half the time."""
SAME = Behaviour(right=(("scripted-a", 0.6), ("scripted-b", 0.6)))


def experiment(behaviour: Behaviour, reading: str) -> Experiment:
    plan = Plan(
        key="demo",
        variants=tuple(PlannedVariant(key=each, checkpoint=each) for each in behaviour.checkpoints),
        metrics=Goals(goals=("thumbs_net",)),
        reading="fixed" if reading == "fixed" else "sequential",
        planned_units=DEVELOPERS,
    )
    return Experiment(plan, "running", 1, (0, 10_000), "", None, None)


def facts(population: Population, split: Experiment) -> Iterator[dict[str, Any]]:
    """What a demo over HTTP leaves in the log, minted here."""
    for developer in population.developers():
        given = assign(split.spec, developer.name)
        assert given is not None
        yield _minted(
            developer, "experiment.exposed", given.assignment_id, _exposure(given, developer)
        )
        for turn in range(developer.turns):
            completion = f"cmpl-{turn_id(developer, turn)}"
            text = answer(
                given.checkpoint,
                prompt(developer, turn),
                population.behaviour.chance(given.checkpoint),
            )
            served = {
                "completion.id": completion, "turn.id": turn_id(developer, turn),
                "checkpoint": given.checkpoint, "reason": "randomised", "outcome": "ok",
                "experiment": given.experiment, "version": 1, "variant": given.variant,
                "simulated": True,
            }  # fmt: skip
            yield _minted(developer, "completion.finished", completion, served)
            decision = population.decide(developer, turn, right=is_right(text))
            told = turn_facts(developer, turn, completion, text, decision)
            yield from (each for each in told if each["type"] not in UNREAD)
            if decision.thumb is not None:
                rating = {
                    "target": {"kind": "completion", "id": completion},
                    "gen_ai.evaluation.score.value": int(decision.thumb),
                    "rater": developer.name,
                }
                yield _minted(developer, "feedback.submitted", f"thumb-{completion}", rating)


def _exposure(given: Assignment, developer: Developer) -> dict[str, Any]:
    return {
        "assignment": given.assignment_id, "experiment": given.experiment, "version": 1,
        "unit_type": "user", "unit": developer.name, "assigned": given.variant,
        "received": given.variant, "propensity": given.propensity, "reason": "randomised",
    }  # fmt: skip


def _minted(developer: Developer, kind: str, name: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "specversion": "1.0", "id": name, "source": "/serving", "type": f"thumbwheel.{kind}.v1",
        "user": developer.name, "partitionkey": developer.name, "data": data,
    }  # fmt: skip


def reports(store_dsn: str, folder: Path, seed: int, behaviour: Behaviour) -> dict[str, Report]:
    """The reports of one demo, by reading, from a store of its own."""
    population = Population(seed, DEVELOPERS, behaviour)
    store = Store.open(store_dsn, database=f"t_{uuid4().hex}")
    log = open_log(f"sqlite:///{folder / f'{seed}-{uuid4().hex}.db'}")
    consumer = log.consumer("store")
    intake, drain = Intake(log, store), Drain(consumer, store)
    minted = list(facts(population, experiment(behaviour, "fixed")))
    receipt = intake.take([Raw(json.dumps(each), each) for each in minted], look_up=False)
    assert receipt.count("accepted") == len(minted)
    while drain.step(timeout_s=0):
        pass
    now = datetime.now(UTC)
    found = {
        reading: report(store, experiment(behaviour, reading), as_of=now)
        for reading in ("sequential", "fixed")
    }
    consumer.close()
    log.close()
    store.drop()
    return found


@pytest.mark.slow
def test_the_truth_lies_in_the_interval(store_dsn: str, tmp_path: Path) -> None:
    behaviour = Behaviour()
    truth = behaviour.true_effects()["thumbs_net"]
    inside = {"sequential": 0, "fixed": 0}
    shipped = 0
    for seed in SEEDS:
        for reading, found in reports(store_dsn, tmp_path, seed, behaviour).items():
            low, high = found.metrics[0].comparisons[0].interval or (0.0, 0.0)
            inside[reading] += low <= truth <= high
            shipped += reading == "sequential" and found.decision.verdict == "ship"
    print(
        f"\ntrue effect {truth:+.4f} inside the 95 % interval: sequential {inside['sequential']}, "
        f"fixed {inside['fixed']} of {len(SEEDS)}; sequential verdict 'ship' in {shipped}"
    )
    assert inside["sequential"] >= 90
    assert inside["fixed"] >= 88  # three standard errors below 95 of 100


@pytest.mark.slow
def test_without_a_difference_a_winner_is_called_rarely(store_dsn: str, tmp_path: Path) -> None:
    called = {"sequential": 0, "fixed": 0}
    for seed in SEEDS:
        for reading, found in reports(store_dsn, tmp_path, seed, SAME).items():
            called[reading] += found.decision.verdict in ("ship", "rollback")
    print(
        f"\nno difference, and a winner called: sequential {called['sequential']}, "
        f"fixed {called['fixed']} of {len(SEEDS)}"
    )
    assert called["sequential"] <= 8
    assert called["fixed"] <= 12  # three standard errors above 5 of 100
