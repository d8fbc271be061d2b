"""Decisions are kept, made again to the byte, and overridden beside what the rule said."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine

from experiments.records import Decisions, Override
from experiments.registry import Experiments, Plan
from experiments.watch import Watch
from ingest.drain import Drain
from ingest.errors import NotFound
from ingest.intake import Intake
from ingest.log import open_log
from ingest.store import Store
from tests.experiments.test_report import FAR, arms_with, experiment, keep

HOUR = timedelta(hours=1)


@pytest.fixture
def decisions(store: Store, control: Engine, tmp_path: Any) -> Decisions:
    keep(store, tmp_path, arms_with((30, 150), (300, 300), (20, 20)).facts)
    return Decisions(control, store)


def test_a_decision_made_again_from_a_replayed_and_shuffled_log_is_the_same_to_the_byte(
    store: Store, control: Engine, tmp_path: Any
) -> None:
    log = open_log(f"sqlite:///{tmp_path}/log.db")
    intake, reader = Intake(log, store), log.consumer("store")
    facts = arms_with((30, 150), (300, 300), (20, 20)).facts
    for start in range(0, len(facts), 40):
        intake.take_own(*facts[start : start + 40])
    first = Drain(reader, store)
    while first.step(timeout_s=0):
        pass
    reader.close()
    decisions, as_of = Decisions(control, store), datetime.now(UTC)
    made = decisions.make(experiment(), as_of)
    assert json.loads(made.record)["decision"]["verdict"] == "ship"
    again = log.consumer("again")
    records = again.poll(max_records=10_000, max_bytes=1 << 30, timeout_s=1)
    again.close()
    Random(1).shuffle(records)
    for start in range(0, len(records), 7):
        Drain(reader, store)._keep(records[start : start + 7], again=False)  # noqa: SLF001 - in another order
    log.close()
    assert decisions.make_again(experiment(), made.id)["identical"]
    assert decisions.make(experiment(), as_of) == made
    assert [each.id for each in decisions.all("e1")] == [made.id]


def test_other_facts_make_another_record_and_the_check_says_so(
    decisions: Decisions, store: Store, tmp_path: Any
) -> None:
    made = decisions.make(experiment(), FAR)
    more = arms_with((30, 150), (300, 300), (20, 20))
    more.serve("one more", "and its answer")
    keep(store, tmp_path, more.facts)
    more.expose("one more", "a")
    keep(store, tmp_path, more.facts)
    again = decisions.make_again(experiment(), made.id)
    assert not again["identical"]
    assert again["stored"]["inputs"] != again["again"]["inputs"]


def test_people_may_decide_otherwise_and_the_rules_verdict_stays_beside_theirs(
    decisions: Decisions,
) -> None:
    made = decisions.make(experiment(), FAR)
    wanted = Override(verdict="continue", reason="a holiday week")
    decided = decisions.override("e1", made.id, wanted, by="key-1")
    assert decided.record == made.record
    assert decided.override is not None
    assert (decided.override["verdict"], decided.override["by"]) == ("continue", "key-1")
    with pytest.raises(NotFound, match="no decision"):
        decisions.override("e2", made.id, wanted, by="key-1")


def running(control: Engine, **changes: Any) -> Experiments:
    registry = Experiments(control)
    plan = experiment().plan.model_dump() | {"min_days": 0} | changes
    registry.create(Plan(**plan))
    registry.start("e1")
    return registry


def test_the_watch_records_a_verdict_once_and_again_only_when_it_changes(
    decisions: Decisions, control: Engine
) -> None:
    registry = running(control)
    watch = Watch(registry, decisions)
    watch.turn()
    watch.turn()
    assert [verdict(each.record) for each in decisions.all("e1")] == ["ship"]
    assert registry.get("e1").status == "running"


def test_an_experiment_that_asked_for_it_is_stopped_on_harm(
    store: Store, control: Engine, tmp_path: Any
) -> None:
    keep(store, tmp_path, arms_with((150, 30), (300, 300), (20, 20)).facts)
    registry = running(control, on_harm="stop")
    decisions = Decisions(control, store)
    Watch(registry, decisions).turn()
    assert [verdict(each.record) for each in decisions.all("e1")] == ["rollback"]
    assert registry.get("e1").status == "stopped"
    Watch(registry, decisions).turn()
    assert len(decisions.all("e1")) == 1


def verdict(record: str) -> str:
    return str(json.loads(record)["decision"]["verdict"])


def test_a_record_holds_nothing_that_is_only_true_today(decisions: Decisions) -> None:
    now = datetime.now(UTC) + HOUR
    stopped = replace(experiment(), status="stopped", stopped_at=now.isoformat())
    assert decisions.make(experiment(), FAR) == decisions.make(stopped, FAR)
