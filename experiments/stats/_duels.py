"""Judged comparisons, in rows or counted by pair, as the cells a model is fitted to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from experiments.stats._davidson import Cells, Column, Fit, Index
from experiments.stats.effect import MOST
from ingest.errors import BadInput

# Of a duel: weights may be parts, but not so small that their logarithms say nothing.
_LEAST = 1e-9

Outcome = Literal["first", "second", "tie", "both_bad"]

_OUTCOMES: tuple[Outcome, ...] = ("first", "second", "tie", "both_bad")


@dataclass(frozen=True, eq=False)
class Duels:
    """Judged comparisons of `items` things, a row each.

    `first` and `second` are the things' numbers, counted from 0, in the order they were shown;
    `outcome` is what the judge preferred. "tie" is as good, "both_bad" is neither good enough: two
    different answers, and neither is left out.
    """

    items: int
    first: Index
    second: Index
    outcome: NDArray[np.intp]

    @classmethod
    def of(
        cls, first: ArrayLike, second: ArrayLike, outcome: Sequence[Outcome], *, items: int
    ) -> Self:
        """The duels, checked.

        Raises: BadInput if lengths differ, a thing is not in 0 ... items - 1, meets itself, or an
        outcome is unknown.
        """
        if unknown := set(outcome) - set(_OUTCOMES):
            raise BadInput.of("outcome", f"must be one of {_OUTCOMES}, not {sorted(unknown)}")
        left, right = (
            _numbers(each, field, items) for field, each in (("first", first), ("second", second))
        )
        if not len(left) == len(right) == len(outcome):
            raise BadInput.of("outcome", f"{len(outcome)} for {len(left)} and {len(right)} items")
        if (left == right).any():
            raise BadInput.of("second", "an item cannot meet itself")
        code = {name: number for number, name in enumerate(_OUTCOMES)}
        return cls(items, left, right, np.array([code[each] for each in outcome], dtype=np.intp))

    def counts(self) -> tuple[Column, Column, Column]:
        """Wins, ties and both-bads as items x items tables; the last two are symmetric."""
        tables = np.zeros((len(_OUTCOMES), self.items, self.items))
        np.add.at(tables, (self.outcome, self.first, self.second), 1.0)
        won, lost, tied, bad = tables
        return won + lost.T, tied + tied.T, bad + bad.T


@dataclass(frozen=True, eq=False)
class Rows:
    """Which cell each duel is in, how it ended there, and whose it is."""

    cell: Index
    won_less_lost: Column
    tied: Column
    cluster: Index

    @property
    def clusters(self) -> int:
        return int(self.cluster.max(initial=-1)) + 1

    def sandwich(self, fitted: Fit, design: Column) -> Column:
        """The covariance of the parameters with clusters drawn as wholes, G / (G - 1) times CR0."""
        shape = self.clusters, len(design)
        by_odds = self.won_less_lost / 2 - fitted.by_odds[self.cell]
        scores = scipy.sparse.csr_array((by_odds, (self.cluster, self.cell)), shape=shape) @ design
        if len(fitted.parameters) > design.shape[1]:
            by_ties = self.tied - fitted.by_ties[self.cell]
            tie = np.bincount(self.cluster, by_ties, minlength=self.clusters)
            scores = np.column_stack([scores, tie])
        meat = scores.T @ scores * (self.clusters / (self.clusters - 1))
        return np.asarray(fitted.inverse @ meat @ fitted.inverse)


def cells_of_tables(won: Column, tied: Column) -> Cells:
    """A cell for each pair that met."""
    first, second = np.nonzero(np.triu(won + won.T + tied, 1))
    return Cells(
        first=first,
        second=second,
        won=won[first, second],
        lost=won[second, first],
        tied=tied[first, second],
        covariates=np.zeros((len(first), 0)),
        drawn=np.ones(len(first)),
    )


def cells_of_rows(duels: Duels, covariates: Column, cluster: Index) -> tuple[Cells, Rows]:
    """A cell for each pair and row of covariates that occurs."""
    # A pair shown the other way round is the same pair with everything's sign turned.
    turned = np.where(duels.first > duels.second, -1.0, 1.0)
    table = np.column_stack(
        [
            np.minimum(duels.first, duels.second),
            np.maximum(duels.first, duels.second),
            covariates * turned[:, None] + 0.0,
        ]
    )
    unique, cell = np.unique(table, axis=0, return_inverse=True)
    sign = np.choose(duels.outcome, [1.0, -1.0, 0.0, 0.0]) * turned
    tied = (duels.outcome >= 2).astype(float)
    won, lost, drew = (
        np.bincount(cell, each.astype(float), minlength=len(unique)).astype(np.float64)
        for each in (sign > 0, sign < 0, tied)
    )
    pairs = unique[:, :2].astype(np.intp)
    cells = Cells(pairs[:, 0], pairs[:, 1], won, lost, drew, unique[:, 2:], np.ones(len(unique)))
    return cells, Rows(cell, sign, tied, cluster)


def with_ghost(cells: Cells, items: int, pseudo: float) -> Cells:
    """Each item also wins and loses `pseudo` times against one more, number `items`."""
    every = np.arange(items)
    half, none = np.full(items, pseudo), np.zeros(items)
    return replace(
        cells,
        first=np.append(cells.first, every),
        second=np.append(cells.second, np.full(items, items)),
        won=np.append(cells.won, half),
        lost=np.append(cells.lost, half),
        tied=np.append(cells.tied, none),
        covariates=np.vstack([cells.covariates, np.zeros((items, cells.covariates.shape[1]))]),
        drawn=np.append(cells.drawn, none),
    )


def square(counts: ArrayLike, field: str) -> Column:
    """A table of counts, one row and column per item, without its diagonal."""
    table = np.array(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) < 2:
        raise BadInput.of(field, f"a square table of 2 or more items, not {table.shape}")
    np.fill_diagonal(table, 0.0)
    if not ((table == 0) | (table >= _LEAST) & (table <= MOST)).all():
        raise BadInput.of(field, f"every count must be 0, or {_LEAST} to {MOST}")
    return table


def symmetric(counts: ArrayLike | None, field: str, items: int) -> Column:
    """A table of counts that both items of a pair share; none are all 0."""
    if counts is None:
        return np.zeros((items, items))
    table = square(counts, field)
    if len(table) != items or (table != table.T).any():
        raise BadInput.of(field, f"a symmetric table of {items} items: a pair's count, twice")
    return table


def _numbers(column: ArrayLike, field: str, items: int) -> Index:
    numbers = np.asarray(column)
    if numbers.ndim != 1 or not (np.issubdtype(numbers.dtype, np.integer) or not len(numbers)):
        raise BadInput.of(field, "one item's number per duel")
    if ((numbers < 0) | (numbers >= items)).any():
        raise BadInput.of(field, f"every item must be in 0 to {items - 1}")
    return numbers.astype(np.intp)
