"""What an operator watches of this room, as `/metrics` shows it. docs/operating.md says what to do."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from prometheus_client import Histogram
from prometheus_client.registry import Collector

from ingest._dead_letters import DeadLetters
from ingest._feedback_history import FeedbackHistory
from ingest.app import Meter
from ingest.drain import GROUP, Batch, Drain
from ingest.intake import Intake
from ingest.log import Log

_ROWS = (1, 10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Batches:
    """A watch of a drain: how large its batches are, and how long the store takes for one."""

    def __init__(self) -> None:
        self._rows = Histogram(
            "thumbwheel_drain_batch_rows", "Facts in one batch.", registry=None, buckets=_ROWS
        )
        self._seconds = Histogram(
            "thumbwheel_insert_seconds",
            "The store took this long for one batch, in seconds.",
            registry=None,
            buckets=_SECONDS,
        )

    def __call__(self, batch: Batch) -> None:
        self._rows.observe(batch.rows)
        self._seconds.observe(batch.seconds)

    @property
    def collectors(self) -> tuple[Collector, ...]:
        return self._rows, self._seconds


def meters_of(
    intake: Intake,
    log: Log,
    *,
    letters: DeadLetters,
    feedback: FeedbackHistory,
    redactions: Mapping[str, int],
) -> list[Meter]:
    """The doors, and what waits in the log and the store."""
    return [*_doors(intake, redactions), *_waiting(log, letters, feedback)]


def _doors(intake: Intake, redactions: Mapping[str, int]) -> list[Meter]:
    return [
        Meter(
            "thumbwheel_events",
            "Events by verdict since start.",
            lambda: dict(intake.counts),
            label="status",
        ),
        Meter(
            "thumbwheel_rejections",
            "Rejected events by kind of reason since start.",
            lambda: dict(intake.rejections),
            label="reason",
        ),
        Meter(
            "thumbwheel_redactions",
            "Secrets replaced in content, by rule, since start.",
            lambda: dict(redactions),
            label="rule",
        ),
    ]


def _waiting(log: Log, letters: DeadLetters, feedback: FeedbackHistory) -> list[Meter]:
    return [
        Meter(
            "thumbwheel_log_lag",
            "Log records the store does not have yet.",
            lambda: {"": log.lag(GROUP)},
            counter=False,
        ),
        Meter(
            "thumbwheel_dead_letters_waiting",
            "Dead letters that no replay has resolved.",
            lambda: {"": letters.counts()["waiting"]},
            counter=False,
        ),
        Meter(
            "thumbwheel_feedback_waiting",
            "Current feedback whose turn, completion or diff is not stored, counted once a minute.",
            lambda: {"": feedback.pending().count},
            counter=False,
        ),
    ]


def drain_meters(
    drain: Drain, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> list[Meter]:
    """A drain in this process."""

    def oldest() -> Mapping[str, float]:
        at = drain.oldest_waiting
        return {"": max(0.0, (now() - at).total_seconds()) if at else 0.0}

    return [
        Meter("thumbwheel_stored", "Facts drained since start.", lambda: {"": drain.stored}),
        Meter(
            "thumbwheel_dead_letters",
            "Records that were no facts since start.",
            lambda: {"": drain.dead},
        ),
        Meter(
            "thumbwheel_oldest_unqueryable_seconds",
            "How long ago the oldest fact in the drain's hands was received.",
            oldest,
            counter=False,
        ),
    ]
