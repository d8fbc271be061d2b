"""What may be said at a look of a group sequential test, and after it has stopped."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Literal

from experiments.stats._roots import brentq
from experiments.stats._walk import Walk, walks
from experiments.stats.effect import TOO_LARGE, Effect, known, student_quantile
from experiments.stats.group_sequential import Boundaries
from ingest.errors import BadInput

# Where a look has no bound on a side, paths are followed this far, and some more.
_FARTHEST = 30.0
# Errors from 0 that no measurement is away.
_UNREAL = 1e9


@dataclass(frozen=True)
class Look:
    """One look: its repeated interval in the units of the effect, and whether a bound is crossed.

    The intervals of all looks hold the truth at once with probability 1 - `alpha`. `crossed` says
    that this interval excludes 0. No numbers where `reason` is not None.
    """

    estimate: float | None
    ci: tuple[float, float] | None
    crossed: bool
    alpha: float
    reason: str | None = None


@dataclass(frozen=True)
class StageWise:
    """The answer of a test that has stopped, in the units of the effect it stopped with.

    `estimate` lies above the truth as often as below it, which the plain one does not: it is too
    large after an early stop. `ci` covers 1 - `alpha`, and excludes 0 exactly when `p_value` <
    `alpha`. No numbers where `reason` is not None.
    """

    estimate: float | None
    ci: tuple[float, float] | None
    p_value: float | None
    alpha: float
    reason: str | None = None


def repeated_interval(effect: Effect, boundaries: Boundaries, look: int) -> Look:
    """The interval at `look` (1 is the first), valid whether or not the test stops there.

    estimate ± bound × standard error, the bound as a t where the effect has df; with one side it is (low, inf). Infinitely wide where nothing
    is spent: then `reason` says so.

    Raises: BadInput if `look` is not one of the bounds'.
    Source: C. Jennison & B. W. Turnbull, J. R. Statist. Soc. B 51 (1989) 305-361.
    """
    _checked(look, boundaries)
    numbers = known(effect)
    if numbers is None:
        return Look(None, None, False, boundaries.alpha, effect.reason)
    estimate, error = numbers
    bound = boundaries.upper[look - 1]
    if effect.df is not None and isfinite(effect.df):
        # The t that is as rare as the bound's z: few units err more with z itself.
        one_side = boundaries.nominal_p[look - 1] / boundaries.sides
        bound = student_quantile(2 * one_side, effect.df) if one_side else inf
    if bound == inf:
        return Look(None, None, False, boundaries.alpha, "no error is spent at this look")
    half = bound * error
    low, high = estimate - half, estimate + half
    two = boundaries.sides == 2
    crossed = low > 0 or (two and high < 0)
    return Look(estimate, (low, high if two else inf), crossed, boundaries.alpha)


def stage_wise(effect: Effect, boundaries: Boundaries, look: int) -> StageWise:
    """The median-unbiased estimate, interval and p of a test that stopped at `look` (1 is the first).

    An outcome is more extreme the earlier it crossed, and at one look the larger its z. It needs
    no look after the stop. `reason` if the effect has none, or no bound is crossed before the last
    look given (the test has not stopped), or z is beyond 30 where a look has no bound.

    Raises: BadInput if `look` is not one of the bounds'.
    Sources: K. Fairbanks & R. Madsen, Biometrika 69 (1982) 69-74; A. A. Tsiatis, G. L. Rosner &
    C. R. Mehta, Biometrics 40 (1984) 797-803.
    """
    _checked(look, boundaries)
    alpha = boundaries.alpha
    numbers = known(effect)
    if numbers is None:
        return StageWise(None, None, None, alpha, effect.reason)
    estimate, error = numbers
    z = estimate / error
    if not abs(z) < _UNREAL:
        return StageWise(None, None, None, alpha, TOO_LARGE)
    inside = boundaries.lower[look - 1] < z < boundaries.upper[look - 1]
    if inside and look < len(boundaries.information):
        return StageWise(None, None, None, alpha, "no bound is crossed: the test has not stopped")
    open_bounds = inf in boundaries.upper[:look] or boundaries.sides == 1
    if open_bounds and abs(z) > _FARTHEST:
        return StageWise(None, None, None, alpha, f"z is beyond {_FARTHEST:g}: too far to compute")
    order = _Order.of(boundaries, look, z)
    # One unit of drift in units of the effect: z grows by √t for it at the look's information t.
    unit = error * sqrt(boundaries.information[look - 1])
    low = order.drift(alpha / boundaries.sides, up=True) * unit
    high, p_value = inf, min(1.0, order.up(0.0))
    if boundaries.sides == 2:
        high = order.drift(alpha / 2, up=False) * unit
        p_value = min(1.0, 2 * min(p_value, order.down(0.0)))
    return StageWise(order.drift(0.5, up=True) * unit, (low, high), p_value, alpha)


def conditional_power(
    effect: Effect,
    boundaries: Boundaries,
    look: int,
    *,
    truth: float | None = None,
    direction: Literal["upper", "lower"] = "upper",
) -> float | None:
    """The chance that a look after `look` crosses the bound of `direction`, given what is seen now.

    `truth` is the effect to assume, in the effect's units: the planned one, or by default the
    estimate, which makes the chance swing more than it should. Below some 0.1 to 0.2 stopping for
    futility costs little power; it costs no error, since the bounds do not count on it. None if the
    effect has no answer.

    Raises: BadInput if `look` is not one of the bounds', no look follows, `truth` is not finite,
    or there is no bound in `direction`.
    Source: K. K. G. Lan, R. Simon & M. Halperin, Communications in Statistics C 1 (1982) 207-219.
    """
    _checked(look, boundaries)
    if look == len(boundaries.information):
        raise BadInput.of("look", "no look follows: give the information of those planned")
    if direction == "lower" and boundaries.sides == 1:
        raise BadInput.of("direction", "one-sided bounds have no lower one")
    if truth is not None and not isfinite(truth):
        raise BadInput.of("truth", "must be finite")
    numbers = known(effect)
    if numbers is None:
        return None
    estimate, error = numbers
    now = boundaries.information[look - 1]
    # So many errors away nothing is uncertain any more.
    z = min(max(estimate / error, -_UNREAL), _UNREAL)
    assumed = (estimate if truth is None else truth) / error
    drift = min(max(assumed, -_UNREAL), _UNREAL) / sqrt(now)
    at = z * sqrt(now)
    if direction == "lower":  # the mirror's upper bound
        at, drift = -at, -drift
    return _crosses_later(boundaries, look, at, drift)


def _crosses_later(boundaries: Boundaries, look: int, at: float, drift: float) -> float:
    times, upper = boundaries.information[look - 1 :], boundaries.upper[look - 1 :]
    # The drift is walked with, not reweighted to: a start far out would need weights beyond floats.
    walk, total = Walk.start(at, times[0]), 0.0
    for index in range(1, len(times)):
        time, scale = times[index], sqrt(times[index])
        drifted = drift * (time - times[0])
        total += walk.above(time, upper[index] * scale - drifted)
        if index + 1 == len(times):
            break
        spread = 9 * sqrt(time - times[0])
        bottom = max(-upper[index] * scale - drifted, at - spread)
        if boundaries.sides == 1:
            bottom = at - spread
        top = min(upper[index] * scale - drifted, at + spread)
        if top <= bottom:
            break
        walk = walk.on(time, bottom, top, next_step=times[index + 1] - time, leap=12)
    return min(total, 1.0)


@dataclass(frozen=True)
class _Order:
    """The chance of outcomes at least as far up, or down, as the one seen, by drift."""

    before: tuple[Walk, ...]
    boundaries: Boundaries
    z: float

    @classmethod
    def of(cls, boundaries: Boundaries, look: int, z: float) -> "_Order":
        times, upper = boundaries.information[:look], boundaries.upper[:look]
        # Far enough that what is reweighted for a drift near z is there, and within floats.
        reach = min(float(round(abs(z)) + 20), 37.0)
        return cls(walks(times, boundaries.lower[:look], upper, reach), boundaries, z)

    def up(self, drift: float) -> float:
        return self._tail(drift, Walk.above, self.boundaries.upper)

    def down(self, drift: float) -> float:
        return self._tail(drift, Walk.below, self.boundaries.lower)

    def _tail(
        self,
        drift: float,
        beyond: Callable[[Walk, float, float, float], float],
        bounds: tuple[float, ...],
    ) -> float:
        levels = (*bounds[: len(self.before) - 1], self.z)
        looks = zip(self.before, self.boundaries.information, levels, strict=False)
        return sum(
            beyond(walk, time, level * sqrt(time), drift)
            for walk, time, level in looks
            if isfinite(level)
        )

    def drift(self, chance: float, *, up: bool) -> float:
        """The drift under which what is at least as far up (or down) has this `chance`."""

        def excess(drift: float) -> float:
            return (self.up(drift) if up else self.down(drift)) - chance

        scale = sqrt(self.boundaries.information[len(self.before) - 1])
        width = 4.0
        middle = self.z / scale
        while excess(middle - width / scale) * excess(middle + width / scale) > 0:
            width *= 1.5
        ends = middle - width / scale, middle + width / scale
        return float(brentq(excess, *ends, xtol=1e-10 / scale))


def _checked(look: int, boundaries: Boundaries) -> None:
    if not 1 <= look <= len(boundaries.information):
        raise BadInput.of("look", f"must be in 1..{len(boundaries.information)}, not {look}")
