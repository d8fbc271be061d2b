"""Thumbs in a report: who gives them, what silence may hide, and what a guardrail makes of it."""

from typing import Any

import pytest

from experiments.findings import Feedback
from experiments.report import report
from ingest.store import Store
from tests.experiments.test_report import ARMS, FAR, World, arms_with, experiment, keep


def rated(users: int, ups: tuple[int, int], downs: tuple[int, int]) -> World:
    """A completion a user, of whom so many in each arm give a thumb."""
    made = World()
    for arm, praise, blame in zip(ARMS, ups, downs, strict=True):
        for number in range(users):
            user = f"{arm}{number}"
            made.expose(user, arm)
            made.serve(user, user)
            if number < praise + blame:
                made.vote(user, "completion", user, [int(number < praise)], user)
    return made


def feedback(store: Store, **changes: Any) -> Feedback:
    (found,) = report(store, experiment(**changes), as_of=FAR).metrics[0].comparisons
    assert found.feedback is not None
    return found.feedback


def test_response_and_bounds_are_those_counted_by_hand(store: Store, tmp_path: Any) -> None:
    keep(store, tmp_path, rated(100, (30, 50), (10, 20)).facts)
    found = feedback(store)
    assert found.response == pytest.approx((0.4, 0.7))
    assert found.response_differs
    assert found.approval == pytest.approx((0.75, 50 / 70))
    # Every silent completion may have pleased, or none.
    assert found.manski.control == pytest.approx((0.3, 0.9))
    assert found.manski.treatment == pytest.approx((0.5, 0.8))
    assert found.manski.effect == pytest.approx((0.5 - 0.9, 0.8 - 0.3))
    # Of 70 raters 30 are new: all of them pleased (so 20 of 40 old ones are), or none of them.
    assert found.lee.control == pytest.approx((0.75, 0.75))
    assert found.lee.treatment == pytest.approx((0.5, 1.0))


def test_at_every_look_the_bounds_are_wider_and_a_warning_waits_for_the_burn_in(
    store: Store, tmp_path: Any
) -> None:
    keep(store, tmp_path, rated(100, (30, 50), (10, 20)).facts)
    once, always = feedback(store), feedback(store, reading="sequential")
    for narrow, wide in ((once.manski.ci, always.manski.ci), (once.lee.ci, always.lee.ci)):
        assert narrow is not None
        assert wide is not None
        assert wide[0] < narrow[0] < narrow[1] < wide[1]
    assert not always.response_differs
    assert feedback(store, reading="sequential", alpha=0.01).manski.effect == once.manski.effect


def test_arms_that_are_rated_alike_bring_no_warning(store: Store, tmp_path: Any) -> None:
    keep(store, tmp_path, rated(300, (60, 90), (60, 30)).facts)
    for reading in ("fixed", "sequential"):
        assert not feedback(store, reading=reading).response_differs


def test_what_is_no_thumb_and_the_response_itself_have_no_bounds(
    store: Store, tmp_path: Any
) -> None:
    keep(store, tmp_path, rated(60, (20, 20), (10, 10)).facts)
    asked = experiment(metrics={"goals": ["thumbs_response", "error_rate"]})
    metrics = report(store, asked, as_of=FAR).metrics
    assert [each.comparisons[0].feedback for each in metrics] == [None, None]


@pytest.mark.parametrize(
    ("undone", "safety"), [((20, 20), "safe"), ((60, 66), "open"), ((20, 120), "harm")]
)
def test_a_guardrail_is_safe_harmed_or_open_and_a_goal_is_none_of_it(
    store: Store, tmp_path: Any, undone: tuple[int, int], safety: str
) -> None:
    keep(store, tmp_path, arms_with((30, 150), (300, 300), undone).facts)
    goal, rail = report(store, experiment(), as_of=FAR).metrics
    assert (goal.comparisons[0].safety, rail.comparisons[0].safety) == (None, safety)
