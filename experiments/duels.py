"""Which checkpoint raters prefer, from what they said of two completions shown side by side.

A preference is feedback on the completion shown first. Its name is `preference/` and the id of the
completion shown second; its value is "first", "second", "tie" or "both_bad". A rater's last word on
a pair counts, in whichever order the two were shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import numpy as np

from experiments._duel_sql import JUDGED
from experiments.stats import (
    Duels,
    Effect,
    Ranking,
    bradley_terry,
    clustered_sign_test,
    holm,
    sign_test,
    student_p,
)
from experiments.stats.effect import student_quantile
from experiments.stats.pairwise import Outcome
from ingest.errors import BadInput
from ingest.store import Store

PREFIX = "preference/"
JudgedBy = Literal["human", "model", "code"]

_ALPHA = 0.05
_OUTCOMES = get_args(Outcome)


@dataclass(frozen=True)
class RankedCheckpoint:
    """`log_strength` is the log odds of being preferred to the reference, with an interval and p of
    that one comparison; `adjusted_p` is Holm's over all of them. All `rank_interval` hold at once.
    """

    checkpoint: str
    duels: int
    both_bad_share: float | None
    rank: int | None
    rank_interval: tuple[int, int] | None
    log_strength: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    adjusted_p: float | None


@dataclass(frozen=True)
class ShownFirst:
    """The log odds that a place in front is worth between equals, or why they cannot be told."""

    log_odds: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    reason: str | None


@dataclass(frozen=True)
class SignTest:
    """Of two checkpoints: (preferred to the control - not) ÷ all duels, ties among all."""

    control: str
    treatment: str
    wins: int
    losses: int
    ties: int
    both_bad: int
    estimate: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    method: str
    reason: str | None


@dataclass(frozen=True)
class DuelReport:
    """Where `reason` is not None there is no ranking; it says why."""

    as_of: str
    judged_by: JudgedBy
    alpha: float
    reference: str | None
    duels: int
    raters: int
    simulated: bool
    left_out: Mapping[str, int]
    """Words that are no duel yet or never: not stored, the same checkpoint twice, another word."""
    checkpoints: tuple[RankedCheckpoint, ...]
    shown_first: ShownFirst | None
    sign_test: SignTest | None
    method: str | None
    reason: str | None


@dataclass(frozen=True)
class _Judged:
    """Duels that count, a row each."""

    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]

    @property
    def raters(self) -> list[str]:
        return [row["rater"] for row in self.rows]

    def ranked(self, reference: int) -> tuple[Ranking, ShownFirst]:
        """The order of showing is taken out where it can be told from the strengths."""
        number = {name: at for at, name in enumerate(self.names)}
        duels = Duels.of(
            [number[row["first"]] for row in self.rows],
            [number[row["second"]] for row in self.rows],
            [row["outcome"] for row in self.rows],
            items=len(self.names),
        )
        ones = np.ones((len(self.rows), 1))
        placed = bradley_terry(
            duels, covariates=ones, clusters=self.raters, reference=reference, alpha=_ALPHA
        )
        if placed.covariates and placed.covariate_errors:
            worth, error = placed.covariates[0], placed.covariate_errors[0]
            reach = student_quantile(_ALPHA, placed.df) * error
            p_value = student_p(worth / error, placed.df)
            return placed, ShownFirst(worth, (worth - reach, worth + reach), p_value, None)
        plain = bradley_terry(duels, clusters=self.raters, reference=reference, alpha=_ALPHA)
        return plain, ShownFirst(None, None, None, placed.reason)

    def signs(self, reference: int) -> SignTest | None:
        if len(self.names) != 2:
            return None
        treatment = self.names[1 - reference]
        signs = [_sign(row, treatment) for row in self.rows]
        bad = sum(row["outcome"] == "both_bad" for row in self.rows)
        wins, losses = signs.count(1), signs.count(-1)
        raters = self.raters
        effect = (
            clustered_sign_test(signs, raters, alpha=_ALPHA)
            if len(set(raters)) < len(raters)
            else sign_test(wins, losses, signs.count(0), alpha=_ALPHA)
        )
        return SignTest(
            control=self.names[reference],
            treatment=treatment,
            wins=wins,
            losses=losses,
            ties=signs.count(0) - bad,
            both_bad=bad,
            estimate=effect.estimate,
            interval=effect.ci,
            p_value=effect.p_value,
            method=effect.method,
            reason=effect.reason,
        )


def duel_report(
    store: Store,
    *,
    as_of: datetime | None = None,
    judged_by: JudgedBy = "human",
    reference: str | None = None,
) -> DuelReport:
    """The checkpoints in order of preference, from words received until `as_of` (now).

    Judges are drawn as wholes: errors are clustered by rater. Without a `reference` strengths are
    relative to the checkpoint with the most duels.

    Raises: BadInput for a reference that no duel has, Unavailable.
    """
    at = as_of or datetime.now(UTC)
    rows = store.rows(JUDGED, prefix=PREFIX, as_of=at, judged_by=judged_by)
    counting, left_out = _sorted_out(rows)
    judged = _Judged(
        counting, sorted({row[end] for row in counting for end in ("first", "second")})
    )
    chosen = _reference(judged, reference)
    ranking, place = judged.ranked(chosen) if judged.names else (None, None)
    return DuelReport(
        as_of=at.isoformat(),
        judged_by=judged_by,
        alpha=_ALPHA,
        reference=judged.names[chosen] if judged.names else None,
        duels=len(counting),
        raters=len(set(judged.raters)),
        simulated=any(row["simulated"] for row in counting),
        left_out=left_out,
        checkpoints=_checkpoints(judged.names, ranking, chosen) if ranking else (),
        shown_first=place,
        sign_test=judged.signs(chosen),
        method=ranking.method if ranking else None,
        reason=ranking.reason if ranking else "nobody has compared two checkpoints yet",
    )


def _sorted_out(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], dict[str, int]]:
    left_out = {"not_stored": 0, "same_checkpoint": 0, "unknown_word": 0}
    counting = []
    for row in rows:
        if row["outcome"] not in _OUTCOMES:
            left_out["unknown_word"] += 1
        elif not (row["first"] and row["second"]):
            left_out["not_stored"] += 1
        elif row["first"] == row["second"]:
            left_out["same_checkpoint"] += 1
        else:
            counting.append(row)
    return counting, left_out


def _reference(judged: _Judged, wanted: str | None) -> int:
    if wanted is None:
        often = [
            sum(name in {row["first"], row["second"]} for row in judged.rows)
            for name in judged.names
        ]
        return often.index(max(often)) if often else 0
    if wanted not in judged.names:
        there = ", ".join(judged.names) or "none"
        raise BadInput.of("reference", f"no duel has {wanted[:100]!r}; there are {there}")
    return judged.names.index(wanted)


def _sign(row: Mapping[str, Any], treatment: str) -> int:
    if row["outcome"] not in {"first", "second"}:
        return 0
    return 1 if row[row["outcome"]] == treatment else -1


def _checkpoints(
    names: Sequence[str], ranking: Ranking, reference: int
) -> tuple[RankedCheckpoint, ...]:
    """The strongest first; by name where there is no order."""
    effects: dict[int, Effect] = {}
    adjusted: dict[int, float | None] = {}
    if ranking.reason is None:
        effects = {
            at: ranking.compare(reference, at) for at in range(len(names)) if at != reference
        }
        adjusted = dict(zip(effects, holm(e.p_value for e in effects.values()), strict=True))

    def described(at: int) -> RankedCheckpoint:
        own = effects.get(at)
        return RankedCheckpoint(
            checkpoint=names[at],
            duels=round(ranking.duels[at]),
            both_bad_share=ranking.both_bad_share[at],
            rank=ranking.rank[at] if ranking.rank else None,
            rank_interval=ranking.rank_interval[at] if ranking.rank_interval else None,
            log_strength=ranking.log_strength[at] if ranking.log_strength else None,
            interval=own.ci if own else None,
            p_value=own.p_value if own else None,
            adjusted_p=adjusted.get(at),
        )

    found = [described(at) for at in range(len(names))]
    return tuple(sorted(found, key=lambda each: (each.rank or 0, each.checkpoint)))
