"""Effects by day since exposure, against units × days tables made in plain Python."""

from random import Random
from typing import Any

import numpy as np
import pytest

from experiments.findings import NoveltyReport
from experiments.report import report
from experiments.stats import Moments, day_correlation, novelty_test, ratio_test
from ingest.store import Store
from tests.experiments.test_report import experiment
from tests.experiments.worlds import Tell, World, day

DAYS = 7


def novelty(store: Store, on: float = 20, goal: str = "error_rate") -> NoveltyReport:
    asked = experiment(metrics={"goals": [goal]})
    (found,) = report(store, asked, as_of=day(on), novelty=True).novelty or ()
    return found


def told(tell: Tell, fade: float) -> dict[str, np.ndarray[Any, Any]]:
    """Errors and completions of each unit on each of its days, by arm.

    In arm b errors begin rarer by half and come back by `fade` a day. Newcomers of the last week,
    completions of the eighth day and units that met both arms are in no table.
    """
    draw, made = Random(11), World()
    tables = {f"{what}{arm}": np.zeros((40, DAYS)) for arm in "ab" for what in ("top", "size")}
    for arm in "ab":
        for number in range(40):
            unit, came = f"{arm}{number}", draw.choice((0, 1.5, 3))
            made.expose(came, unit, arm)
            for since in range(DAYS + 1):
                chance = 0.6 if arm == "a" else min(0.6, 0.1 + fade * since)
                for turn in range(draw.randrange(1, 4)):
                    failed = draw.random() < chance
                    name, on = f"{unit}-{since}-{turn}", came + since + 0.01
                    made.serve(on, unit, name, variant=arm, outcome="error" if failed else "ok")
                    if since < DAYS:
                        tables[f"top{arm}"][number, since] += failed
                        tables[f"size{arm}"][number, since] += 1
        for number in range(5):
            unit = f"late-{arm}{number}"
            made.expose(13.5, unit, arm)
            made.serve(14, unit, unit, variant=arm, outcome="error")
        made.expose(2, "both", arm)
    made.serve(3, "both", "of both", outcome="error")
    made.tell(tell)
    return tables


def test_each_day_and_the_slope_are_those_of_the_units_own_days(store: Store, tell: Tell) -> None:
    t = told(tell, fade=0.08)
    found = novelty(store)
    effects = {
        at: ratio_test(
            Moments.of(t["topa"][:, at], t["sizea"][:, at]),
            Moments.of(t["topb"][:, at], t["sizeb"][:, at]),
        )
        for at in range(DAYS)
    }
    correlation = day_correlation(t["topa"], t["topb"], denominators=(t["sizea"], t["sizeb"]))
    expected = novelty_test(effects, correlation=correlation)
    assert found.units == (40, 40)
    assert [each.effect for each in found.days] == pytest.approx(
        [effects[at].estimate for at in range(DAYS)]
    )
    assert found.slope == pytest.approx(expected.slope.estimate)
    assert found.interval == pytest.approx(expected.slope.ci)
    assert found.trend == expected.trend == "fading"


def test_an_effect_that_stays_has_no_trend(store: Store, tell: Tell) -> None:
    told(tell, fade=0)
    found = novelty(store)
    assert (found.trend, found.reason) == ("none seen", None)
    assert found.slope == pytest.approx(0, abs=0.03)


def test_before_a_week_is_over_there_is_a_reason(store: Store, tell: Tell) -> None:
    told(tell, fade=0)
    found = novelty(store, on=6)
    assert (found.units, found.slope, found.trend) == ((0, 0), None, None)
    assert found.reason == "a day has no effect: an arm has fewer than 2 units"


def test_a_day_counts_what_is_new_on_it(store: Store, tell: Tell) -> None:
    """A thumb belongs to the day it came, its completion to the day it was served."""
    made = World()
    for arm in "ab":
        for number in range(4):
            unit = f"{arm}{number}"
            made.expose(0, unit, arm)
            for since in range(DAYS):
                made.serve(since + 0.1, unit, f"{unit}-{since}", variant=arm)
            made.thumb(3.5, f"{unit}-0", number % 2, rater=unit)
    made.thumb(2.5, "b1-1", 1, rater="b1")
    made.tell(tell)
    found = novelty(store, goal="thumbs_net")
    assert [each.effect for each in found.days[2:5]] == pytest.approx([0.25, 0, None])
    assert found.days[3].interval == pytest.approx((-2.0, 2.0), abs=0.1)
