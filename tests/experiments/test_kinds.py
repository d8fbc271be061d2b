"""What each kind of metric adds up, against numpy and the same facts kept as numbers."""

from dataclasses import astuple, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from experiments.library import load
from experiments.metrics import METRICS, Metric
from experiments.scan import scan
from experiments.stats import Moments
from experiments.stats.feedback import FeedbackCounts
from experiments.stats.quantiles import QuantileSummary
from experiments.stats.winsorize import winsorize
from ingest.store import Store
from tests.experiments.worlds import SPEC, Tell, World, day

NOON = day(30)


def defined(tmp_path: Path, text: str) -> dict[str, Metric]:
    """Metrics of a file, each with what all need."""
    (tmp_path / "mine.yaml").write_text("format: 1\nmetrics:\n" + text)
    ready = set(METRICS)
    return {key: each for key, each in load(tmp_path).metrics.items() if key not in ready}


def line(key: str, kind: str, more: str) -> str:
    return f"  {key}: {{kind: {kind}, title: T, definition: D, good: up, {more}}}\n"


@dataclass
class Unit:
    """What a unit did, told as facts and kept as numbers."""

    arm: str
    tokens: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def told(tell: Tell, units: int = 120) -> dict[str, Unit]:
    """Units of two arms with tokens and times to the first token."""
    draw, made = Random(5), World()
    found = {f"u{number}": Unit("ab"[number % 2]) for number in range(units)}
    for name, unit in found.items():
        made.expose(0, name, unit.arm)
        for turn in range(draw.randrange(4)):
            unit.tokens.append(draw.randrange(10 ** draw.randrange(1, 5)))
            unit.waits.append(draw.random() * 3)
            said: dict[str, Any] = {"gen_ai.usage.output_tokens": unit.tokens[-1]}
            made.serve(1, name, f"{name}-{turn}", time_to_first_token_s=unit.waits[-1], **said)
    made.tell(tell)
    return found


def test_a_count_a_conversion_a_mean_and_their_caps(
    store: Store, tell: Tell, tmp_path: Path
) -> None:
    units = told(tell)
    tokens = "numerator: {fact: completion.finished, value: gen_ai.usage.output_tokens}"
    asked = defined(
        tmp_path,
        line("written", "count", tokens)
        + line("fixed", "count", f"{tokens}, cap: {{at: 1500.5}}")
        + line("pooled", "count", f"{tokens}, cap: {{quantile: 0.9}}")
        + line("busy", "conversion", f"{tokens}, at_least: 100")
        + line(
            "wait", "mean", "numerator: {fact: completion.finished, value: time_to_first_token_s}"
        ),
    )
    found = scan(store, SPEC, list(asked.values()), as_of=NOON).arms
    sums = {arm: [sum(u.tokens) for u in units.values() if u.arm == arm] for arm in "ab"}
    capped = winsorize(sums, upper_quantile=0.9)
    assert capped.values
    assert capped.caps
    assert capped.shares
    for arm in "ab":
        mine, samples = [u for u in units.values() if u.arm == arm], found[arm].samples
        same(samples["written"].moments, Moments.of(sums[arm]))
        same(samples["fixed"].moments, Moments.of(np.minimum(sums[arm], 1500.5)))
        same(samples["pooled"].moments, Moments.of(capped.values[arm]))
        same(samples["pooled"].uncapped, Moments.of(sums[arm]))
        assert samples["pooled"].cap == pytest.approx(capped.caps[arm], abs=1e-6)
        assert samples["pooled"].capped == pytest.approx(capped.shares[arm] * len(mine))
        same(samples["busy"].moments, Moments.of([total >= 100 for total in sums[arm]]))
        waits = [sum(round(w, 6) for w in u.waits) for u in mine]
        same(samples["wait"].moments, Moments.of(waits, [len(u.waits) for u in mine]))
        assert samples["written"].sums == ()


