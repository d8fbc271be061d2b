"""What the store knows of feedback: every word of a rating, and whether its target is there."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ingest.errors import NotFound
from ingest.feedback import SOURCE
from ingest.store import Store

_WATCHED_S = 60
_KEY = """
SELECT JSONExtractString(body, 'data', 'target', 'kind') AS kind,
       JSONExtractString(body, 'data', 'target', 'id') AS target,
       JSONExtractString(body, 'data', 'gen_ai.evaluation.name') AS name,
       JSONExtractString(body, 'data', 'rater') AS rater
FROM events FINAL
WHERE source = {source:String} AND startsWith(id, {prefix:String})
  AND type = 'thumbwheel.feedback.submitted.v1'
LIMIT 1
"""
_WORDS = """
SELECT id, source, revision, withdrawal, value, label, explanation, said_at, received_at
FROM feedback_words(as_of = now64(6, 'UTC'))
WHERE (rater, target_kind, target_id, name)
    = ({rater:String}, {kind:String}, {target:String}, {name:String})
ORDER BY said_at, received_at, revision, withdrawal, id
"""
_CURRENT = """
SELECT id, source, revision, value, label FROM current_feedback(as_of = now64(6, 'UTC'))
WHERE (rater, target_kind, target_id, name)
    = ({rater:String}, {kind:String}, {target:String}, {name:String})
"""
_JOINED = """
SELECT 1 FROM events
WHERE type NOT LIKE 'thumbwheel.feedback.%' AND {target:String} = multiIf(
    {kind:String} = 'completion', completion, {kind:String} = 'turn', turn, diff
)
LIMIT 1
"""
_PENDING = """
SELECT count() AS n, min(received_at) AS oldest FROM pending_feedback(as_of = now64(6, 'UTC'))
"""


@dataclass(frozen=True)
class Pending:
    """Current feedback whose target is not stored."""

    count: int
    oldest_s: float
    """How long ago the oldest of it was received; 0 where there is none."""


@dataclass
class FeedbackHistory:
    """Answers from the store, which follows what was acknowledged by about a second."""

    store: Store
    clock: Callable[[], float] = time.monotonic
    _watched: tuple[float, Pending] | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def of(self, feedback_id: str, *, comments: bool) -> Mapping[str, Any]:
        """What counts now, and every word that led to it, by the order in which they were said.

        Raises: NotFound until the rating is queryable, Unavailable.
        """
        keys = self.store.rows(_KEY, source=SOURCE, prefix=f"{feedback_id}-")
        if not keys:
            raise NotFound(f"no feedback {feedback_id} is queryable yet")
        key = keys[0] | {"name": "thumb" if keys[0]["name"] == "user_vote" else keys[0]["name"]}
        words = self.store.rows(_WORDS, **key)
        if not words:  # the store's clock is behind
            raise NotFound(f"no feedback {feedback_id} is queryable yet")
        current = self.store.rows(_CURRENT, **key)
        now = current[0] if current else {"value": None, "label": None, **_newest(words)}
        joined = self.store.rows(_JOINED, kind=key["kind"], target=key["target"])
        return {
            "id": feedback_id,
            "target": {"kind": key["kind"], "id": key["target"]},
            "name": key["name"],
            "rater": key["rater"],
            "value": now["value"],
            "label": now["label"] or None,
            "revision": now["revision"],
            "withdrawn": not current,
            "joined": bool(joined),
            "history": [_word(row, comments=comments) for row in words],
        }

    def pending(self) -> Pending:
        """For a gauge: as counted within the last minute, for counting reads every fact's target.

        Raises: Unavailable.
        """
        with self._lock:
            if self._watched is None or self.clock() - self._watched[0] > _WATCHED_S:
                row = self.store.rows(_PENDING)[0]
                age = datetime.now(UTC) - row["oldest"].replace(tzinfo=UTC)
                oldest_s = max(age.total_seconds(), 0.0) if row["n"] else 0.0
                self._watched = (self.clock(), Pending(row["n"], oldest_s))
            return self._watched[1]


def _newest(words: list[dict[str, Any]]) -> dict[str, Any]:
    return {"revision": max(row["revision"] for row in words)}


def _word(row: Mapping[str, Any], *, comments: bool) -> dict[str, Any]:
    shown = {
        "event": row["id"],
        "source": row["source"],
        "revision": row["revision"],
        "withdrawal": row["withdrawal"],
        "value": row["value"],
        "label": row["label"] or None,
        "said_at": row["said_at"].replace(tzinfo=UTC).isoformat(),
        "received_at": row["received_at"].replace(tzinfo=UTC).isoformat(),
    }
    return shown | {"comment": row["explanation"] or None} if comments else shown
