"""Made-up users whose turns are alike within a user: what the A/A matrix draws its units from."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from experiments.resampling import Histories

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Shape = Literal["even", "heavy tail", "zero inflated"]

UNITS = 200_000
CONVERTING = 0.02
THUMBS_UP, THUMBS_DOWN = 0.007, 0.003
_MOST_TURNS = 200


@dataclass(frozen=True)
class Pool:
    """Some six turns a user, with a value each; `icc` is the correlation of two turns of one user,
    of the normal variable that a value is made from."""

    turns: Counts
    values: Floats
    """Of all turns, user by user."""
    histories: Mapping[str, Histories]

    def tail(self, above: float) -> "Tail":
        """The turns whose values are above a quantile of all."""
        high = self.values > np.quantile(self.values, above)
        user = np.repeat(np.arange(len(self.turns)), self.turns)[high]
        return Tail(self.values[high], np.bincount(user, minlength=len(self.turns)))


@dataclass(frozen=True)
class Tail:
    """The highest values, user by user, and how many each user has."""

    values: Floats
    turns: Counts

    @property
    def starts(self) -> Counts:
        """Where each user's values begin."""
        starts: Counts = np.cumsum(self.turns) - self.turns
        return starts


def pool(shape: Shape, icc: float, *, seed: int) -> Pool:
    """Even users; or lognormal turns and values; or half the users idle and most values 0."""
    random = np.random.default_rng([seed, round(100 * icc), len(shape)])
    turns = _turns(shape, random)
    user = np.repeat(np.arange(UNITS), turns)
    values = _values(shape, _alike(user, icc, random))
    liking, luck = _alike(user, icc, random), _alike(user, icc, random)
    net = (liking > ndtri(1 - THUMBS_UP)) * 1.0 - (liking < ndtri(THUMBS_DOWN))

    def per_user(column: Floats) -> Floats:
        return np.bincount(user, column, UNITS).astype(np.float64)

    best = np.full(UNITS, -np.inf)
    np.maximum.at(best, user, luck)
    converts = best > np.quantile(best, 1 - CONVERTING)
    totals = per_user(values)
    histories = {
        "mean": Histories.of(totals),
        "proportion": Histories.of(converts),
        "ratio": Histories.of(totals, turns),
        "net thumbs": Histories.of(per_user(net), turns),
        "squares": Histories.of(per_user(values**2), turns),
    }
    return Pool(turns, values, histories)


def _turns(shape: Shape, random: np.random.Generator) -> Counts:
    if shape == "even":
        return 1 + random.poisson(5, UNITS)
    if shape == "heavy tail":
        many = np.ceil(random.lognormal(np.log(4), 0.8, UNITS))
        return np.minimum(many, _MOST_TURNS).astype(np.int64)
    return np.where(random.random(UNITS) < 0.5, 0, 1 + random.poisson(11, UNITS))


def _values(shape: Shape, normal: Floats) -> Floats:
    # Made as even as normal numbers can be: a p95 is as well known as the density around it, and
    # a pool with gaps there would have a p95 that no formula knows.
    order = np.empty(len(normal))
    order[np.argsort(normal)] = np.arange(len(normal))
    normal = ndtri((order + 0.5) / len(normal))
    if shape == "even":
        return 10 + 3 * normal
    grown: Floats = np.exp(normal)
    return grown if shape == "heavy tail" else np.where(normal < ndtri(0.6), 0.0, grown)


def _alike(user: Counts, icc: float, random: np.random.Generator) -> Floats:
    """Standard normal numbers, correlated by `icc` within a user."""
    shared = random.standard_normal(UNITS)[user]
    own = random.standard_normal(len(user))
    return sqrt(icc) * shared + sqrt(1 - icc) * own
