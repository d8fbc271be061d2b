"""What an analyst reads, from reports written down by hand."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from experiments.findings import (
    Adjustment,
    ArmEstimate,
    Comparison,
    DayEffect,
    Feedback,
    Health,
    MetricReport,
    NoveltyReport,
    PartEffect,
    Safety,
    SegmentedEffect,
    SegmentReport,
)
from experiments.metrics import METRICS
from experiments.report import Decision, Report
from experiments.stats import Bounds, srm_sequential, srm_test
from thumbwheel.door import OUT
from thumbwheel.show import show_report

FEEDBACK = Feedback(
    response=(0.4, 0.7),
    response_interval=(0.1, 0.5),
    response_differs=True,
    approval=(0.75, 0.714),
    manski=Bounds("manski", (0.3, 0.9), (0.5, 0.8), (-0.4, 0.5), (-0.5, 0.6), 0.05),
    lee=Bounds("lee", None, None, None, None, 0.05, "an arm has no thumbs"),
    gamma=1.25,
)
ADJUSTMENT = Adjustment(
    effect=0.1784,
    interval=(0.0969, 0.2599),
    p_value=0.01,
    variance_factor=0.62,
    imbalance_p=0.5,
    is_imbalanced=False,
    note="10.0% and 12.0% of control and treatment have no past",
)


def compared(variant: str, **changes: Any) -> Comparison:
    made = Comparison(
        variant=variant,
        control="old",
        effect=-0.1952,
        interval=(-0.2597, -0.1307),
        p_value=1.59e-16,
        relative_effect=-0.525,
        relative_interval=(-0.642, -0.39),
        method="delta, confidence sequence",
        reason=None,
    )
    return replace(made, **changes)


def read(*comparisons: Comparison, key: str = "undo_rate", **changes: Any) -> str:
    """At the width of a narrow terminal."""
    arms = [ArmEstimate("old", 256, 0.3717)]
    arms += [ArmEstimate(each.variant, 224, 0.1765) for each in comparisons]
    margin = 0.02 if comparisons[0].safety else None
    metric = MetricReport(
        METRICS[key], "guardrail" if margin else "goal", margin, tuple(arms), comparisons
    )
    variants = [{"key": arm.variant, "checkpoint": f"model-{arm.variant}"} for arm in arms]
    experiment = {
        "key": "e1", "status": "running", "unit": "user", "alpha": 0.05, "variants": variants,
    }  # fmt: skip
    units, weights = (256, 224), (1, 1)
    health = Health(
        srm=srm_test(units, weights),
        srm_alarm=False,
        units=480,
        excluded_units=0,
        newest_fact=None,
        simulated=False,
        srm_sequential=srm_sequential(units, weights),
    )
    decision = Decision("continue", "no difference is certain yet")
    report = Report(experiment, "2026-11-30", health, (metric,), decision)
    return told(asdict(replace(report, **changes)))


def told(report: Mapping[str, Any]) -> str:
    out = StringIO()
    show_report(Console(file=out, width=OUT.width, highlight=False, soft_wrap=True), report)
    return out.getvalue()


def test_a_row_is_a_line_on_a_terminal_of_80_columns() -> None:
    assert OUT.width >= 100
    (row,) = (line for line in read(compared("b")).splitlines() if line.startswith(" b "))
    assert " ".join(row.split()) == (
        "b 224 0.1765 -0.1952 -0.2597 … -0.1307 1.59e-16 -52.5% (-64.2 … -39.0)"
    )


@pytest.mark.parametrize(
    ("safety", "words"),
    [
        ("safe", "b: safe: not worse by more than the margin of 0.02"),
        ("open", "b: not shown to be safe yet (margin 0.02)"),
        ("harm", "b: HARM: worse by more than the margin of 0.02"),
    ],
)
def test_a_guardrail_says_in_words_what_its_margin_makes_of_it(safety: Safety, words: str) -> None:
    assert f"  {words}\n" in read(compared("b", safety=safety, harm_bound=-0.14))


def test_many_checkpoints_have_a_row_each_with_the_p_that_they_share() -> None:
    arms = [compared(f"candidate-{n}", adjusted_p=0.03, p_value=0.01) for n in range(5)]
    lines = read(*arms, key="thumbs_net").splitlines()
    assert "  old = model-old, candidate-0 = model-candidate-0, candidate-1" in "\n".join(lines)
    rows = [line for line in lines if line.startswith(" candidate-")]
    assert [row.split()[0] for row in rows] == [f"candidate-{n}" for n in range(5)]
    assert {row.split()[7] for row in rows} == {"0.03"}
    assert all(row.rstrip().endswith("(-64.2 … -39.0)") for row in rows)


def test_arms_of_which_the_same_is_said_share_a_line() -> None:
    said = read(*(compared(arm, safety="safe") for arm in "bc"), compared("d", safety="harm"))
    assert "  b, c: safe: not worse by more than the margin of 0.02\n" in said
    assert "  d: HARM: worse by more than the margin of 0.02\n" in said


def test_what_the_past_took_off_stands_beside_the_effect_as_measured() -> None:
    assert (
        "b: adjusted for what units did before, which leaves 62% of the variance; as measured "
        "+0.1784 (+0.0969 … +0.2599); 10.0% and 12.0% of control and treatment have no past\n"
    ) in read(compared("b", adjustment=ADJUSTMENT))
    uneven = replace(ADJUSTMENT, is_imbalanced=True, imbalance_p=2e-5)
    assert "b: ARMS DIFFERED BEFORE the experiment began (p = 2e-05)" in read(
        compared("b", adjustment=uneven)
    )


def test_thumbs_show_who_rates_and_what_silence_may_hide() -> None:
    said = read(compared("b", feedback=FEEDBACK), key="thumbs_net")
    rows = [line.split() for line in said.splitlines() if "0.0%" in line]
    control, row = (row for row in rows if row[0] in {"old", "b"})
    assert control == ["old", "40.0%", "75.0%"]
    assert " ".join(row) == "b 70.0% +0.1000 … +0.5000 71.4% -0.5000 … +0.6000 – 1.25"
    assert "b: RESPONSE DIFFERS from the control's: raters are not alike" in said
    alike = replace(FEEDBACK, response_differs=False)
    assert "DIFFERS" not in read(compared("b", feedback=alike), key="thumbs_net")


def segments(part: str, **changes: Any) -> SegmentReport:
    effect = PartEffect(part, (60, 70), 0.4, (0.1, 0.7), 0.001, 0.002, 0.3, "delta", None)
    found = SegmentedEffect(
        "thumbs_net", "net thumbs", "goal", "b", 0.2, None, False, 0.1, False, (effect,)
    )
    return SegmentReport("client", "client", False, 0.0125, (replace(found, **changes),), 7)


def test_parts_come_after_the_decision_and_say_first_whether_they_differ() -> None:
    said = read(compared("b"), segments=segments("1.2"))
    assert said.index("Decision:") < said.index("By client (exploratory")
    assert "no difference between parts is certain (p = 0.2, for one look)" in said
    assert "7 units are in smaller parts, which are left out" in said
    assert "98.75% intervals, which hold together" in said
    assert "PARTS DIFFER (p = 0.01, for one look)" in read(
        compared("b"), segments=segments("1.2", interaction_p=0.01, differ=True)
    )
    assert "with the control's mix it is +0.1000" in read(
        compared("b"), segments=segments("1.2", is_reversed=True)
    )


def test_what_a_client_sent_commands_no_terminal_and_no_markup() -> None:
    said = read(compared("b"), segments=segments("\x1b[2J[bold]x[/]" + "y" * 99))
    assert "\x1b" not in said
    assert "�[2J[bold]x[/]" in said
    assert "y" * 40 not in said


def test_a_trend_is_named_with_its_slope_and_days_or_the_reason() -> None:
    days = (DayEffect(0, 0.3, (0.2, 0.4), None), DayEffect(1, None, None, "an arm has no turns"))
    found = NoveltyReport(
        "thumbs_net", "net thumbs", "b", 7, (40, 41), days, -0.02, (-0.03, -0.01), 0.001,
        "fading", None, "slope",
    )  # fmt: skip
    said = read(compared("b"), novelty=(found,))
    assert "net thumbs, b, by day since exposure: 81 users who came 7 days ago or more" in said
    assert "fading: slope -0.0200 a day (-0.0300 … -0.0100), p = 0.001, for one look" in said
    silent = replace(found, slope=None, interval=None, trend=None, reason="an arm has no turns")
    assert "no trend can be asked: an arm has no turns" in read(compared("b"), novelty=(silent,))
    assert " 0    +0.3000" in said
    nothing = replace(silent, days=days[1:])
    assert "\n day " not in read(compared("b"), novelty=(nothing,))
