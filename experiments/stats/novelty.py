"""Does the effect fade or grow as users get used to it?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats._asked import Asked
from experiments.stats.effect import TOO_LARGE, Effect, known
from ingest.errors import BadInput

Trend = Literal["fading", "growing", "none seen"]
Column = NDArray[np.float64]

# Below this share of its terms what is left of a variance is rounding.
_ROUNDING = 1e-13

MIN_DAYS = 3
"""Days below which a slope is only a difference."""


@dataclass(frozen=True)
class Novelty:
    """The effect by day since exposure, and its slope per day.

    `trend` is "fading" (novelty) or "growing" (learning) against the fitted effect of the first
    day, where the slope is significant; "none seen" is no proof that there is none. None where
    the slope has a reason.
    """

    days: tuple[tuple[int, Effect], ...]
    slope: Effect
    trend: Trend | None


def novelty_test(
    days: Mapping[int, Effect], *, correlation: ArrayLike | None = None, alpha: float = 0.05
) -> Novelty:
    """Slope of the effect over days since each unit's own first exposure (0 is the first day).

    Every day must be of the same cohort: units that were exposed long enough ago for all the days,
    each counted on every day, idle ones with 0. By calendar day the cohorts would be mixed, and
    their sizes differ: `reason`. The line is weighted by 1 / variance. `correlation` is that of the
    days' effects, in the order of the days, see `day_correlation`; without it days are taken as
    independent, though a unit is in all of them: too careful if users only differ in level, but not
    careful enough if they drift apart. df is the smallest of the days'.

    `reason`, and no numbers, if a day has one, or there are fewer than `MIN_DAYS`.
    Raises: BadInput if `alpha` is not in (0, 1), a day is negative, effects are relative or no
    finite estimates with a positive error, or `correlation` is no correlation matrix of the days.
    Source: H. Hohnhold, D. O'Brien & D. Tang, KDD 2015 (cohorts by tenure).
    """
    order = tuple(sorted(days.items()))
    effects = [effect for _, effect in order]
    if order and order[0][0] < 0:
        raise BadInput.of("days", f"count from exposure, 0 and later, not {order[0][0]}")
    if any(effect.scale != "absolute" for effect in effects):
        raise BadInput.of("days", "effects must be absolute")
    units = (effects[0].n_control, effects[0].n_treatment) if effects else (0, 0)
    together = "independent days" if correlation is None else "correlated days"
    asked = Asked(f"slope, {together}", units, alpha)
    matrix = np.eye(len(order)) if correlation is None else _correlation(correlation, len(order))
    if reason := _unfit(effects):
        return Novelty(order, asked.refuse(reason), None)
    with np.errstate(all="ignore"):
        return _line(order, matrix, asked)


def day_correlation(
    control: ArrayLike,
    treatment: ArrayLike,
    *,
    denominators: tuple[ArrayLike, ArrayLike] | None = None,
) -> Column:
    """The correlation of the days' effects, from units x days tables of both arms.

    For a ratio metric the tables hold numerators and `denominators` the other half; idle days are
    0 in both. Raises: BadInput if shapes differ, a number is not finite, an arm has fewer than 2
    units or a day on which nothing varies or no denominator is above 0.
    """
    tables = _table(control, "control"), _table(treatment, "treatment")
    if tables[0].shape[1] != tables[1].shape[1]:
        raise BadInput.of("treatment", "must have the control's days")
    bottoms = tuple(map(np.ones_like, tables))
    if denominators is not None:
        bottoms = tuple(_table(each, "denominators") for each in denominators)
    with np.errstate(all="ignore"):
        covariance = _days_covariance(tables, bottoms)
    scale = np.sqrt(np.diag(covariance))
    if not (np.isfinite(covariance).all() and (scale > 0).all()):
        raise BadInput.of("control", "nothing varies on a day, or a number is too large")
    return np.asarray(covariance / np.outer(scale, scale))


def _days_covariance(tables: Sequence[Column], bottoms: Sequence[Column]) -> Column:
    covariance = np.zeros((tables[0].shape[1],) * 2)
    for top, bottom in zip(tables, bottoms, strict=True):
        if top.shape != bottom.shape:
            raise BadInput.of("denominators", "must be as many as the numerators")
        mean = bottom.mean(axis=0)
        if not (mean > 0).all():
            raise BadInput.of("denominators", "a day has none above 0")
        linear = (top - top.mean(axis=0) / mean * bottom) / mean
        covariance += np.cov(linear, rowvar=False) / len(top)
    return covariance


def _line(order: tuple[tuple[int, Effect], ...], matrix: Column, asked: Asked) -> Novelty:
    at = np.array([day for day, _ in order], dtype=np.float64)
    sizes = np.array([effect.estimate for _, effect in order], dtype=np.float64)
    errors = np.array([effect.std_error for _, effect in order], dtype=np.float64)
    weights = errors**-2 / (errors**-2).sum()
    centred = at - weights @ at
    contrast = weights * centred / (weights @ centred**2)
    variance = float(contrast @ (matrix * np.outer(errors, errors)) @ contrast)
    if not np.isfinite(contrast).all():
        return Novelty(order, asked.refuse(TOO_LARGE), None)
    if variance <= _ROUNDING * (contrast**2 @ errors**2):
        return Novelty(order, asked.refuse("the slope does not vary"), None)
    df = min(effect.df for _, effect in order if effect.df is not None)
    slope = asked.answer(float(contrast @ sizes), sqrt(variance), df=df)
    if slope.reason:
        return Novelty(order, slope, None)
    first = float(weights @ sizes + (contrast @ sizes) * centred[0])
    return Novelty(order, slope, _trend(slope, first))


def _unfit(effects: list[Effect]) -> str | None:
    if len(effects) < MIN_DAYS:
        return f"fewer than {MIN_DAYS} days"
    if reasons := [effect.reason for effect in effects if known(effect) is None]:
        return f"a day has no effect: {reasons[0]}"
    if len({(effect.n_control, effect.n_treatment) for effect in effects}) > 1:
        return "the days differ in units, so a slope would mix cohorts"
    return None


def _trend(slope: Effect, first: float) -> Trend:
    if slope.p_value is None or slope.estimate is None or slope.p_value >= slope.alpha:
        return "none seen"
    return "fading" if slope.estimate * first < 0 else "growing"


def _correlation(numbers: ArrayLike, days: int) -> Column:
    matrix = np.asarray(numbers, dtype=np.float64)
    # Rounding of a measured matrix; a matrix of covariances is off by far more.
    fit = (
        matrix.shape == (days, days)
        and np.isfinite(matrix).all()
        and np.allclose(matrix, matrix.T, atol=1e-9)
        and np.allclose(np.diag(matrix), 1, atol=1e-9)
        and (np.linalg.eigvalsh(matrix) > -1e-9).all()
    )
    if not fit:
        raise BadInput.of("correlation", f"must be a correlation matrix of {days} days")
    return matrix


def _table(numbers: ArrayLike, field: str) -> Column:
    table = np.asarray(numbers, dtype=np.float64)
    if table.ndim != 2 or len(table) < 2 or not np.isfinite(table).all():
        raise BadInput.of(field, "2 or more units x days, every number finite")
    return table
