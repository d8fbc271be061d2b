"""Bugs that others' users reported, looked for in a whole report; the parts have tests of their own."""

from typing import Any

import numpy as np
import pytest

from experiments.plans import Goals, PlannedVariant
from experiments.report import report
from ingest.store import Store
from tests.experiments.test_report import FAR, World, arms_with, experiment, keep


def test_an_arm_with_weight_and_no_user_stays_in_the_split_test(
    store: Store, tmp_path: Any
) -> None:
    """Report 1, growthbook/growthbook#4427: it was skipped, and the split looked as planned."""
    keep(store, tmp_path, arms_with((30, 30), (300, 300), (20, 20)).facts)
    arms = tuple(PlannedVariant(key=arm, checkpoint=f"model-{arm}") for arm in "abc")
    found = report(store, experiment(variants=arms), as_of=FAR)
    assert found.health.srm.df == 2
    assert found.health.srm_alarm
    assert found.decision.verdict == "blocked"
    (empty,) = (each for each in found.metrics[0].comparisons if each.variant == "c")
    assert (empty.effect, empty.p_value) == (None, None)
    assert empty.reason


def test_held_out_users_raise_no_alarm_of_a_mismatched_split(store: Store, tmp_path: Any) -> None:
    """Report 3, PostHog/posthog#60006: the holdout counted in the expectation of each experiment."""
    made = arms_with((30, 30), (300, 300), (20, 20))
    for number in range(200):
        made.expose(f"held{number}", "a")
        made.facts[-1]["data"] |= {"reason": "holdout", "received": "champion"}
    keep(store, tmp_path, made.facts)
    found = report(store, experiment(), as_of=FAR)
    assert found.health.units == 600
    assert found.health.srm.p_value == 1
    assert not found.health.srm_alarm


def test_a_strong_effect_on_a_rare_metric_has_a_p_value_in_the_report(
    store: Store, tmp_path: Any
) -> None:
    """Report 21, growthbook/growthbook#1320: none was shown."""
    keep(store, tmp_path, arms_with((3, 150), (300, 300), (20, 20)).facts)
    (comparison, *_) = report(store, experiment(), as_of=FAR).metrics[0].comparisons
    assert comparison.p_value is not None
    assert 0 < comparison.p_value < 1e-30
    assert comparison.interval is not None


def test_every_arm_of_a_quantile_counts_its_own_events(store: Store, tmp_path: Any) -> None:
    """Report 25, growthbook/growthbook#5369: arms but the first had the wrong number of events."""
    rng, made = np.random.default_rng(7), World()
    waits: dict[str, list[float]] = {"a": [], "b": []}
    for number in range(160):
        user, arm = f"u{number}", "ab"[number % 2]
        made.expose(user, arm)
        # Three times as many in b: with a's number of events its bounds would be √3 too far apart.
        for turn in range(6 if arm == "a" else 18):
            waits[arm].append(round(float(rng.lognormal()), 6))
            made.serve(user, f"{user}-{turn}", time_to_first_token_s=waits[arm][-1])
    keep(store, tmp_path, made.facts)
    asked = experiment(metrics=Goals(goals=("time_to_first_token_p95",)))
    (comparison,) = report(store, asked, as_of=FAR).metrics[0].comparisons
    assert comparison.interval is not None
    half = (comparison.interval[1] - comparison.interval[0]) / 2
    # Events are independent here: order statistics of each arm's own number of them.
    errors = []
    for numbers in waits.values():
        reach = 1.959964 * np.sqrt(0.95 * 0.05 / len(numbers))
        low, high = np.quantile(numbers, (0.95 - reach, 0.95 + reach))
        errors.append((high - low) / 2 / 1.959964)
    assert half == pytest.approx(1.98 * np.hypot(*errors), rel=0.2)
