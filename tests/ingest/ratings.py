"""Ratings of one target, and what the store makes of them."""

from datetime import UTC, datetime
from typing import Any

from ingest.feedback import Rating
from ingest.store import Store
from tests.facts import fact

TARGET = {"kind": "completion", "id": "cmpl-1"}


def word(value: float, *, data: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A vote of ann's, from an editor."""
    body = {"target": TARGET, "gen_ai.evaluation.score.value": value} | (data or {})
    return fact("feedback.submitted", user="ann", time=None, data=body) | changes


def taken_back(id: str, **changes: Any) -> dict[str, Any]:
    return fact("feedback.withdrawn", user="ann", time=None, data={"supersedes": id}) | changes


def rating(value: object = True, **changes: Any) -> Rating:
    return Rating.model_validate({"target": TARGET, "value": value, **changes})


def now_says(store: Store, *, as_of: datetime | None = None) -> list[tuple[str, float]]:
    rows = store.rows(
        "SELECT rater, value FROM current_feedback(as_of = {as_of:DateTime64(6, 'UTC')}) "
        "ORDER BY rater",
        as_of=as_of or datetime(2100, 1, 1, tzinfo=UTC),
    )
    return [(row["rater"], row["value"]) for row in rows]
