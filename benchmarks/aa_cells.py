"""One cell of the A/A matrix: what a test errs, covers and finds on one kind of users."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import get_args

import numpy as np

from benchmarks.aa_answers import (
    ALPHA,
    POWER,
    Answers,
    RatioAnswers,
    ShareAnswers,
    excludes,
    quantile_answers,
)
from benchmarks.aa_histories import Pool, Shape, pool
from experiments.error_rates import LEVELS, ErrorRate, ErrorRates
from experiments.resampling import draw
from experiments.stats import BURN_IN_CONVERSIONS, group_sequential_bounds

METRICS = ("mean", "proportion", "ratio", "p95", "net thumbs")
ICCS = (0.0, 0.1, 0.3)
SPLITS = ("50/50", "95/5")
ARMS = (2, 4)
DAYS, WEEKS = 20, 5
EFFECTS = (0.0, 0.1, 1.0)

_UNITS = 2000
"""Of each treatment arm, and of the control in a 50/50 split."""
_FEW_UNITS = 1000
"""The same of a quantile in a 95/5 split, whose controls take long to sort."""


@dataclass(frozen=True)
class Users:
    """What the metrics of a draw have in common."""

    shape: Shape
    icc: float
    split: str
    arms: int

    def sizes(self, metric: str) -> list[int]:
        """Units of each arm, the control's first."""
        if self.split == "50/50":
            return [_UNITS] * self.arms
        units = _FEW_UNITS if metric == "p95" else _UNITS
        return [units * (20 - self.arms + 1), *[units] * (self.arms - 1)]


@dataclass(frozen=True)
class Cell:
    """`misses` are of 95 % intervals at `EFFECTS`; `lost` is of the effect planned to be found."""

    metric: str
    users: Users
    errors: tuple[ErrorRate, ...]
    ks_p: float | None
    sequence: ErrorRate
    """Any look of the confidence sequence."""
    spending: ErrorRate
    """Any of Lan and DeMets's looks, O'Brien-Fleming type."""
    daily: float
    """Any look of the fixed test: what nobody should do."""
    misses: tuple[ErrorRate, ...]
    lost: ErrorRate
    unanswered: int

    @property
    def faults(self) -> list[str]:
        """What is out of bounds."""
        found = [f"errs at {each.alpha:.0%}" for each in self.errors if not each.within]
        found += [
            f"covers +{effect:.0%}"
            for effect, each in zip(EFFECTS, self.misses, strict=True)
            if not each.within
        ]
        named = {
            "p not uniform": self.ks_p is None or self.ks_p > 0.001,
            "confidence sequence": self.sequence.at_most,
            "Lan-DeMets": self.spending.at_most,
            "power": self.lost.within,
            "no answer": not self.unanswered,
        }
        return found + [name for name, sound in named.items() if not sound]


def groups() -> Iterator[Users]:
    shapes: tuple[Shape, ...] = get_args(Shape)
    for shape, icc, split, arms in product(shapes, ICCS, SPLITS, ARMS):
        yield Users(shape, icc, split, arms)


def cells(users: Users, metrics: Sequence[str], *, replicates: int, seed: int) -> Iterator[Cell]:
    """The users' cells. A seed gives the same cells whichever metrics are asked for."""
    people = _people(users.shape, users.icc)
    if "p95" in metrics:
        random = np.random.default_rng([seed, *_number(users), 1])
        answers = quantile_answers(
            people, users.sizes("p95"), looks=WEEKS, replicates=replicates, random=random
        )
        yield _cell("p95", users, answers)
    if others := [each for each in METRICS if each in metrics and each != "p95"]:
        random = np.random.default_rng([seed, *_number(users), 0])
        histories = [people.histories[each] for each in others]
        drawn = draw(
            histories,
            users.sizes("mean"),
            looks=DAYS,
            replicates=replicates,
            random=random,
            repeat=True,
        )
        for metric, history, moments in zip(others, histories, drawn, strict=True):
            if metric == "proportion":
                yield _cell(metric, users, ShareAnswers(history, moments, seed))
            else:
                yield _cell(metric, users, RatioAnswers(history, moments))


@lru_cache(maxsize=1)
def _people(shape: Shape, icc: float) -> Pool:
    return pool(shape, icc, seed=5)


def _number(users: Users) -> tuple[int, int, int, int]:
    return (
        get_args(Shape).index(users.shape),
        ICCS.index(users.icc),
        SPLITS.index(users.split),
        users.arms,
    )


def _cell(metric: str, users: Users, answers: Answers) -> Cell:
    looks = answers.looks
    fixed = ErrorRates.of(looks.p_value)
    share = isinstance(answers, ShareAnswers)
    return Cell(
        metric=metric,
        users=users,
        errors=tuple(_missed(answers, 0.0, level) for level in LEVELS) if share else fixed.rates,
        # A few dozen conversions have so few p values that they cannot be uniform.
        ks_p=None if share else fixed.ks_p,
        sequence=_sequence(answers),
        spending=_spending(answers),
        daily=fixed.any_look[LEVELS.index(ALPHA)].observed,
        misses=tuple(_missed(answers, effect, ALPHA) for effect in EFFECTS),
        lost=ErrorRate.of(1 - POWER, 1 - answers.finds().mean(axis=1)),
        unanswered=fixed.unanswered,
    )


def _missed(answers: Answers, effect: float, alpha: float) -> ErrorRate:
    missed = excludes(answers.interval(effect, alpha), effect * answers.value)
    return ErrorRate.of(alpha, missed.mean(axis=1))


def _sequence(answers: Answers) -> ErrorRate:
    looks = answers.looks
    # A plan knows its users, not how many of them will be idle, so a quantile's are an average.
    total = round(float((looks.n_control[:, -1] + looks.n_treatment[:, -1]).mean()))
    wrong = looks.anytime_p(total, ALPHA) < ALPHA
    if isinstance(answers, ShareAnswers):
        counts = answers.conversions
        wrong &= np.minimum(counts[..., :1], counts[..., 1:]) >= BURN_IN_CONVERSIONS
    return ErrorRate.of(ALPHA, wrong.any(axis=1).mean(axis=1))


def _spending(answers: Answers) -> ErrorRate:
    """By each look's nominal p, which is how a bound for z serves an interval that is no z's, and
    with the burn-in of the confidence sequence: nobody acts on fewer units."""
    bounds = group_sequential_bounds([week / WEEKS for week in range(1, WEEKS + 1)], alpha=ALPHA)
    step = answers.looks.estimate.shape[1] // WEEKS
    ends = range(step - 1, step * WEEKS, step)
    wrong = [
        excludes(answers.interval(0.0, p_value, look), 0.0) & answers.looks.warm[:, look]
        for look, p_value in zip(ends, bounds.nominal_p, strict=True)
    ]
    return ErrorRate.of(ALPHA, np.any(wrong, axis=0).mean(axis=1))
