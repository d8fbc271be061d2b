"""Moments from sums of whole numbers: only the last division rounds."""

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from math import floor
from typing import Any

from experiments._reading import Sample
from experiments.stats import Moments
from experiments.stats.cuped import PreMoments
from experiments.stats.feedback import FeedbackCounts
from experiments.stats.quantiles import (
    QuantileSummary,
    cluster_factor,
    needed_events,
)


class Exact:
    """Sums over `n` units of several numbers, and of the products of every two of them.

    `scales` are how many of a number's units are one of the metric's.
    """

    def __init__(
        self, n: int, sums: Sequence[int], products: Sequence[int], scales: Sequence[int]
    ) -> None:
        self.n, self._sums, self._scales = n, list(map(int, sums)), scales
        pairs = combinations_with_replacement(range(len(scales)), 2)
        self._products = dict(zip(pairs, map(int, products), strict=False))

    def mean(self, i: int) -> float:
        return self._sums[i] / (self.n * self._scales[i]) if self.n else 0.0

    def cov(self, i: int, j: int) -> float:
        """Unbiased, with n - 1; 0 below two units."""
        if self.n < 2:
            return 0.0
        spread = self.n * self._products[min(i, j), max(i, j)] - self._sums[i] * self._sums[j]
        return spread / (self.n * (self.n - 1) * self._scales[i] * self._scales[j])

    def moments(self, top: int, bottom: int) -> Moments:
        return Moments(
            n=self.n,
            mean=self.mean(top),
            var=self.cov(top, top),
            den_mean=self.mean(bottom),
            den_var=self.cov(bottom, bottom),
            cov=self.cov(top, bottom),
        )

    def pre(self, missing: int) -> PreMoments:
        a, b, c, d = range(4)

        def row(i: int) -> tuple[float, float, float, float]:
            return self.cov(i, a), self.cov(i, b), self.cov(i, c), self.cov(i, d)

        means = self.mean(a), self.mean(b), self.mean(c), self.mean(d)
        return PreMoments(self.n, means, (row(a), row(b), row(c), row(d)), missing)

    def feedback(self) -> FeedbackCounts:
        up, down, turns = range(4, 7)

        def row(i: int) -> tuple[float, float, float]:
            return self.cov(i, up), self.cov(i, down), self.cov(i, turns)

        means = self.mean(up), self.mean(down), self.mean(turns)
        return FeedbackCounts(self.n, means, (row(up), row(down), row(turns)))


def quantile_sample(q: float, scale: int, row: Mapping[str, Any], name: str) -> Sample:
    """From an arm's columns of that name: the numbers around the quantile and its bounds."""
    n, units = int(row[f"{name}n"]), int(row[f"{name}size"])
    below = Exact(units, row[f"{name}sums"], row[f"{name}products"], (1, 1)).moments(0, 1)
    if not n:
        return Sample(below, quantile=QuantileSummary(q, 0, 0, None, None, None))
    levels, around = row[f"{name}levels"], row[f"{name}around"]
    lower, value, upper = (
        _between(level, n, pair, scale) for level, pair in zip(levels, around, strict=True)
    )
    enough = n >= needed_events(q)
    summary = QuantileSummary(
        q=q,
        n=n,
        n_units=units,
        value=value,
        lower=lower if enough else None,
        upper=upper if enough else None,
        factor=cluster_factor(below, q),
        censored=int(row[f"{name}late"]),
    )
    return Sample(below, quantile=summary)


def _between(level: float, n: int, around: Sequence[int], scale: int) -> float:
    """The quantile between two neighbours, by linear interpolation."""
    low, high = map(int, around)
    at = min(max(level, 0.0), 1.0) * (n - 1)
    return (low + (high - low) * (at - floor(at))) / scale
