"""What a scan of the facts found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from experiments.stats import Moments
from experiments.stats.cuped import PreMoments
from experiments.stats.feedback import FeedbackCounts
from experiments.stats.quantiles import QuantileSummary


@dataclass(frozen=True)
class Sample:
    """One metric over the units of one arm, ready for the tests of `experiments.stats`.

    `moments` are the numerator's and denominator's, the numerator capped where the metric has a cap.
    A quantile has a `quantile` and no `pre`, and its `moments` are of each unit's events at or below
    the quantile and of all its events.
    """

    moments: Moments
    pre: PreMoments | None = None
    """The same with what the units' facts before their first exposure add up to, never capped."""
    feedback: FeedbackCounts | None = None
    """Up, down and completions; a unit with more thumbs than completions has as many as thumbs."""
    quantile: QuantileSummary | None = None
    uncapped: Moments | None = None
    cap: float | None = None
    capped: int = 0
    """Units above the cap."""
    sums: tuple[tuple[float, float], ...] = ()
    """Numerator and denominator of every unit, where they are fewer than 50, for `cr2_test`."""


@dataclass(frozen=True)
class ArmMoments:
    """One arm: how many units met it, and the moments of each metric over them.

    `moments` leaves out quantiles, for which no mean stands; they are among the `samples`.
    """

    variant: str
    units: int
    moments: Mapping[str, Moments]
    samples: Mapping[str, Sample] = field(default_factory=dict)
    received: Mapping[str, int] = field(default_factory=dict)
    """Units by the arm that served them first, which a fallback makes another than the assigned."""


Arms = Mapping[str, ArmMoments]


@dataclass(frozen=True)
class Reading:
    """What the facts say as of a time."""

    arms: Arms
    excluded_units: int
    """Units that met two arms; they count in none."""
    newest_fact: datetime | None
    """Of the whole store: how fresh it is, also where an experiment has no unit yet."""
    simulated: bool
    excluded: Mapping[str, int] = field(default_factory=dict)
    """The excluded units by the arm they met first: it must not depend on the arm."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """Units that no draw put in an arm, by reason: pinned, fallback, holdout. Never in `arms`."""
    segments: Mapping[str, Arms] = field(default_factory=dict)
    """The arms of each part, if a segment was asked for; "" are units of which nothing is known."""

    @property
    def excluded_share(self) -> float:
        """Of the units that a draw put in an arm, 0 to 1; above 0.01 something is wrong with ids."""
        met = self.excluded_units + sum(arm.units for arm in self.arms.values())
        return self.excluded_units / met if met else 0.0
