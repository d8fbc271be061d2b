"""What units did before is taken off, at every look, and the effect as measured stays beside it."""

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from experiments.findings import Comparison
from experiments.report import report
from experiments.stats import PreMoments, confidence_sequence, cuped
from ingest.store import Store
from tests.experiments.test_report import experiment
from tests.experiments.worlds import Tell, World, day

USERS = 60


def compare(store: Store, **changes: Any) -> Comparison:
    asked = experiment(**{"metrics": {"goals": ["error_rate"]}} | changes)
    (comparison,) = report(store, asked, as_of=day(9)).metrics[0].comparisons
    return comparison


def told(tell: Tell, pasts: int = USERS, lucky: int = 0) -> dict[str, list[tuple[int, int]]]:
    """One completion of every user before and after; (before, after) is 1 for an error.

    Only the first `pasts` of an arm have one before, and of arm b the first `lucky` had no error.
    """
    rng, made = np.random.default_rng(3), World()
    said: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for arm in "ab":
        for number in range(USERS):
            unit, careless = f"{arm}{number}", rng.random() < 0.5
            before, after = (int(rng.random() < (0.85 if careless else 0.1)) for _ in range(2))
            if arm == "b" and number < lucky:
                before = 0
            if number < pasts:
                made.serve(0, unit, f"old-{unit}", drawn=False, outcome=outcome(before))
            made.expose(1, unit, arm)
            made.serve(2, unit, f"new-{unit}", variant=arm, outcome=outcome(after))
            said[arm].append((before, after))
    made.tell(tell)
    return said


def outcome(failed: int) -> str:
    return "error" if failed else "ok"


def test_the_effect_is_that_of_what_the_past_leaves_and_the_measured_one_stays(
    store: Store, tell: Tell
) -> None:
    said = told(tell)
    found = compare(store)
    (x, y), (past, now) = (np.array(said[arm], dtype=float).T for arm in "ab")
    both = np.cov(np.concatenate([x, past]), np.concatenate([y, now]))
    theta = both[0, 1] / both[0, 0]
    left, right = y - theta * x, now - theta * past
    error = np.sqrt((left.var(ddof=1) + right.var(ddof=1)) / USERS)
    plain = np.sqrt((y.var(ddof=1) + now.var(ddof=1)) / USERS)
    assert found.method == "CUPED"
    assert found.effect == pytest.approx(right.mean() - left.mean())
    assert found.interval is not None
    assert found.interval[1] - found.interval[0] == pytest.approx(2 * 1.98 * error, rel=0.01)
    assert found.adjustment is not None
    assert found.adjustment.variance_factor == pytest.approx(error**2 / plain**2)
    assert found.adjustment.variance_factor < 0.8
    measured = scipy_stats.ttest_ind(now, y, equal_var=False)
    assert found.adjustment.effect == pytest.approx(now.mean() - y.mean())
    assert found.adjustment.p_value == pytest.approx(measured.pvalue)
    assert found.adjustment.interval == pytest.approx(tuple(measured.confidence_interval(0.95)))


def test_without_a_past_the_effect_is_as_measured(store: Store, tell: Tell) -> None:
    told(tell, pasts=0)
    found = compare(store)
    assert (found.method, found.adjustment) == ("delta", None)


def test_the_first_few_with_a_past_adjust_already_and_there_is_no_jump(
    store: Store, tell: Tell
) -> None:
    """A threshold would change the estimator between two looks of one sequence."""
    told(tell, pasts=8)
    found = compare(store)
    assert found.adjustment is not None
    assert found.adjustment.note is not None
    assert "86.7% and 86.7%" in found.adjustment.note
    assert found.effect == pytest.approx(found.adjustment.effect, abs=0.05)
    assert found.adjustment.variance_factor > 0.9


def test_arms_that_differed_before_are_named(store: Store, tell: Tell) -> None:
    said = told(tell, lucky=50)
    found = compare(store).adjustment
    assert found is not None
    befores = [[before for before, _ in said[arm]] for arm in "ab"]
    expected = scipy_stats.ttest_ind(*befores, equal_var=False).pvalue
    assert found.imbalance_p == pytest.approx(expected)
    assert found.is_imbalanced


def test_at_all_looks_together_the_adjusted_interval_misses_no_more_than_it_says() -> None:
    """400 experiments without an effect, looked at 12 times; users with a past come late."""
    rng, runs, arm = np.random.default_rng(5), 400, 1200
    looks = np.linspace(200, arm, 12).astype(int)
    missed = 0
    for _ in range(runs):
        past = rng.normal(size=(2, arm))
        now = past + rng.normal(size=(2, arm))
        known = rng.random((2, arm)) < np.linspace(0, 0.9, arm)
        past[~known] = np.nan
        for until in looks:
            pair = [PreMoments.of(now[i, :until], past[i, :until]) for i in (0, 1)]
            effect = cuped(*pair).absolute
            look = confidence_sequence(effect, 2 * until, tuning_n=2 * arm)
            assert look.ci is not None
            if not look.ci[0] <= 0 <= look.ci[1]:
                missed += 1
                break
    assert missed / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("pasts", [1, 3, 10])
def test_few_units_with_a_past_do_not_make_a_difference_where_there_is_none(pasts: int) -> None:
    rng, runs, arm = np.random.default_rng(pasts), 600, 240
    wrong = 0
    for _ in range(runs):
        pair = []
        for _arm in "ab":
            level, turns = rng.normal(size=arm), 1 + rng.poisson(np.exp(rng.normal(1, 0.8, arm)))
            chance = 1 / (1 + np.exp(-level))
            sizes = np.full(arm, np.nan)
            sizes[:pasts] = 1 + rng.poisson(8, pasts)
            past = np.full(arm, np.nan)
            past[:pasts] = rng.binomial(sizes[:pasts].astype(int), chance[:pasts])
            pair.append(
                PreMoments.of(
                    rng.binomial(turns, chance), past, denominators=turns, pre_denominators=sizes
                )
            )
        p_value = cuped(*pair).absolute.p_value
        assert p_value is not None
        wrong += p_value < 0.05
    assert wrong / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
