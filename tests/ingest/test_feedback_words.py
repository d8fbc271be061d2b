"""Who has the last word, whatever the order, clock and place it came from."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from ingest._feedback_history import FeedbackHistory, Pending
from ingest.drain import Drain
from ingest.feedback import Feedback
from ingest.intake import Intake
from ingest.store import Store
from ingest.wire import read_one
from tests.facts import fact
from tests.ingest.ratings import now_says, rating, taken_back, word

Say = Callable[..., None]
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


@pytest.fixture
def say(intake: Intake, drain: Drain) -> Say:
    """A function that has facts come from an outbox: received `at`, sent by the client's clock."""

    def saying(
        *facts: dict[str, Any], at: datetime = NOON, sent_at: datetime | None = None
    ) -> None:
        intake.now = lambda: at
        batch = [read_one(json.dumps(each).encode()) for each in facts]
        assert intake.take(batch, sent_at=sent_at).count("rejected") == 0
        while drain.step(timeout_s=0):
            pass

    return saying


@pytest.fixture
def feedback(control: Engine, intake: Intake) -> Feedback:
    return Feedback(control, intake)


def test_what_an_editor_said_offline_does_not_beat_what_was_said_since(
    store: Store, say: Say
) -> None:
    say(word(1, source="/ext/b/1", time=(NOON + hours(1)).isoformat()), at=NOON + hours(1))
    early = word(0, source="/ext/a/1", time=NOON.isoformat())
    say(early, at=NOON + hours(9), sent_at=NOON + hours(9))
    assert now_says(store) == [("ann", 1.0)]
    say(word(0, source="/ext/a/1", time=(NOON + hours(2)).isoformat()), at=NOON + hours(9))
    assert now_says(store) == [("ann", 0.0)]


@pytest.mark.parametrize("wrong", [timedelta(days=-9000), timedelta(days=-1), timedelta(days=900)])
def test_a_wrong_clock_does_not_decide_whose_word_is_the_last(
    store: Store, say: Say, wrong: timedelta
) -> None:
    """Three words, in this order; the middle one from a wrong clock, delivered at the end."""
    middle = word(0, source="/ext/wrong/1", time=(NOON + hours(1) + wrong).isoformat())
    say(word(1, source="/ext/a/1", time=NOON.isoformat()), at=NOON)
    say(middle, at=NOON + hours(5), sent_at=NOON + hours(5) + wrong)
    assert now_says(store) == [("ann", 0.0)]
    last = word(1, source="/ext/b/1", time=(NOON + hours(2)).isoformat())
    say(last, at=NOON + hours(3), sent_at=NOON + hours(3))
    assert now_says(store) == [("ann", 1.0)]


def test_a_clock_that_is_ahead_and_says_no_more_wins_nothing(store: Store, say: Say) -> None:
    say(word(0, source="/ext/ahead/1", time="2099-01-01T00:00:00Z"), at=NOON)
    say(word(1, source="/ext/b/1"), at=NOON + hours(1))
    assert now_says(store) == [("ann", 1.0)]


def test_one_outbox_delivered_out_of_order_ends_with_its_last_sequence(
    store: Store, say: Say
) -> None:
    words = [word(number % 2, sequence=number) for number in range(1, 8)]
    for hour, number in enumerate((7, 3, 5, 1, 6, 2, 4)):
        say(words[number - 1], at=NOON + hours(hour))
    assert now_says(store) == [("ann", 1.0)]
    say(word(0, sequence=2, data={"revision": 2}), at=NOON)
    assert now_says(store) == [("ann", 0.0)]


def test_revisions_of_the_api_and_of_an_editor_are_not_compared(
    store: Store, say: Say, feedback: Feedback, intake: Intake
) -> None:
    intake.now = lambda: NOON
    given = [feedback.give(rating(value), rater="ann").revision for value in (True, False, True)]
    assert given == [1, 2, 3]
    say(word(0, data={"revision": 1}), at=NOON + hours(4))
    assert now_says(store) == [("ann", 0.0)]
    intake.now = lambda: NOON + hours(5)
    assert feedback.give(rating(False, comment="at last"), rater="ann").revision == 4
    say(word(1, data={"revision": 9}, time=NOON.isoformat()), at=NOON + hours(6))
    assert now_says(store) == [("ann", 0.0)]


