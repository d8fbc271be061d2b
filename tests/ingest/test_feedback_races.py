"""Ratings given at the same time, and ratings whose giving broke off."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine

from ingest.control import writing
from ingest.drain import Drain
from ingest.errors import Conflict, Unavailable
from ingest.feedback import Feedback
from ingest.intake import Intake
from ingest.log import Entry, Log
from ingest.store import Store
from tests.ingest.ratings import now_says, rating


@pytest.fixture
def feedback(control: Engine, intake: Intake) -> Feedback:
    return Feedback(control, intake)


def stored(drain: Drain) -> None:
    while drain.step(timeout_s=0):
        pass


def test_sixteen_at_once_make_revisions_without_a_gap_and_the_last_is_current(
    store: Store, drain: Drain, feedback: Feedback
) -> None:
    def give(number: int) -> tuple[int, int]:
        return feedback.give(rating(number), rater="ann").revision, number

    with ThreadPoolExecutor(16) as threads:
        given = dict(threads.map(give, range(64)))
    assert sorted(given) == list(range(1, 65))
    stored(drain)
    assert now_says(store) == [("ann", float(given[64]))]
    rows = store.rows(
        "SELECT revision FROM feedback_words(as_of = {as_of:DateTime64(6, 'UTC')}) ORDER BY revision",
        as_of=datetime(2100, 1, 1, tzinfo=UTC),
    )
    assert [row["revision"] for row in rows] == sorted(given)


def test_a_rating_given_again_after_a_crash_before_the_commit_is_one_fact(
    store: Store, drain: Drain, feedback: Feedback, control: Engine
) -> None:
    first = feedback.give(rating(True), rater="ann")
    stored(drain)
    with writing(control) as connection:
        connection.exec_driver_sql("DELETE FROM feedback")
    assert feedback.give(rating(True), rater="ann") == first
    # As in a process that starts again, and remembers nothing.
    again = Feedback(control, Intake(feedback.intake.log, store))
    with writing(control) as connection:
        connection.exec_driver_sql("DELETE FROM feedback")
    assert again.give(rating(True), rater="ann") == first
    stored(drain)
    assert store.rows("SELECT count() AS n FROM events FINAL") == [{"n": 1}]
    with writing(control) as connection:
        connection.exec_driver_sql("DELETE FROM feedback")
    again.give(rating(False), rater="ann")
    stored(drain)
    assert now_says(store) == [("ann", 0.0)]


@dataclass
class MoodyLog:
    """A log that is away while `away`."""

    log: Log
    away: bool = True

    def append(self, entries: Sequence[Entry]) -> str:
        if self.away:
            raise Unavailable("the log is away")
        return self.log.append(entries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


def test_a_rating_the_log_did_not_take_is_not_given_and_its_link_not_used(
    control: Engine, log: Log, store: Store
) -> None:
    moody: Any = MoodyLog(log)
    feedback = Feedback(control, Intake(moody, store))
    with ThreadPoolExecutor(8) as threads:
        failed = [
            threads.submit(feedback.give, rating(number), rater="ann", link="l")
            for number in range(8)
        ]
    assert all(isinstance(each.exception(), Unavailable) for each in failed)
    moody.away = False
    assert feedback.give(rating(9), rater="ann", link="l").revision == 1


def test_one_used_link_fails_none_of_those_that_came_with_it(feedback: Feedback) -> None:
    feedback.give(rating(True), rater="ann", link="l")

    def give(number: int) -> str:
        link = "l" if number % 2 else None
        rater = "ann" if number % 2 else f"rater {number}"
        try:
            return str(feedback.give(rating(False), rater=rater, link=link).revision)
        except Conflict:
            return "used"

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(give, range(32))) == ["1", "used"] * 16
