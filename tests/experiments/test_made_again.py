"""A report and a decision made again a day later, from the log replayed in another order."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from experiments import metrics
from experiments.plans import Experiment, Goals, Guardrail, Plan, PlannedVariant
from experiments.records import Decisions, record_of
from experiments.report import report
from ingest.drain import Drain
from ingest.log import Log
from ingest.store import Store
from tests.experiments.test_exposure import world
from tests.experiments.worlds import Tell, day

MINE = """
format: 1
metrics:
  capped: {kind: count, title: T, definition: D, good: up, cap: {quantile: 0.8}, window: 7d,
    numerator: {fact: completion.finished, value: gen_ai.usage.input_tokens}}
  converted: {kind: conversion, title: T, definition: D, good: up, at_least: 2,
    numerator: {fact: diff.decided, where: {outcome: accepted}}}
  slow: {kind: quantile, quantile: 0.5, title: T, definition: D, good: down, timeout: 2.5,
    numerator: {fact: completion.finished, value: time_to_first_token_s}}
"""
AS_OF = day(9)
KINDS = ("thumbs_net", "acceptance", "kept_ratio_15m", "time_to_first_token_p95",
         "session_abandonment", "tokens_per_kept_line", "capped", "converted", "slow")  # fmt: skip


@pytest.fixture
def every_metric(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The ready ones, and one of each kind that they lack."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mine.yaml").write_text(MINE)
    before = set(metrics.METRICS)
    metrics.use_folder(folder)
    yield tuple(metrics.METRICS)
    for key in set(metrics.METRICS) - before:
        del metrics._metrics[key]  # noqa: SLF001 - this process goes on with the ready ones


def experiment(keys: tuple[str, ...], **changes: Any) -> Experiment:
    rails = tuple(Guardrail(metric=key, margin=0.1) for key in ("undo_rate", "error_rate", "slow"))
    plan = Plan(
        key="e1",
        variants=tuple(PlannedVariant(key=arm, checkpoint=f"m-{arm}") for arm in "ab"),
        metrics=Goals(goals=keys, guardrails=rails),
        min_days=0,
        **changes,
    )
    began = day(0).isoformat()
    return Experiment(plan, "running", 1, (0, 10_000), began, began, None, phase_started_at=began)


def replayed(log: Log, dsn: str, draw: Random) -> Store:
    """The log's records, each once or oftener, in any order and any batches."""
    store = Store.open(dsn, database=f"again_{uuid4().hex}")
    reader = log.consumer(f"again-{uuid4().hex}")
    records = reader.poll(max_records=100_000, max_bytes=1 << 30, timeout_s=1)
    records += draw.sample(records, len(records) // 2)
    draw.shuffle(records)
    while records:
        size = draw.randrange(1, len(records) + 1)
        Drain(reader, store)._keep(records[:size], again=False)  # noqa: SLF001 - in another order
        del records[:size]
    reader.close()
    return store


@pytest.fixture
def kept(store: Store, log: Log, tell: Tell, store_dsn: str) -> tuple[Store, Log, str]:
    """Forty users with a past and all kinds of outcomes, in the log and in the store."""
    world(1).tell(tell)
    return store, log, store_dsn


def test_a_report_of_every_kind_of_metric_and_its_decision_are_the_same_a_day_later(
    kept: tuple[Store, Log, str], every_metric: tuple[str, ...], control: Engine
) -> None:
    store, log, dsn = kept
    assert set(KINDS) <= set(every_metric)
    asked = experiment(KINDS)
    first = asdict(report(store, asked, as_of=AS_OF))
    made = Decisions(control, store).make(asked, AS_OF)

    @settings(max_examples=2, phases=[Phase.generate])
    @given(draw=st.randoms(use_true_random=False))
    def in_any_order(draw: Random) -> None:
        again = replayed(log, dsn, draw)
        found = report(again, asked, as_of=AS_OF)
        assert asdict(found) == first
        assert record_of(asked, found) == made.record
        again.drop()

    in_any_order()


def test_the_report_that_is_made_again_says_something_of_every_metric(
    kept: tuple[Store, Log, str], every_metric: tuple[str, ...]
) -> None:
    found = report(kept[0], experiment(every_metric, reading="fixed"), as_of=AS_OF)
    by_key = {each.metric.key: each for each in found.metrics}
    assert {each.metric.kind for each in found.metrics} == {
        "count", "conversion", "mean", "ratio", "quantile", "feedback",
    }  # fmt: skip
    silent = {key for key, each in by_key.items() if all(arm.estimate is None for arm in each.arms)}
    assert silent <= {"cost_per_kept_line"}, "nobody said what anything cost"
    assert by_key["capped"].comparisons[0].effect is not None
    assert by_key["converted"].comparisons[0].effect is not None
