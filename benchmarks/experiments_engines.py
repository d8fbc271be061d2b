"""The same moments and the same looks to our statistics and to those of others.

A rival's time counts only if its answers are ours: p-values and intervals to 1e-9 of their size.
Spotify's solver looks for bounds until the error of each look is within 1e-7 of what it may be, so
its bounds are held to `_BOUND_APART` standard errors.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from tea_tasting import RatioOfMeans
from tea_tasting.aggr import Aggregates

from benchmarks.experiments_rounds import Line, Round, in_turns, measured, peer
from experiments.stats import (
    Boundaries,
    Moments,
    group_sequential_bounds,
    ratio_test,
    relative_interval,
    srm_test,
)
from experiments.stats import group_sequential as sequential

METRICS, SEGMENTS = 50, 20
ARMS = ("control", "a", "b", "c")
LOOKS = tuple(look / 30 for look in range(1, 31))
_ALPHA, _PHI = 0.05, 2.0
_AGREE = 1e-9
_BOUND_APART = 5e-3

Answers = list[list[float]]
"""(p, low, high) of the absolute effect, by metric, segment and treatment."""
Arms = Sequence[Moments]


def samples() -> list[list[Moments]]:
    """The arms of each metric and segment: a ratio per unit, as clicks per view."""
    draw = np.random.default_rng(1)
    return [[_arm(draw, arm) for arm in range(len(ARMS))] for _ in range(METRICS * SEGMENTS)]


def _arm(draw: np.random.Generator, arm: int) -> Moments:
    views = draw.poisson(9, int(draw.integers(800, 1_200))) + 1
    return Moments.of(draw.binomial(views, 0.3 + 0.002 * arm), views)


def lines(gbstats: Path | None, spotify: Path | None) -> Iterator[Line]:
    work = f"{METRICS} metrics × {SEGMENTS} segments × {len(ARMS)} arms"
    cells = samples()
    rounds: dict[str, Round] = {
        "ours": partial(measured, partial(ours, cells)),
        "tea-tasting": partial(measured, partial(tea_tasting, made_for_tea_tasting(cells))),
    }
    expected = ours(cells)
    _agree("tea-tasting", tea_tasting(made_for_tea_tasting(cells)), expected)
    with _growthbook(gbstats, cells, expected) as (name, once):
        taken = in_turns(rounds | ({name: once} if once else {}))
    mine = taken.pop("ours")
    for rival, seconds in taken.items():
        yield Line(work, rival, mine, seconds, bar=20 if rival == name else 1)
    if spotify:
        yield _spotify(spotify)


def ours(cells: Sequence[Arms]) -> Answers:
    """What a report says of each: sample ratio, absolute effect and lift."""
    found: Answers = []
    for control, *treatments in cells:
        srm_test([control.n, *(each.n for each in treatments)], [1] * len(ARMS))
        for each in treatments:
            effect = ratio_test(control, each, alpha=_ALPHA)
            relative_interval(control, each, alpha=_ALPHA)
            assert effect.p_value is not None
            assert effect.ci is not None
            found.append([effect.p_value, *effect.ci])
    return found


_METRIC = RatioOfMeans("x", "y", alternative="two-sided", confidence_level=1 - _ALPHA,
                       equal_var=False, use_t=True)  # fmt: skip


def made_for_tea_tasting(cells: Sequence[Arms]) -> list[list[Aggregates]]:
    return [
        [
            Aggregates(
                count_=each.n,
                mean_={"x": each.mean, "y": each.den_mean},
                var_={"x": each.var, "y": each.den_var},
                cov_={("x", "y"): each.cov},
            )
            for each in arms
        ]
        for arms in cells
    ]


def tea_tasting(cells: Sequence[Sequence[Aggregates]]) -> Answers:
    found: Answers = []
    for control, *treatments in cells:
        for each in treatments:
            effect = _METRIC.analyze_aggregates(control, each)
            found.append([effect.pvalue, effect.effect_size_ci_lower, effect.effect_size_ci_upper])
    return found


@contextmanager
def _growthbook(
    python: Path | None, cells: Sequence[Arms], expected: Answers
) -> Iterator[tuple[str, Round | None]]:
    if python is None:
        yield "", None
        return
    rows = [
        [_row(segment, *named) for segment in range(SEGMENTS)
         for named in zip(ARMS, cells[metric * SEGMENTS + segment], strict=True)]
        for metric in range(METRICS)
    ]  # fmt: skip
    with peer(python, "experiments_gbstats.py", (rows, ARMS)) as rival:
        _agree(rival.version, rival.answers(), expected)
        yield f"{rival.version} analyze_metric_df", rival.once


def _row(segment: int, arm: str, moments: Moments) -> dict[str, object]:
    """Sums of squares, which is what that engine takes."""
    n, top, bottom = moments.n, moments.mean, moments.den_mean
    return {
        "dimension": f"s{segment}", "variation": arm, "users": n, "count": n,
        "main_sum": n * top, "main_sum_squares": (n - 1) * moments.var + n * top**2,
        "denominator_sum": n * bottom,
        "denominator_sum_squares": (n - 1) * moments.den_var + n * bottom**2,
        "main_denominator_sum_product": (n - 1) * moments.cov + n * top * bottom,
    }  # fmt: skip


def _agree(rival: str, theirs: Answers, expected: Answers, within: float = _AGREE) -> None:
    np.testing.assert_allclose(theirs, expected, rtol=within, atol=within, err_msg=rival)


def _spotify(python: Path) -> Line:
    given = {"information": LOOKS, "alpha": _ALPHA, "phi": _PHI}
    with peer(python, "experiments_spotify.py", given) as rival:
        _agree(rival.version, [rival.answers()], [list(_bounds().upper)], within=_BOUND_APART)
        taken = in_turns({"ours": partial(measured, _anew), "theirs": rival.once})
    return Line(f"bounds of {len(LOOKS)} looks", rival.version, taken["ours"], taken["theirs"], 10)


def _bounds() -> Boundaries:
    return group_sequential_bounds(LOOKS, alpha=_ALPHA, spending="power", phi=_PHI, sides=1)


def _anew() -> Boundaries:
    """Without what earlier calls have found."""
    _forget()
    return _bounds()


_forget: Callable[[], None] = sequential._spend.cache_clear  # noqa: SLF001