def test_the_same_feedback_id_on_another_utc_date_stays_one_current_value(
    store: Store, say: Say
) -> None:
    """langfuse-docs#3232: a second score appeared, because the date was part of the key."""
    late = NOON.replace(hour=23, minute=59)
    vote = word(1, id="vote", time=late.isoformat())
    say(vote, at=late)
    say(vote | {"time": (late + hours(1)).isoformat()}, at=late + hours(1))
    assert now_says(store) == [("ann", 1.0)]
    assert store.rows("SELECT count() AS n FROM events FINAL") == [{"n": 1}]
    say(word(0, time=(late + hours(2)).isoformat()), at=late + hours(2))
    assert now_says(store) == [("ann", 0.0)]


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("completion", fact("completion.shown", data={"completion.id": "x"})),
        ("turn", fact("turn.submitted", data={"turn.id": "x"})),
        ("diff", fact("diff.proposed", data={"diff.id": "x"})),
    ],
)
def test_early_feedback_is_pending_until_its_target_comes_years_later(
    store: Store, say: Say, kind: str, target: dict[str, Any]
) -> None:
    early = datetime.now(UTC) - timedelta(days=1000)
    said = {"target": {"kind": kind, "id": "x"}}
    say(word(1, data=said), word(0, data=said, user="bob"), at=early)
    elsewhere = {"completion.id": "y", "turn.id": "y", "diff.id": "y"}
    say(fact("turn.submitted", data=elsewhere), at=early)
    asked = {"turn.id": "x", "asked": True, "propensity": 0.5}
    say(fact("feedback.asked", data=asked), at=early)
    pending = FeedbackHistory(store).pending()
    assert pending.count == 2
    assert 1000 <= pending.oldest_s / 86_400 < 1001
    say(target, at=datetime.now(UTC))
    assert FeedbackHistory(store).pending() == Pending(0, 0)


def test_the_gauge_counts_at_most_once_a_minute(store: Store, say: Say) -> None:
    now = 100.0
    history = FeedbackHistory(store, lambda: now)
    assert history.pending().count == 0
    say(word(1))
    now = 160.0
    assert history.pending().count == 0
    now = 160.1
    assert history.pending().count == 1


def test_withdrawing_ends_what_the_rater_said_elsewhere_before(
    store: Store, say: Say, feedback: Feedback, intake: Intake
) -> None:
    intake.now = lambda: NOON
    given = feedback.give(rating(True), rater="ann")
    say(word(0, id="e"), at=NOON + hours(1))
    assert now_says(store) == [("ann", 0.0)]
    intake.now = lambda: NOON + hours(2)
    feedback.withdraw(given.id)
    say(at=NOON + hours(2))
    assert now_says(store) == []
    assert now_says(store, as_of=NOON + hours(1)) == [("ann", 0.0)]
    say(word(1), at=NOON + hours(3))
    assert now_says(store) == [("ann", 1.0)]


def test_a_withdrawal_holds_though_it_came_first_and_brings_nothing_back(
    store: Store, say: Say
) -> None:
    say(word(0, sequence=1), taken_back("e", sequence=3), at=NOON)
    assert now_says(store) == [("ann", 0.0)]
    say(word(1, id="e", sequence=2), at=NOON + hours(1))
    assert now_says(store) == []
    say(word(1, sequence=4), at=NOON + hours(2))
    assert now_says(store) == [("ann", 1.0)]


def test_a_withdrawal_holds_though_the_clock_went_back(
    store: Store, say: Say, feedback: Feedback, intake: Intake
) -> None:
    intake.now = lambda: NOON
    given = feedback.give(rating(True), rater="ann")
    intake.now = lambda: NOON - hours(24)
    feedback.withdraw(given.id)
    say()
    assert now_says(store) == []
    assert feedback.give(rating(False), rater="ann").revision == 2
    say()
    assert now_says(store) == [("ann", 0.0)]


def test_nobody_withdraws_anothers_rating_by_an_id_they_share(store: Store, say: Say) -> None:
    say(word(1, id="fb-1", source="/ext/a/1"), word(0, id="fb-1", source="/ext/b/1", user="bob"))
    say(taken_back("fb-1", source="/ext/b/2", user="bob"))
    assert now_says(store) == [("ann", 1.0)]


def test_an_installation_without_a_user_is_one_rater_across_its_sessions(
    store: Store, say: Say
) -> None:
    say(word(1, id="e", source="/ext/i/1", user=None), at=NOON)
    say(word(0, source="/ext/i/2", user=None), at=NOON + hours(1))
    assert now_says(store) == [("/ext/i", 0.0)]
