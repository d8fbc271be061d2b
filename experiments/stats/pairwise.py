"""Which checkpoint is preferred to which: Bradley and Terry's strengths with Davidson's ties."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats._asked import Asked
from experiments.stats._davidson import Cells, Column, Fit, fit, no_maximum
from experiments.stats._duels import (
    Duels,
    Outcome,
    Rows,
    cells_of_rows,
    cells_of_tables,
    square,
    symmetric,
    with_ghost,
)
from experiments.stats.effect import MOST, Effect, check_alpha, student_quantile
from ingest.errors import BadInput

__all__ = ["FEW_CLUSTERS", "Duels", "Outcome", "Ranking", "bradley_terry"]

_FARTHEST = 1e100

FEW_CLUSTERS = 50
"""Below this many clusters the sandwich may be too small, and `method` says so."""


@dataclass(frozen=True)
class Ranking:
    """Strengths of items, in log odds of being preferred to the reference, which has 0.

    Where `reason` is not None the numbers are None. `std_error` is that of the difference from the
    reference. `rank` 1 is the strongest; with probability 1 - `alpha` all of `rank_interval` hold
    at once. `tie` and `both_bad` are Davidson's ν of the two answers (between equals ν is how often
    the answer is given for each win of one of them), `covariates` log odds per unit of each
    covariate. `duels` counts an item's duels, `both_bad_share` those judged bad for both. `df` is
    infinite without clusters, clusters - 1 with them.
    """

    log_strength: tuple[float, ...] | None
    std_error: tuple[float, ...] | None
    rank: tuple[int, ...] | None
    rank_interval: tuple[tuple[int, int], ...] | None
    tie: float | None
    both_bad: float | None
    covariates: tuple[float, ...] | None
    covariate_errors: tuple[float, ...] | None
    duels: tuple[float, ...]
    both_bad_share: tuple[float | None, ...]
    df: float
    alpha: float
    method: str
    reason: str | None = None
    covariance: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def compare(self, control: int, treatment: int) -> Effect:
        """Log odds that `treatment` is preferred to `control`, as one comparison alone.

        Raises: BadInput if there is no such pair of items.
        """
        if control == treatment or not {control, treatment} <= set(range(len(self.duels))):
            raise BadInput.of("treatment", f"two of the items 0 to {len(self.duels) - 1}")
        n = round(self.duels[control]), round(self.duels[treatment])
        asked = Asked(self.method, n, self.alpha)
        if self.log_strength is None:
            return asked.refuse(self.reason or "")
        gap = self.log_strength[treatment] - self.log_strength[control]
        cov = self.covariance
        variance = cov[control][control] + cov[treatment][treatment] - 2 * cov[control][treatment]
        return asked.answer(gap, sqrt(variance), df=self.df)


def bradley_terry(
    wins: ArrayLike | Duels,
    ties: ArrayLike | None = None,
    *,
    both_bad: ArrayLike | None = None,
    covariates: ArrayLike | None = None,
    clusters: Sequence[object] | None = None,
    reference: int = 0,
    pseudo: float = 0.0,
    alpha: float = 0.05,
) -> Ranking:
    """Maximum likelihood strengths of things that were compared in pairs.

    `wins[i][j]` counts how often i was preferred to j; `ties` and `both_bad` are symmetric, a
    pair's count in both of its cells. Both are Davidson's third outcome, with P proportional to
    ν √(π_i π_j), and are told apart by their own ν. `wins` may be `Duels` instead, which are
    counted first, so their order changes nothing; only they take `covariates` (per duel, first's
    less second's; a column of ones is the advantage of being shown first) and `clusters` (whose
    judgement it was; errors are then the clustered sandwich, else those of the model).

    `pseudo` gives every item that many wins and losses against one imagined item (0.5 is usual):
    a small pull to equality, with which strengths exist however the duels went. Without it
    `reason`, and no numbers, if items were never compared, one side never lost, or all were ties.
    Rank intervals are from all pairwise comparisons at once, by Bonferroni.

    Raises: BadInput for an argument that does not fit the others; see its text.
    Sources: R. A. Bradley & M. E. Terry, Biometrika 39 (1952) 324-345; R. R. Davidson, JASA 65
    (1970) 317-328; H. L. Turner et al., Computational Statistics 35 (2020) 1027-1057 (`pseudo`);
    M. Mogstad et al., Rev. Econ. Studies 91 (2024) 476-518 (ranks).
    """
    check_alpha(alpha)
    if not 0 <= pseudo <= MOST:
        raise BadInput.of("pseudo", f"must be 0 to {MOST}, not {pseudo}")
    data = _Data.of(wins, ties, both_bad, covariates=covariates, clusters=clusters)
    if not 0 <= reference < len(data.won):
        raise BadInput.of("reference", f"must be an item, 0 to {len(data.won) - 1}")
    return data.ranking(reference, pseudo, alpha)


@dataclass(frozen=True, eq=False)
class _Data:
    """Counted duels, and their rows if those matter."""

    won: Column
    tied: Column
    bad: Column
    cells: Cells
    rows: Rows | None

    @classmethod
    def of(
        cls,
        wins: ArrayLike | Duels,
        ties: ArrayLike | None,
        both_bad: ArrayLike | None,
        *,
        covariates: ArrayLike | None,
        clusters: Sequence[object] | None,
    ) -> "_Data":
        if not isinstance(wins, Duels):
            for name, each in (("covariates", covariates), ("clusters", clusters)):
                if each is not None:
                    raise BadInput.of(name, "need duels in rows: Duels.of(...)")
            won = square(wins, "wins")
            tied, bad = symmetric(ties, "ties", len(won)), symmetric(both_bad, "both_bad", len(won))
            return cls(won, tied, bad, cells_of_tables(won, tied + bad), None)
        if ties is not None or both_bad is not None:
            raise BadInput.of("ties", "are among the outcomes of Duels already")
        won, tied, bad = wins.counts()
        if covariates is None and clusters is None:
            return cls(won, tied, bad, cells_of_tables(won, tied + bad), None)
        table = _covariates(covariates, len(wins.first))
        owners = _owners(clusters, len(wins.first))
        cells, rows = cells_of_rows(wins, table, owners)
        return cls(won, tied, bad, cells, rows if clusters is not None else None)

    @property
    def method(self) -> str:
        name = "Bradley-Terry"
        if self.tied.any() or self.bad.any():
            name += "-Davidson"
        if self.rows is None:
            return name
        few = self.rows.clusters < FEW_CLUSTERS
        return f"{name}, clustered" + (", few clusters" if few else "")

    def ranking(self, reference: int, pseudo: float, alpha: float) -> Ranking:
        drawn = self.tied + self.bad
        reason = no_maximum(self.won, drawn)
        if pseudo and self.won.any():
            reason = None
        items = len(self.won)
        cells = with_ghost(self.cells, items, pseudo) if pseudo else self.cells
        design = cells.design(items + bool(pseudo), reference)
        if self.rows is not None and self.rows.clusters <= design.shape[1] + bool(drawn.any()):
            reason = reason or f"{self.rows.clusters} clusters are too few for this many parameters"
        if reason:
            return self._refused(reason, alpha)
        fitted = fit(cells, design)
        if isinstance(fitted, str):
            return self._refused(fitted, alpha)
        return self._ranked(fitted, design, reference, alpha)

    def _refused(self, reason: str, alpha: float) -> Ranking:
        duels, bad = self._shares()
        nothing = (None,) * 8
        return Ranking(*nothing, duels, bad, inf, alpha, self.method, reason)

    def _shares(self) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
        duels = (self.won + self.won.T + self.tied + self.bad).sum(axis=1)
        shares = zip(self.bad.sum(axis=1), duels, strict=True)
        return _floats(duels), tuple(float(bad / all_) if all_ else None for bad, all_ in shares)

    def _ranked(self, fitted: Fit, design: Column, reference: int, alpha: float) -> Ranking:
        items, width = len(self.won), design.shape[1]
        many = self.cells.covariates.shape[1]
        covariance = fitted.inverse
        if self.rows is not None:
            # Pseudo-comparisons are no data: they are not among the rows.
            covariance = self.rows.sandwich(fitted, design)
        # The reference's row of zeros comes in, an imagined item's goes.
        strength = np.insert(fitted.parameters, reference, 0.0)[:items]
        wide = np.insert(np.insert(covariance, reference, 0.0, axis=0), reference, 0.0, axis=1)
        own = wide[:items, :items]
        tail = slice(width - many, width)
        df = inf if self.rows is None else self.rows.clusters - 1.0
        duels, bad_share = self._shares()
        drawn = self.tied.sum() + self.bad.sum()
        nu = exp(fitted.parameters[-1]) / drawn if drawn else 0.0
        return Ranking(
            log_strength=_floats(strength),
            std_error=_floats(np.sqrt(np.diag(own))),
            rank=tuple(int(1 + (strength > each).sum()) for each in strength),
            rank_interval=_rank_intervals(strength, own, df, alpha),
            tie=float(nu * self.tied.sum()),
            both_bad=float(nu * self.bad.sum()),
            covariates=_floats(fitted.parameters[tail]),
            covariate_errors=_floats(np.sqrt(np.diag(covariance)[tail])),
            duels=duels,
            both_bad_share=bad_share,
            df=df,
            alpha=alpha,
            method=self.method,
            covariance=tuple(map(_floats, own)),
        )


def _rank_intervals(
    strength: Column, covariance: Column, df: float, alpha: float
) -> tuple[tuple[int, int], ...]:
    items = len(strength)
    variance = np.diag(covariance)
    gap = strength[:, None] - strength
    error = np.sqrt(variance[:, None] + variance - 2 * covariance)
    reach = student_quantile(alpha / (items * (items - 1) / 2), df) * error
    np.fill_diagonal(reach, inf)
    above, below = (gap < -reach).sum(axis=1), (gap > reach).sum(axis=1)
    return tuple((int(1 + a), int(items - b)) for a, b in zip(above, below, strict=True))


def _floats(numbers: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(numbers.tolist())


def _covariates(covariates: ArrayLike | None, duels: int) -> Column:
    if covariates is None:
        return np.zeros((duels, 0))
    table = np.asarray(covariates, dtype=np.float64)
    if table.ndim != 2 or len(table) != duels or not (np.abs(table) <= _FARTHEST).all():
        raise BadInput.of(
            "covariates", f"{duels} rows of numbers within ±{_FARTHEST:g}, one per duel"
        )
    return table


def _owners(clusters: Sequence[object] | None, duels: int) -> NDArray[np.intp]:
    if clusters is None:
        return np.zeros(duels, dtype=np.intp)
    if len(clusters) != duels:
        raise BadInput.of("clusters", f"{len(clusters)} for {duels} duels")
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in clusters], dtype=np.intp)
