"""A Brownian motion looked at a few times, and its chance of being beyond a bound at each look."""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, pi, sqrt

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)
# In standard deviations of the narrower of two neighbouring steps: 16 points a panel then leave an
# error of 1e-12 in a bound.
_PANEL = 5.0
_CHUNK = 128


@dataclass(frozen=True)
class Walk:
    """Where the paths are that crossed no bound yet: `mass` of them at each of `nodes`, ascending.

    The motion has no drift; every question takes a `drift` per unit of time and is answered by
    reweighting, so one recursion serves all of them.
    """

    time: float
    nodes: Floats
    mass: Floats

    @classmethod
    def start(cls, at: float = 0.0, time: float = 0.0) -> "Walk":
        return cls(time, np.array([at]), np.ones(1))

    def tilted(self, drift: float) -> Floats:
        # Girsanov's theorem. The exponent is at most the square of a node's z, halved.
        return self.mass * np.exp(drift * self.nodes - drift * drift * self.time / 2)

    def above(self, time: float, level: float, drift: float = 0.0) -> float:
        """The chance to have crossed nothing yet and to be above `level` at `time`."""
        step = time - self.time
        return float(
            self.tilted(drift)
            @ scipy.special.ndtr((self.nodes + drift * step - level) / sqrt(step))
        )

    def below(self, time: float, level: float, drift: float = 0.0) -> float:
        step = time - self.time
        return float(
            self.tilted(drift)
            @ scipy.special.ndtr((level - self.nodes - drift * step) / sqrt(step))
        )

    def on(
        self, time: float, lower: float, upper: float, *, next_step: float, leap: float
    ) -> "Walk":
        """The paths that are between `lower` and `upper` at `time`.

        Steps beyond `leap` standard deviations are left out: 12 lose 1e-32 of the paths.
        """
        sd = sqrt(time - self.time)
        panels = max(1, round((upper - lower) / _PANEL / min(sd, sqrt(next_step)) + 0.5))
        half = (upper - lower) / panels / 2
        centres = lower + half * (2 * np.arange(panels) + 1)
        nodes = (centres[:, None] + half * _POINTS).ravel()
        density = np.empty_like(nodes)
        for first in range(0, len(nodes), _CHUNK):
            part = slice(first, first + _CHUNK)
            near = slice(
                *np.searchsorted(
                    self.nodes, (nodes[part][0] - leap * sd, nodes[part][-1] + leap * sd)
                )
            )
            steps = (nodes[part][:, None] - self.nodes[near]) / sd
            density[part] = np.exp(-0.5 * steps * steps) @ self.mass[near]
        return Walk(time, nodes, density * np.tile(half * _WEIGHTS, panels) / sd / sqrt(2 * pi))

    def level(self, time: float, chance: float) -> float:
        """The z, `level` / √`time`, that the paths exceed at `time` with this `chance`."""
        if chance < 1e-280:
            return inf
        sd, scale = sqrt(time - self.time), sqrt(time)
        # The tail is log-concave (Prékopa) and this start lies to the right of the root, so Newton
        # on its logarithm falls to the root and never past it.
        z = -float(scipy.special.ndtri(chance))
        for _ in range(60):
            steps = (self.nodes - z * scale) / sd
            logs = scipy.special.log_ndtr(steps)
            top = float(logs[-1])
            tail = float(self.mass @ np.exp(logs - top))
            hazard = float(self.mass @ np.exp(-0.5 * steps * steps - top)) / sqrt(2 * pi) / tail
            move = (log(tail) + top - log(chance)) * sd / scale / hazard
            z += move
            if abs(move) < 1e-10:
                break
        return z


@lru_cache(maxsize=256)
def walks(
    times: tuple[float, ...], lower: tuple[float, ...], upper: tuple[float, ...], reach: float
) -> tuple[Walk, ...]:
    """The paths before each look, with z bounds; beyond `reach` no z and no step is followed."""
    states = [Walk.start()]
    for index, time in enumerate(times[:-1]):
        scale = sqrt(time)
        states.append(
            states[-1].on(
                time,
                max(lower[index], -reach) * scale,
                min(upper[index], reach) * scale,
                next_step=times[index + 1] - time,
                leap=reach,
            )
        )
    return tuple(states)
