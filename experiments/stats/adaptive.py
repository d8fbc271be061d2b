"""Valid answers from data whose weights moved with the data, as a bandit's do."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from typing import Literal

from experiments.stats._asked import Asked
from experiments.stats.effect import MOST, Effect, check_alpha
from experiments.stats.moments import Moments
from ingest.errors import BadInput

Method = Literal["bols", "aw-aipw"]


@dataclass(frozen=True)
class BatchMoments:
    """Two arms' units of one batch, with the shares that this batch was randomised by.

    `control_share` and `treatment_share` are the logged propensities of the batch, constant in it
    and set before it from earlier batches alone. `units` counts the batch over all arms.
    """

    control: Moments
    treatment: Moments
    control_share: float
    treatment_share: float
    units: int

    def __post_init__(self) -> None:
        for field in ("control_share", "treatment_share"):
            if not 0 < getattr(self, field) < 1:
                raise BadInput.of(field, "must be in (0, 1): an arm without a chance has no batch")
        if self.control_share + self.treatment_share > 1 + 1e-9:
            raise BadInput.of("treatment_share", "the shares sum to more than 1")
        if not self.control.n + self.treatment.n <= self.units <= MOST:
            raise BadInput.of("units", f"{self.units} in all, but the two arms have more")
        for field in ("control", "treatment"):
            arm: Moments = getattr(self, field)
            if not (isfinite(arm.mean) and 0 <= arm.var < inf):
                raise BadInput.of(field, "every moment must be finite, and no variance negative")
            if arm.n and (arm.den_mean != 1 or arm.den_var):
                raise BadInput.of(field, "must be a mean's moments, not a ratio's")


def adaptive_effect(
    batches: Sequence[BatchMoments], *, method: Method = "bols", alpha: float = 0.05
) -> Effect:
    """Difference of two means, treatment - control, over batches whose shares followed the data.

    A test of the pooled arms errs at 13 % instead of 5 % on a bandit's data, since an arm that
    starts badly gets too few units to recover.

    - "bols": the mean over batches of each batch's own z, so a batch counts by the root of its
      information, whatever it led to. It holds too if the means move in time, as long as their
      difference stays. Batches where an arm has no unit say nothing, but widen the interval.
    - "aw-aipw": scores Y corrected by the propensities and by means of earlier batches, weighted
      by √(e₀e₁/(e₀ + e₁)), which keeps their variance level. Shares must not vanish: keep the
      floor at 1/(10 arms) or more.

    `reason`, and no numbers, if there are fewer than 2 units of an arm in the first batch, or
    neither arm varies.

    Raises: BadInput if there is no batch, `method` is another, or `alpha` is not in (0, 1).
    Sources: K. W. Zhang, L. Janson & S. A. Murphy, NeurIPS 2020, arXiv 2002.03217; V. Hadad, D. A.
    Hirshberg, R. Zhan, S. Wager & S. Athey, PNAS 118 (2021), arXiv 1911.02768.
    """
    check_alpha(alpha)
    if method not in {"bols", "aw-aipw"}:
        raise BadInput.of("method", f"must be bols or aw-aipw, not {method}")
    if not batches:
        raise BadInput.of("batches", "needs one or more")
    units = sum(b.control.n for b in batches), sum(b.treatment.n for b in batches)
    if min(batches[0].control.n, batches[0].treatment.n) < 2:
        reason = "an arm has fewer than 2 units in the first batch"
        return _effect(None, alpha, method, units, reason)
    answer = _bols(batches) if method == "bols" else _aipw(batches)
    return _effect(answer, alpha, method, units, "neither arm varies")


@dataclass(frozen=True)
class _Answer:
    estimate: float
    std_error: float
    df: float


def _bols(batches: Sequence[BatchMoments]) -> _Answer | None:
    # A unit's variance is pooled over batches, within them: one batch may have a single unit.
    var_c, df_c = _pooled([batch.control for batch in batches])
    var_t, df_t = _pooled([batch.treatment for batch in batches])
    if not isfinite(var_c + var_t):
        return _Answer(nan, nan, inf)
    if not var_c + var_t > 0:
        return None
    total = weight = from_control = 0.0
    both = [batch for batch in batches if batch.control.n and batch.treatment.n]
    for batch in both:
        own = var_c / batch.control.n
        variance = own + var_t / batch.treatment.n
        precision = 1 / sqrt(variance)
        total += precision * (batch.treatment.mean - batch.control.mean)
        weight += precision
        from_control += own / variance / len(both)
    df = 1 / (from_control**2 / df_c + (1 - from_control) ** 2 / df_t)
    # All batches count: whether an arm gets a unit at all follows from the data, so leaving starved
    # batches out of the count would be a choice made by them (6 % of errors instead of 5 %).
    return _Answer(total / weight, sqrt(len(batches)) / weight, df)


def _pooled(arms: Sequence[Moments]) -> tuple[float, int]:
    df = sum(arm.n - 1 for arm in arms if arm.n)
    return sum((arm.n - 1) * arm.var for arm in arms if arm.n) / df, df


def _aipw(batches: Sequence[BatchMoments]) -> _Answer | None:
    # The first batch's shares follow no data, so it may be corrected by its own means.
    past_c, past_t = batches[0].control, batches[0].treatment
    scores = []
    for index, batch in enumerate(batches):
        scores.append(_Scores.of(batch, past_c.mean, past_t.mean))
        if index:
            past_c, past_t = past_c + batch.control, past_t + batch.treatment
    total = sum(score.weight * score.units for score in scores)
    estimate = sum(score.weight * score.total for score in scores) / total
    squares = sum(score.weight * score.weight * score.squares_about(estimate) for score in scores)
    return _Answer(estimate, sqrt(squares) / total, inf) if squares > 0 else None


@dataclass(frozen=True)
class _Scores:
    """The doubly robust scores of a batch's units: how many, their weight, their spread by group."""

    units: int
    weight: float
    groups: tuple[tuple[int, float, float], ...]  # count, mean, variance (n - 1)

    @classmethod
    def of(cls, batch: BatchMoments, control: float, treatment: float) -> "_Scores":
        e_c, e_t = batch.control_share, batch.treatment_share
        gap = treatment - control
        c, t = batch.control, batch.treatment
        groups = (
            (c.n, gap - (c.mean - control) / e_c, c.var / e_c / e_c),
            (t.n, gap + (t.mean - treatment) / e_t, t.var / e_t / e_t),
            (batch.units - c.n - t.n, gap, 0.0),
        )
        kept = tuple(group for group in groups if group[0])
        return cls(batch.units, sqrt(e_c * e_t / (e_c + e_t)), kept)

    @property
    def total(self) -> float:
        return sum(count * mean for count, mean, _ in self.groups)

    def squares_about(self, centre: float) -> float:
        return sum(
            (count - 1) * variance + count * (mean - centre) * (mean - centre)
            for count, mean, variance in self.groups
        )


def _effect(
    answer: _Answer | None, alpha: float, method: str, units: tuple[int, int], reason: str
) -> Effect:
    asked = Asked(method, units, alpha)
    if answer is None:
        return asked.refuse(reason)
    return asked.answer(answer.estimate, answer.std_error, df=answer.df)
