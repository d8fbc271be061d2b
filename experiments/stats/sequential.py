"""Answers that stay valid however often somebody looks."""

from dataclasses import dataclass
from math import exp, expm1, inf, isfinite, log, log1p, sqrt
from typing import Literal, Self

from experiments.stats.effect import MOST, TOO_LARGE, Effect, check_alpha, known
from ingest.errors import BadInput

BURN_IN_UNITS = 200
"""Units each arm needs before the asymptotics of a confidence sequence hold."""

BURN_IN_CONVERSIONS = 25
"""Conversions each arm needs before they hold for a rare event."""

Side = Literal["two-sided", "lower", "upper"]


@dataclass(frozen=True)
class EValue:
    """Evidence against a null hypothesis, as the natural log of what a fair bet on it would have won.

    Under the null, e exceeds 1/α at any look with probability at most α, so `p` = min(1, 1/e) holds
    at every look. No numbers where `reason` is not None.
    """

    log_e: float | None
    p: float | None
    reason: str | None = None

    @classmethod
    def of(cls, log_e: float) -> Self:
        return cls(log_e, exp(min(0.0, -log_e)))


@dataclass(frozen=True)
class AnytimeResult:
    """One look at a confidence sequence, in the units of the effect it was made from.

    With probability 1 - `alpha` the intervals of all looks hold the truth at once, and a null
    effect has a `p_value` below `alpha` at any look with probability at most `alpha`. A one-sided
    interval ends in inf or -inf. `reason` says why not to act: the burn-in (the numbers are given),
    or the effect's own (they are None).
    """

    estimate: float | None
    ci: tuple[float, float] | None
    p_value: float | None
    alpha: float
    burn_in_reached: bool
    reason: str | None = None


@dataclass(frozen=True)
class NormalMixture:
    """The two-sided normal mixture: a sum S of centred increments with total variance v.

    The bets are mixed by a normal prior of variance 1/`rho`; a larger `rho` bets on later looks.
    Source: S. R. Howard, A. Ramdas, J. McAuliffe & J. Sekhon, Annals of Statistics 49 (2021).
    """

    rho: float

    @classmethod
    def tuned(cls, v: float, alpha: float) -> Self:
        """The mixture whose bound is tightest where the variance is `v` (to first order)."""
        return cls(v / (log1p(-2 * log(alpha)) - 2 * log(alpha)))

    def log_e(self, s: float, v: float) -> float:
        """The log e-value of the hypothesis that S has the mean 0."""
        return s * s / (2 * (v + self.rho)) - 0.5 * log1p(v / self.rho)

    def bound(self, v: float, alpha: float) -> float:
        """|S| exceeds this at any v with probability at most `alpha`."""
        return sqrt((v + self.rho) * (log1p(v / self.rho) - 2 * log(alpha)))

    def one_sided_bound(self, v: float, alpha: float) -> float:
        """S exceeds this at any v with probability at most `alpha`."""
        grown = sqrt(1 + v / self.rho)
        return sqrt(2 * (v + self.rho) * log1p(grown / (2 * alpha)))

    def one_sided_log_p(self, s: float, v: float) -> float:
        """The log of the smallest alpha whose one-sided bound `s` exceeds, 0 for none below 1."""
        gain = s * s / (2 * (v + self.rho))
        if s <= 0 or not gain:
            return 0.0
        # ln(e^gain - 1), without overflow
        return min(0.0, 0.5 * log1p(v / self.rho) - log(2) - gain - log(-expm1(-gain)))


def confidence_sequence(
    effect: Effect,
    n: int,
    *,
    tuning_n: int,
    alpha: float = 0.05,
    side: Side = "two-sided",
    conversions: tuple[int, int] | None = None,
) -> AnytimeResult:
    """The effect's asymptotic confidence sequence after `n` units of both arms.

    `effect` is any whose estimate is asymptotically normal with its `std_error` over units: a mean,
    ratio, CUPED or quantile effect. `side` "lower" gives (low, inf), with a p for an effect above
    0; "upper" gives (-inf, high), with a p for one below 0: harm to a metric that should rise, seen
    sooner than by the two-sided interval.

    `tuning_n` is the total of units at which the interval shall be tightest, the planned end;
    another one midway voids the guarantee. Start to look at `BURN_IN_UNITS` an arm, and for a rare
    event, whose `conversions` (control's, treatment's) are then given, at `BURN_IN_CONVERSIONS` an
    arm: earlier, `reason` says so. Decide on the absolute scale: a relative effect's sequence is
    made from its delta-method error, which can contradict the absolute one.

    Raises: BadInput if `n` or `tuning_n` is below 1, `alpha` not in (0, 1) (below 0.5 for one
    side), `side` is another, a count of conversions is negative, or the effect's numbers are no
    estimate with a positive error.
    Source: I. Waudby-Smith et al., Annals of Statistics 52 (2024), arXiv 2103.06476.
    """
    _check(n, tuning_n, alpha, side)
    early = _burn_in(effect, conversions)
    numbers = known(effect)
    if numbers is None:
        return AnytimeResult(None, None, None, alpha, early is None, effect.reason)
    estimate, error = numbers
    half, p_value = _half_and_p(estimate / error, n, tuning_n=tuning_n, alpha=alpha, side=side)
    half *= error
    if not (isfinite(half) and isfinite(estimate / error)):
        return AnytimeResult(None, None, None, alpha, early is None, TOO_LARGE)
    low = -inf if side == "upper" else estimate - half
    high = inf if side == "lower" else estimate + half
    return AnytimeResult(estimate, (low, high), p_value, alpha, early is None, early)


def _half_and_p(
    z: float, n: int, *, tuning_n: int, alpha: float, side: Side
) -> tuple[float, float]:
    """The interval's half width in standard errors, and the p."""
    # In a time that runs by one a unit: v is n, and S is √n z.
    root = sqrt(n)
    if side == "two-sided":
        mixture = NormalMixture.tuned(tuning_n, alpha)
        return mixture.bound(n, alpha) / root, exp(min(0.0, -mixture.log_e(root * z, n)))
    # One side has the bound that two have with twice the error, nearly.
    mixture = NormalMixture.tuned(tuning_n, 2 * alpha)
    s = root * z if side == "lower" else -root * z
    return mixture.one_sided_bound(n, alpha) / root, exp(mixture.one_sided_log_p(s, n))


def _check(n: int, tuning_n: int, alpha: float, side: Side) -> None:
    check_alpha(alpha)
    for field, units in (("n", n), ("tuning_n", tuning_n)):
        if not 1 <= units <= MOST:
            raise BadInput.of(field, f"must be 1 or more units, not {units}")
    if side not in {"two-sided", "lower", "upper"}:
        raise BadInput.of("side", f"must be two-sided, lower or upper, not {side}")
    if side != "two-sided" and alpha >= 0.5:
        raise BadInput.of("alpha", f"must be below 0.5 for one side, not {alpha}")


def _burn_in(effect: Effect, conversions: tuple[int, int] | None) -> str | None:
    """Why it is too early to act, or None."""
    if conversions is not None and min(conversions) < 0:
        raise BadInput.of("conversions", f"cannot be negative: {conversions}")
    if min(effect.n_control, effect.n_treatment) < BURN_IN_UNITS:
        return f"fewer than {BURN_IN_UNITS} units in an arm: too early to act"
    if conversions is not None and min(conversions) < BURN_IN_CONVERSIONS:
        return f"fewer than {BURN_IN_CONVERSIONS} conversions in an arm: too early to act"
    return None
