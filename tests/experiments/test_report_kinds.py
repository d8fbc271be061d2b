"""Reports of metrics that are no ratio of two sums, and of arms with few units."""

from typing import Any

import numpy as np
import pytest

from experiments.registry import Goals
from experiments.report import report
from ingest.store import Store
from tests.experiments.test_report import ARMS, FAR, World, experiment, keep


def test_a_tail_is_compared_by_its_quantile_with_units_as_clusters(
    store: Store, tmp_path: Any
) -> None:
    rng = np.random.default_rng(4)
    made = World()
    waits: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for number in range(160):
        user, arm = f"u{number}", ARMS[number % 2]
        made.expose(user, arm)
        for turn in range(8):
            seconds = round(float(rng.lognormal(sigma=0.5)), 6)
            waits[arm].append(seconds)
            made.serve(user, f"{user}-{turn}", time_to_first_token_s=seconds)
    keep(store, tmp_path, made.facts)
    asked = experiment(metrics=Goals(goals=("time_to_first_token_p95",)))
    (found,) = report(store, asked, as_of=FAR).metrics
    assert [arm.estimate for arm in found.arms] == pytest.approx(
        [np.quantile(waits[arm], 0.95) for arm in ARMS], rel=1e-5
    )
    (comparison,) = found.comparisons
    assert comparison.method == "clustered quantile"
    assert comparison.interval is not None
    low, high = comparison.interval
    assert comparison.effect is not None
    assert low < comparison.effect < high


def test_arms_of_few_units_are_read_by_cr2_and_an_empty_one_has_a_reason(
    store: Store, tmp_path: Any
) -> None:
    made = World()
    for number in range(24):
        user = f"u{number}"
        made.expose(user, ARMS[number % 2])
        for turn in range(1 + number % 5):
            made.serve(user, f"{user}-{turn}", outcome="error" if (number + turn) % 3 else "ok")
    keep(store, tmp_path, made.facts)
    asked = experiment(metrics=Goals(goals=("error_rate", "time_to_first_token_p95")))
    errors, waits = report(store, asked, as_of=FAR).metrics
    assert errors.comparisons[0].method == "CR2"
    assert errors.comparisons[0].interval is not None
    assert waits.comparisons[0].interval is None
    assert waits.comparisons[0].reason
