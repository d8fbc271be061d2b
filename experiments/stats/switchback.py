"""Experiments that switch everybody at once, block by block of time, since arms share capacity."""

from collections.abc import Sequence
from math import inf, isfinite, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats._asked import Asked
from experiments.stats.effect import Effect, check_alpha
from ingest.errors import BadInput

MIN_WINDOWS = 20
"""Windows that the rarer arm must expect of the design before a normal interval holds, times how
often likelier the other arm's windows are: lopsided designs are skewed. In simulations with skewed
outcomes the interval then missed 3 to 6 % of the time; with half as many windows up to 8 %."""

Floats = NDArray[np.float64]
Arms = NDArray[np.int64]


def block_means(
    block: Sequence[int],
    offset_s: Sequence[float],
    value: Sequence[float],
    *,
    blocks: int,
    wash_in_s: float = 0.0,
) -> Floats:
    """The mean value of each block's events, without those in the first `wash_in_s` of the block.

    `offset_s` is an event's time in seconds since its block began. The wash-in (queues drain, caches
    fill) is cut from every block, also where the arm stays: cut after switches alone, blocks of one
    arm would keep other minutes than those of the other.

    Raises: BadInput if the three differ in length, a number is not finite, an index is not in
    0..blocks - 1, or a block keeps no event.
    """
    if not all(0 <= each < blocks for each in block):
        raise BadInput.of("block", f"must be in 0..{blocks - 1}")
    index, offsets = np.asarray(block, dtype=np.int64), _finite(offset_s, "offset_s")
    values = _finite(value, "value")
    if not len(index) == len(offsets) == len(values):
        raise BadInput.of("value", "needs one block, offset and value for each event")
    if not (isfinite(wash_in_s) and wash_in_s >= 0):
        raise BadInput.of("wash_in_s", f"must be 0 or more seconds, not {wash_in_s}")
    kept = offsets >= wash_in_s
    counts = np.bincount(index[kept], minlength=blocks)
    if not counts.all():
        raise BadInput.of("block", f"block {int(np.argmin(counts))} keeps no event")
    means: Floats = np.bincount(index[kept], values[kept], minlength=blocks) / counts
    return means


def switchback_effect(
    assign: Sequence[int],
    outcome: Sequence[float],
    *,
    carryover: int = 0,
    p: float = 0.5,
    alpha: float = 0.05,
) -> Effect:
    """The effect of always treating against never, per block, where blocks were drawn with `p`.

    Horvitz-Thompson over windows of `carryover` + 1 blocks that were one arm throughout, each by
    its probability; `carryover` is how many blocks later an arm is still felt. The variance sums
    the products of windows that share a block, and is not centred: whatever the blocks' outcomes
    are, it is on average no smaller than the truth's if effects keep their sign. `n_control` and
    `n_treatment` count windows.

    The level of the outcome is noise here: subtract one known before the start, such as last
    week's mean, the same for both arms.

    `method` ends in ", few blocks" if the design expects too few windows for `MIN_WINDOWS` (40
    blocks are enough for p = 0.5, 81 with a carry-over of 1, 162 of 2): the estimate is unbiased all
    the same, but for the p ask `switchback_test`. `reason`, and no numbers, if the variance is not
    above 0.

    Raises: BadInput if the two differ in length, an arm is not 0 or 1, an outcome is not finite,
    `carryover` is negative or leaves no window, or `p` or `alpha` is not in (0, 1).
    Source: I. Bojinov, D. Simchi-Levi & J. Zhao, Management Science 69 (2023) 3759-3777.
    """
    check_alpha(alpha)
    arms, y = _series(assign, outcome, carryover, p)
    treated, untreated = _windows(arms, carryover)
    units = int(untreated.sum()), int(treated.sum())
    terms = y[carryover:] * _contrast(treated, untreated, carryover, p)
    with np.errstate(over="ignore"):
        overlapping = sum(float(terms[lag:] @ terms[:-lag]) for lag in range(1, carryover + 1))
        variance = float(terms @ terms) + 2 * overlapping
    rarer, other = sorted((p ** (carryover + 1), (1 - p) ** (carryover + 1)))
    few = len(terms) * rarer < MIN_WINDOWS * other / rarer
    return _normal(terms, variance, alpha, "switchback, few blocks" if few else "switchback", units)


