"""Effects by part: whether parts differ comes first, and many parts do not make a finding."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

from experiments.findings import SegmentReport
from experiments.report import report
from ingest.errors import BadInput
from ingest.store import Store
from tests.experiments.test_report import experiment
from tests.experiments.worlds import Tell, World, day
from tests.facts import fact
from tests.running import Running

Counts = Mapping[tuple[str, str], tuple[int, int]]
"""Users and how many of them are pleased, by arm and language."""


def told(tell: Tell, counts: Counts) -> None:
    made = World()
    for (arm, language), (users, pleased) in counts.items():
        for number in range(users):
            unit = f"{arm}-{language}-{number}"
            data = {"diff.id": f"d-{unit}", "thumbwheel.language_id": language}
            if language:
                made.days[0].append(fact("diff.proposed", user=unit, data=data))
            made.expose(1, unit, arm)
            made.serve(2, unit, f"c-{unit}", variant=arm)
            if number < pleased:
                made.thumb(3, f"c-{unit}", 1, rater=unit)
    made.tell(tell)


def split(store: Store, segment: str = "language", **changes: Any) -> SegmentReport:
    asked = experiment(**{"metrics": {"goals": ["thumbs_net"]}} | changes)
    found = report(store, asked, as_of=day(9), segment=segment).segments
    assert found is not None
    return found


TWO: Counts = {
    ("a", "go"): (60, 20), ("b", "go"): (70, 28),
    ("a", "rust"): (60, 20), ("b", "rust"): (80, 62),
    ("a", ""): (3, 1), ("b", ""): (2, 1),
}  # fmt: skip


def pleased(counts: Counts, language: str) -> list[np.ndarray[Any, Any]]:
    return [np.arange(counts[arm, language][0]) < counts[arm, language][1] for arm in "ab"]


def test_parts_are_tested_against_each_other_then_shown_with_intervals_that_hold_together(
    store: Store, tell: Tell
) -> None:
    told(tell, TWO)
    found = split(store, segments=("language",))
    (effect,) = found.effects
    sizes, variances, alone = [], [], []
    for part, language in zip(effect.parts, ("rust", "go"), strict=True):
        control, treatment = (each.astype(float) for each in pleased(TWO, language))
        test = scipy_stats.ttest_ind(treatment, control, equal_var=False)
        sizes.append(treatment.mean() - control.mean())
        variances.append(
            control.var(ddof=1) / len(control) + treatment.var(ddof=1) / len(treatment)
        )
        alone.append(test.pvalue)
        assert (part.part, part.units) == (language, (len(control), len(treatment)))
        assert part.effect == pytest.approx(sizes[-1])
        assert part.interval == pytest.approx(tuple(test.confidence_interval(1 - 0.05 / 2)))
    assert [part.p_value for part in effect.parts] == pytest.approx(alone)
    holm = multipletests(alone, method="holm")[1]
    assert [part.adjusted_p for part in effect.parts] == pytest.approx(list(holm))
    wald = (sizes[0] - sizes[1]) ** 2 / sum(variances)
    assert effect.interaction_p == pytest.approx(scipy_stats.chi2.sf(wald, 1))
    assert effect.differ
    assert found.interval_alpha == pytest.approx(0.025)
    assert found.left_out_units == 5


def test_what_the_plan_did_not_name_is_exploratory(store: Store, tell: Tell) -> None:
    told(tell, TWO)
    assert split(store, segments=("language",)).is_planned
    assert not split(store).is_planned
    assert not split(store, segments=("editor",)).is_planned


def test_a_mix_that_turns_the_effect_round_is_named(store: Store, tell: Tell) -> None:
    told(
        tell,
        {
            ("a", "easy"): (200, 180), ("b", "easy"): (50, 48),
            ("a", "hard"): (50, 15), ("b", "hard"): (200, 70),
        },
    )  # fmt: skip
    (effect,) = split(store).effects
    # Of the control's users four in five are easy.
    assert effect.standardised == pytest.approx(0.8 * (0.96 - 0.9) + 0.2 * (0.35 - 0.3))
    assert effect.is_reversed
    assert not effect.differ


def test_at_every_look_a_parts_interval_is_wider_than_once_and_small_parts_wait(
    store: Store, tell: Tell
) -> None:
    told(tell, TWO)
    once, always = (split(store, reading=each).effects[0] for each in ("fixed", "sequential"))
    for narrow, wide in zip(once.parts, always.parts, strict=True):
        assert narrow.interval is not None
        assert wide.interval is not None
        assert wide.interval[0] < narrow.interval[0] < narrow.interval[1] < wide.interval[1]
        assert wide.reason is not None
        assert "too early" in wide.reason


def test_the_decision_and_the_overall_effects_are_those_of_the_whole_report(
    store: Store, tell: Tell
) -> None:
    told(tell, TWO)
    asked = experiment(metrics={"goals": ["thumbs_net"]})
    whole = report(store, asked, as_of=day(9))
    by = report(store, asked, as_of=day(9), segment="language")
    assert (by.metrics, by.decision) == (whole.metrics, whole.decision)
    assert whole.segments is None


def test_an_unknown_segment_is_refused_with_those_there_are(store: Store) -> None:
    with pytest.raises(BadInput) as refused:
        split(store, "horoscope")
    (error,) = refused.value.errors
    assert error.field == "segment"
    assert "no segment 'horoscope'; there are language, editor, client" in error.detail


def test_a_quantile_has_its_parts_and_says_why_they_are_not_tested(
    store: Store, tell: Tell
) -> None:
    told(tell, TWO)
    (effect,) = split(store, metrics={"goals": ["time_to_first_token_p95"]}).effects
    assert (effect.interaction_p, effect.interaction_reason) == (None, "not asked of quantiles")
    assert {part.interval for part in effect.parts} == {None}


def test_parts_and_days_are_asked_for_over_http(running: Running) -> None:
    for name in ("m1", "m2"):
        engine = {"url": "http://127.0.0.1:9/v1"}
        running.http.post("/v1/checkpoints", json={"id": name, "engine": engine})
    variants = [{"key": key, "checkpoint": f"m{at}"} for at, key in enumerate("ab", start=1)]
    running.http.post("/v1/experiments", json={"key": "e1", "variants": variants})
    running.http.post("/v1/experiments/e1/start")
    path = "/v1/experiments/e1/report"
    refused = running.http.get(path, params={"segment": "horoscope"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "segment")
    found = running.http.get(path, params={"segment": "editor", "novelty": True}).json()
    assert found["segments"]["effects"][0]["parts"] == []
    assert found["novelty"][0]["reason"] == "a day has no effect: an arm has fewer than 2 units"
    plain = running.http.get(path).json()
    assert (plain["segments"], plain["novelty"]) == (None, None)
