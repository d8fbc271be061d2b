"""A report is the same to the last digit on any number of threads, after replay and shuffle."""

from random import Random
from typing import Any

import pytest

from experiments.metrics import METRICS
from experiments.plans import Goals, Guardrail
from experiments.report import Report, report
from ingest.store import Store
from tests.experiments.test_exposure import Threads, copied, world
from tests.experiments.test_report import experiment
from tests.experiments.worlds import Tell, day

PLAN: dict[str, Any] = {
    "metrics": Goals(
        goals=tuple(key for key in METRICS if key != "undo_rate"),
        guardrails=(Guardrail(metric="undo_rate", margin=0.05),),
    )
}


def told(store: Any) -> Report:
    return report(store, experiment(**PLAN), as_of=day(9))


@pytest.fixture
def facts(store: Store, tell: Tell) -> list[dict[str, Any]]:
    world(5).tell(tell)
    return copied(store)


def test_one_thread_and_four_make_the_same_report(store: Store, facts: list[Any]) -> None:
    assert facts
    one, four = (told(Threads(store, number)) for number in (1, 4))
    assert one.health.units > 0
    assert any(each.comparisons[0].p_value is not None for each in one.metrics)
    assert one == four


def test_facts_replayed_and_shuffled_make_the_same_report_on_any_number_of_threads(
    store: Store, facts: list[dict[str, Any]], store_dsn: str
) -> None:
    draw = Random(5)
    other = Store.open(store_dsn, database=f"threads_{draw.randrange(10**9)}")
    other.command("SYSTEM STOP MERGES events")
    replayed = draw.sample([*facts, *facts], 2 * len(facts))
    for start in range(0, len(replayed), 300):
        part = [tuple(row.values()) for row in replayed[start : start + 300]]
        other.insert("events", tuple(facts[0]), part, token=str(start))
    expected = told(store)
    for number in (1, 4):
        assert told(Threads(other, number)) == expected
    other.drop()