def switchback_test(
    assign: Sequence[int],
    outcome: Sequence[float],
    *,
    carryover: int = 0,
    p: float = 0.5,
    draws: int = 9_999,
) -> float:
    """Two-sided p of "no block's outcome depends on any arm", exact for any number of blocks.

    The share of schedules whose estimate is at least as far from 0: of all of them, by their
    probability, if there are no more than `draws`, else of `draws` drawn ones and the real one. The
    draws are the same for every call.

    Raises: BadInput as `switchback_effect`, or if `draws` is not in 99..1,000,000.
    Source: R. A. Fisher, The Design of Experiments (1935); Bojinov et al. 2023, section 4.
    """
    if not 99 <= draws <= 1_000_000:
        raise BadInput.of("draws", f"must be in 99..1,000,000, not {draws}")
    arms, y = _series(assign, outcome, carryover, p)
    blocks = len(arms)
    if 2**blocks <= draws:
        schedules = np.arange(2**blocks)[:, None] >> np.arange(blocks) & 1
        ones = schedules.sum(axis=1)
        chances = p**ones * (1 - p) ** (blocks - ones)
        return min(1.0, float(chances[_as_far(schedules, arms, y, carryover, p)].sum()))
    random = np.random.default_rng(0)
    hits, rest = 1, draws
    while rest:  # in pieces, so that a million schedules need no gigabytes
        size = min(rest, max(1, 2_000_000 // blocks))
        schedules = (random.random((size, blocks)) < p).astype(np.int64)
        hits += int(_as_far(schedules, arms, y, carryover, p).sum())
        rest -= size
    return hits / (draws + 1)


def _as_far(schedules: Arms, arms: Arms, y: Floats, carryover: int, p: float) -> NDArray[np.bool_]:
    values = np.abs(_contrast(*_windows(schedules, carryover), carryover, p) @ y[carryover:])
    real = abs(float(_contrast(*_windows(arms, carryover), carryover, p) @ y[carryover:]))
    # Equal sums in another order differ in their last bits, and are equal.
    far: NDArray[np.bool_] = values >= real - 1e-9 * max(real, float(np.abs(y).max()))
    return far


def _windows(arms: Arms, carryover: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which windows, along the last axis, are treated throughout, and which never."""
    views = np.lib.stride_tricks.sliding_window_view(arms, carryover + 1, axis=-1)
    ones = views.sum(axis=-1)
    return ones == carryover + 1, ones == 0


def _contrast(
    treated: NDArray[np.bool_], untreated: NDArray[np.bool_], carryover: int, p: float
) -> Floats:
    size = carryover + 1
    weights: Floats = treated / p**size - untreated / (1 - p) ** size
    return weights


def _series(
    assign: Sequence[int], outcome: Sequence[float], carryover: int, p: float
) -> tuple[Arms, Floats]:
    _check_p(p)
    arms, y = np.asarray(assign), _finite(outcome, "outcome")
    if arms.shape != y.shape:
        raise BadInput.of("outcome", f"{len(y)} outcomes for {len(arms)} blocks")
    if not np.isin(arms, (0, 1)).all():
        raise BadInput.of("assign", "every block's arm must be 0 or 1")
    if not 0 <= carryover < len(arms):
        raise BadInput.of("carryover", f"must be in 0..{len(arms) - 1} blocks, not {carryover}")
    return arms.astype(np.int64), y


def _finite(numbers: ArrayLike, field: str) -> Floats:
    column = np.asarray(numbers, dtype=np.float64)
    if column.ndim != 1 or not np.isfinite(column).all():
        raise BadInput.of(field, "needs one finite number each")
    return column


def _check_p(p: float) -> None:
    if not 1e-9 < p < 1 - 1e-9:
        raise BadInput.of("p", f"must be in (0, 1), not {p}")


def _normal(
    terms: Floats, variance: float, alpha: float, method: str, units: tuple[int, int]
) -> Effect:
    asked = Asked(method, units, alpha)
    if not variance > 0:
        return asked.refuse("the windows' variance is not above 0")
    return asked.answer(float(terms.mean()), sqrt(variance) / len(terms), df=inf)