def test_a_quantile_is_that_of_all_events_clustered_by_unit(
    store: Store, tell: Tell, tmp_path: Path
) -> None:
    """growthbook/growthbook#5369: the number of events was wrong in all arms but the first."""
    units = told(tell)
    waits = "numerator: {fact: completion.finished, value: time_to_first_token_s}"
    asked = defined(tmp_path, line("half", "quantile", f"{waits}, quantile: 0.5, timeout: 2.5"))
    p95 = METRICS["time_to_first_token_p95"]
    found = scan(store, SPEC, [asked["half"], p95], as_of=NOON).arms
    for arm in "ab":
        events = [(round(w, 6), name) for name, u in units.items() if u.arm == arm for w in u.waits]
        values, ids = zip(*events, strict=True)
        for key, q, timeout in (("half", 0.5, 2.5), (p95.key, 0.95, None)):
            expected = QuantileSummary.of(values, ids, q, timeout=timeout)
            summary = found[arm].samples[key].quantile
            assert summary
            assert (summary.n, summary.n_units, summary.censored) == (
                expected.n, expected.n_units, expected.censored,
            )  # fmt: skip
            for got, want in zip(
                (summary.value, summary.lower, summary.upper, summary.factor),
                (expected.value, expected.lower, expected.upper, expected.factor),
                strict=True,
            ):
                assert got == pytest.approx(want, rel=1e-9)
    assert p95.key not in found["a"].moments


def test_thumbs_are_three_outcomes_and_a_unit_never_has_more_of_them_than_turns(
    store: Store, tell: Tell
) -> None:
    made = World()
    for unit, votes in {"u": (1, 1, 0), "v": (0,), "w": ()}.items():
        made.expose(0, unit)
        made.serve(0, unit, f"c-{unit}")
        made.serve(0, unit, f"d-{unit}")
        for number, vote in enumerate(votes):
            made.thumb(0, f"c-{unit}", vote, rater=f"r{number}")
    made.tell(tell)
    counts = scan(store, SPEC, [METRICS["thumbs_net"]], as_of=NOON).arms["a"].samples["thumbs_net"]
    expected = FeedbackCounts.of([2, 0, 0], [1, 1, 0], [3, 2, 2])
    assert counts.sums == ((-1, 2), (0, 2), (1, 2))
    assert counts.feedback
    assert counts.feedback.n == 3
    assert counts.feedback.mean == pytest.approx(expected.mean)
    assert np.array(counts.feedback.cov) == pytest.approx(np.array(expected.cov))


