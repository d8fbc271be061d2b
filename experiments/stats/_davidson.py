"""The likelihood of Bradley and Terry's model with Davidson's ties, and where it has no maximum."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

Column = NDArray[np.float64]
Index = NDArray[np.intp]

_ROUNDS = 60
# In log odds: far above rounding, far below what a standard error shows.
_SETTLED = 1e-9
# A step of this size that gains nothing goes along a likelihood that has no top.
_ADRIFT = 1e-4
# A standard error in log odds that no duels leave; the fit stopped where chances round to 1.
_LOST = 1e3
# A direction that holds less than this share of the information is not told from the others.
_ALIKE = 1e-10


@dataclass(frozen=True, eq=False)
class Cells:
    """Duels of one pair (`first` < `second`) and one row of covariates, counted by outcome.

    `drawn` is 1 where a tie is an outcome, 0 in the pseudo-comparisons, which know none.
    """

    first: Index
    second: Index
    won: Column
    lost: Column
    tied: Column
    covariates: Column
    drawn: Column

    @cached_property
    def total(self) -> Column:
        return self.won + self.lost + self.tied

    def design(self, items: int, reference: int) -> Column:
        """The log odds of `first` against `second`, as a row on strengths and covariates."""
        rows = np.arange(len(self.first))
        strengths = np.zeros((len(rows), items))
        strengths[rows, self.first] = 1.0
        strengths[rows, self.second] = -1.0
        return np.hstack([np.delete(strengths, reference, axis=1), self.covariates])


@dataclass(frozen=True, eq=False)
class Fit:
    """Parameters (strengths but the reference's, covariates, log ν if there are ties).

    `inverse` is the inverse information; `by_odds` and `by_ties` are the expected scores per duel
    of a cell: (P(won) - P(lost)) / 2 and P(tied).
    """

    parameters: Column
    inverse: Column
    by_odds: Column
    by_ties: Column


def fit(cells: Cells, design: Column) -> Fit | str:
    """Newton's maximum, or the reason why there is none."""
    ties = bool(cells.tied.any())
    width = design.shape[1]
    beta = np.zeros(width + ties)
    if ties:
        beta[-1] = np.log(2 * cells.tied.sum() / (cells.won.sum() + cells.lost.sum()))
    at = _Point.of(cells, design, beta, ties=ties)
    if not _told_apart(at.information):
        return "a covariate cannot be told from the strengths or from another one"
    for _ in range(_ROUNDS):
        try:
            step = np.linalg.solve(at.information, at.gradient)
        except np.linalg.LinAlgError:
            break
        reach = float(np.abs(design @ step[:width]).max()) + float(np.abs(step[width:]).sum())
        if not np.isfinite(reach):
            break
        scale = 1.0
        moved = _Point.of(cells, design, beta + step, ties=ties)
        while moved.likelihood < at.likelihood and scale * reach > _SETTLED:
            scale /= 2
            moved = _Point.of(cells, design, beta + scale * step, ties=ties)
        beta, at = beta + scale * step, moved
        if scale * reach <= _SETTLED:
            inverse = np.asarray(np.linalg.inv(at.information), np.float64)
            error = np.sqrt(np.diag(inverse)[:width]) * np.abs(design).max(axis=0)
            if reach > _ADRIFT or error.max() > _LOST:
                break
            return Fit(beta, inverse, at.by_odds, at.by_ties)
    return "a covariate alone decides who wins, so its coefficient has no maximum"


@dataclass(frozen=True, eq=False)
class _Point:
    likelihood: float
    gradient: Column
    information: Column
    by_odds: Column
    by_ties: Column

    @classmethod
    def of(cls, cells: Cells, design: Column, beta: Column, *, ties: bool) -> "_Point":
        width = design.shape[1]
        odds = design @ beta[:width]
        # Over sqrt(π_i π_j) the three outcomes weigh e^(η/2), e^(-η/2) and ν.
        tie = cells.drawn * np.exp(beta[-1]) if ties else np.zeros_like(odds)
        top = np.abs(odds) / 2
        scaled = np.exp(odds / 2 - top), np.exp(-odds / 2 - top), tie * np.exp(-top)
        whole = scaled[0] + scaled[1] + scaled[2]
        won, lost, tied = (part / whole for part in scaled)
        gap = (won - lost) / 2
        likelihood = float(
            ((cells.won - cells.lost) * odds / 2 - cells.total * (top + np.log(whole))).sum()
        )
        gradient = design.T @ ((cells.won - cells.lost) / 2 - cells.total * gap)
        # Var of ±1/2 or 0, without the difference that would cancel.
        spread = cells.total * (tied * (won + lost) / 4 + won * lost)
        information = (design.T * spread) @ design
        if ties:
            likelihood += float(cells.tied.sum() * beta[-1])
            gradient = np.append(gradient, (cells.tied - cells.total * tied).sum())
            cross = -design.T @ (cells.total * gap * tied)
            corner = (cells.total * tied * (1 - tied)).sum()
            information = np.pad(information, (0, 1))
            information[-1, :-1] = information[:-1, -1] = cross
            information[-1, -1] = corner
        return cls(likelihood, gradient, information, gap, tied)


def _told_apart(information: Column) -> bool:
    scale = np.sqrt(np.diag(information))
    if not (scale > 0).all():
        return False
    return bool(np.linalg.eigvalsh(information / np.outer(scale, scale))[0] > _ALIKE)


def no_maximum(won: Column, tied: Column) -> str | None:
    """Why strengths have no finite estimates, from who beat whom at least once; else None.

    Source: L. R. Ford, Am. Math. Monthly 64 (1957) 28-33 for wins. With ties ν may grow along with
    the strengths' gaps unless wins outnumber ties around some circle.
    """
    if not (won.any() or tied.any()):
        return "there are no duels"
    beaten = (won > 0) | (tied > 0)
    if not _all_reach_all(beaten):
        return _parted(beaten)
    if not won.any():
        return "every duel was a tie"
    if tied.any() and not ((won > 0) & (won.T > 0)).any() and not _circle(won, tied):
        return "wins go one way only, so ties and strengths are not told apart: separation"
    return None


def _all_reach_all(beaten: NDArray[np.bool_]) -> bool:
    # A few squares of a small matrix; a graph search of SciPy's costs as much as the whole fit.
    reached = (beaten | np.eye(len(beaten), dtype=bool)).astype(float)
    for _ in range(len(beaten).bit_length()):
        reached = np.minimum(reached @ reached, 1.0)
    return bool(reached.all())


def _parted(beaten: NDArray[np.bool_]) -> str:
    connected_components = scipy.sparse.csgraph.connected_components
    groups, group = connected_components(beaten, directed=True, connection="weak")
    if groups > 1:
        apart = ", ".join(str(np.flatnonzero(group == each).tolist()) for each in range(groups))
        return f"items {apart} were never compared, not even through others"
    _, group = connected_components(beaten, directed=True, connection="strong")
    # Some group is beaten by no other: circles of groups would be one group.
    top = next(
        group == each
        for each in np.unique(group)
        if not beaten[np.ix_(group != each, group == each)].any()
    )
    return f"items {np.flatnonzero(top).tolist()} never lost to the others: separation"


def _circle(won: Column, tied: Column) -> bool:
    steps = np.where(won > 0, -1.0, np.where(tied > 0, 1.0, 0.0))
    try:
        scipy.sparse.csgraph.bellman_ford(steps, directed=True, indices=0)
    except scipy.sparse.csgraph.NegativeCycleError:
        return True
    return False
