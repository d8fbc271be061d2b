"""The plan's rule, on effects written down by hand."""

import pytest

from experiments.metrics import METRICS
from experiments.report import Comparison, Health, MetricReport, Verdict, decide
from experiments.stats import srm_test

Interval = tuple[float, float] | None

BETTER, WORSE, UNSURE, TIGHT = (0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1), (-0.01, 0.01)


def metric(key: str, margin: float | None, **intervals: Interval) -> MetricReport:
    """Intervals by variant; None stands for a metric without an answer."""
    comparisons = tuple(
        Comparison(
            variant=variant,
            control="control",
            effect=None,
            interval=interval,
            p_value=None,
            relative_effect=None,
            relative_interval=None,
            method="by hand",
            reason=None if interval else "an arm's denominator is 0",
        )
        for variant, interval in intervals.items()
    )
    return MetricReport(METRICS[key], "guardrail" if margin else "goal", margin, (), comparisons)


def health(*units: int) -> Health:
    srm = srm_test(units, [1] * len(units))
    alarm = srm.p_value is not None and srm.p_value < 0.001
    return Health(srm, alarm, sum(units), 0, None, simulated=False)


EVEN = health(300, 300)


@pytest.mark.parametrize(
    ("goal", "undo", "verdict"),
    [
        (BETTER, TIGHT, "ship"),
        (BETTER, WORSE, "ship"),  # fewer undos are better
        (BETTER, UNSURE, "continue"),
        (BETTER, BETTER, "rollback"),  # more undos are worse
        (BETTER, None, "continue"),
        (UNSURE, TIGHT, "continue"),
        (None, TIGHT, "continue"),
        (WORSE, TIGHT, "rollback"),
        ((0.0, 0.1), TIGHT, "continue"),
    ],
)
def test_one_treatment_is_judged_by_goal_and_guardrail(
    goal: Interval, undo: Interval, verdict: Verdict
) -> None:
    metrics = (metric("thumbs_net", None, b=goal), metric("undo_rate", 0.02, b=undo))
    assert decide(EVEN, metrics).verdict == verdict


def test_a_safe_arm_ships_though_an_earlier_one_is_not_proven_safe() -> None:
    metrics = (
        metric("thumbs_net", None, b=BETTER, c=BETTER),
        metric("undo_rate", 0.02, b=UNSURE, c=TIGHT),
    )
    assert (decide(EVEN, metrics).verdict, decide(EVEN, metrics).variant) == ("ship", "c")


def test_harm_by_any_arm_comes_before_any_gain() -> None:
    metrics = (metric("thumbs_net", None, b=BETTER, c=WORSE),)
    decision = decide(EVEN, metrics)
    assert (decision.verdict, decision.variant) == ("rollback", "c")


def test_a_mismatch_blocks_even_a_clear_harm() -> None:
    metrics = (metric("thumbs_net", None, b=WORSE),)
    assert decide(health(400, 250), metrics).verdict == "blocked"
    assert decide(health(4, 0), metrics).verdict == "rollback"  # too few to speak of a mismatch