def test_edits_are_judged_once_each(store: Store, tell: Tell) -> None:
    made = World()
    made.expose(0, "u")
    tokens: dict[str, Any] = {
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 100,
    }
    made.serve(0, "u", "c1", **tokens)
    made.say(0, "inference.completed", completion__id="c1", cost_usd=0.25)
    for name, lines, shown, decisions in (
        ("d1", 10, 2.0, ("rejected", "accepted")), ("d2", 4, 2.0, ("rejected", "superseded")),
        ("d3", 6, 0.5, ("accepted",)), ("d4", 0, 2.0, ("auto_applied",)),
    ):  # fmt: skip
        hunks = [{"id": "h1", "lines_added": lines // 2}, {"id": "h2", "lines_added": lines // 2}]
        made.say(0, "diff.proposed", diff__id=name, turn__id="t-c1", hunks=hunks)
        made.say(0, "diff.shown", diff__id=name, visible_s=shown)
        for outcome in decisions:
            made.say(0, "diff.decided", diff__id=name, outcome=outcome)
    for on, name, checkpoint, kept in (
        (0, "d1", 30, 0.9), (0, "d1", 900, 0.5), (0.1, "d1", 900, 0.75), (0, "d2", 900, 1.0),
        (0, "d3", 900, None),
    ):  # fmt: skip
        made.say(on, "diff.survival", diff__id=name, checkpoint_s=checkpoint, kept_ratio=kept)
    made.say(0, "diff.survival", diff__id="d4", checkpoint_s=900, kept_ratio=1, state="unobserved")
    made.say(0.1, "diff.committed", diff__ids=["d1", "d2"], kept_ratio=0.5)
    made.say(0.2, "diff.committed", diff__ids=["d2", "unknown"], kept_ratio=0.1)
    made.tell(tell)
    assert totals(store) == {
        "acceptance": (1, 2),
        "kept_ratio_15m": (1.75, 2),
        "kept_ratio_commit": (1, 2),
        "tokens_per_kept_line": (1_000, 10 * 0.75 + 4),
        "cost_per_kept_line": (0.25, 10 * 0.75 + 4),
        "undo_rate": (0, 4),
    }  # fmt: skip


def test_asking_again_failing_tools_and_giving_up(store: Store, tell: Tell) -> None:
    made = World()
    made.expose(0, "u")
    turns: dict[str, tuple[str, dict[str, Any]]] = {
        "c1": ("k1", {"trigger": "typed"}),
        "c2": ("k1", {"trigger": "regenerate"}),
        "c3": ("k2", {"trigger": "typed", "similarity": 0.8}),
        "c4": ("k3", {"trigger": "typed", "similarity": 0.79}),
    }
    for number, (name, (conversation, said)) in enumerate(turns.items()):
        outcome = "cancelled" if name in {"c1", "c3"} else "ok"
        where: dict[str, Any] = {"gen_ai.conversation.id": conversation}
        made.serve(number / 10, "u", name, outcome=outcome, **where)
        for _ in range(2):
            made.say(0, "turn.submitted", turn__id=f"t-{name}", **said)
        made.say(0, "tool.called", turn__id=f"t-{name}", outcome="error")
        made.say(0, "tool.called", turn__id=f"t-{name}", outcome="ok")
        made.say(0, "tool.called", turn__id=f"t-{name}", approval="denied")
    made.tell(tell)
    found = totals(store, "rephrase_rate", "tool_error_rate", "session_abandonment")
    assert found == {
        "rephrase_rate": (2, 4), "tool_error_rate": (4, 8), "session_abandonment": (1, 3),
    }  # fmt: skip


def totals(store: Store, *keys: str) -> dict[str, tuple[float, float]]:
    names = keys or (
        "acceptance", "kept_ratio_15m", "kept_ratio_commit", "tokens_per_kept_line",
        "cost_per_kept_line", "undo_rate",
    )  # fmt: skip
    arm = scan(store, SPEC, [METRICS[key] for key in names], as_of=NOON).arms["a"]
    return {key: (arm.moments[key].mean, arm.moments[key].den_mean) for key in names}


def test_fields_without_a_column_are_read_from_the_text(
    store: Store, tell: Tell, tmp_path: Path
) -> None:
    made = World()
    made.expose(0, "u")
    made.serve(0, "u", "c1")
    for name, wait in (("bash", 1.5), ("bash", 2.25), ("read", 9.0)):
        made.say(0, "tool.called", turn__id="t-c1", gen_ai__tool__name=name, approval_wait_s=wait)
    made.say(0, "turn.completed", turn__id="t-c1", user_left_during=True, llm_calls=3)
    made.tell(tell)
    waits = (
        "numerator: {fact: tool.called, value: approval_wait_s, where: {gen_ai.tool.name: bash}}"
    )
    left = "numerator: {fact: turn.completed, value: llm_calls, where: {user_left_during: true}}"
    asked = defined(tmp_path, line("waits", "mean", waits) + line("left", "count", left))
    moments = scan(store, SPEC, list(asked.values()), as_of=NOON).arms["a"].moments
    assert (moments["waits"].mean, moments["waits"].den_mean) == (3.75, 2)
    assert moments["left"].mean == 3


def test_a_number_that_nothing_can_have_is_no_measurement(store: Store, tell: Tell) -> None:
    """So that no sum can run over, whatever a client says."""
    made = World()
    for unit, wait in (("u", 1e300), ("v", 2.0), ("w", 1e8), ("x", 1.1e8)):
        made.expose(0, unit)
        made.serve(0, unit, f"c-{unit}", time_to_first_token_s=wait)
    made.tell(tell)
    moments = scan(store, SPEC, [METRICS["time_to_first_token"]], as_of=NOON).arms["a"].moments
    same(moments["time_to_first_token"], Moments.of([0, 2.0, 1e8, 0], [0, 1, 1, 0]))


def same(found: Moments | None, expected: Moments) -> None:
    assert found
    assert astuple(found) == pytest.approx(astuple(expected), rel=1e-9, abs=1e-12)
