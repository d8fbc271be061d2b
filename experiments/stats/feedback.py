"""Thumbs on about one turn in a hundred: what is causal, and what the silent turns may hide."""

from dataclasses import dataclass
from math import isfinite
from typing import Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.stats._asked import Asked, check_word
from experiments.stats._bounds import Bounds, Method, Rates, Sensitivity, lee, manski, sensitivity
from experiments.stats._wald import WaldTest, wald_test
from experiments.stats.effect import TOO_LARGE, Effect, check_alpha, is_count
from experiments.stats.moments import Moments, pooled
from experiments.stats.ratio import ratio_test
from ingest.errors import BadInput

Triple = tuple[float, float, float]

_UP, _DOWN, _TURNS = np.eye(3)

# Silent turns below this share of all are what summing left behind.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class FeedbackCounts:
    """Means and unbiased (n - 1) covariances of (up, down, turns) over the units of one arm.

    A unit is what was randomised, with the sums of its thumbs up, thumbs down and turns. A turn
    has one thumb at most, so turns - up - down are silent.
    """

    n: int
    mean: Triple
    cov: tuple[Triple, Triple, Triple]

    def __post_init__(self) -> None:
        if not is_count(self.n):
            raise BadInput.of("n", f"units cannot be {self.n}")

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(cls, up: ArrayLike, down: ArrayLike, turns: ArrayLike) -> Self:
        """The moments of three sums per unit; no units give n = 0, which merges as nothing.

        Raises: BadInput if the three differ in length, a number is negative or not finite, or a
        unit has more thumbs than turns.
        """
        named = (("up", up), ("down", down), ("turns", turns))
        columns = [_sums(sums, field) for field, sums in named]
        if len({len(column) for column in columns}) != 1:
            raise BadInput.of("turns", f"one of each per unit, not {[len(c) for c in columns]}")
        table = np.stack(columns)
        if (table[0] + table[1] > table[2]).any():
            raise BadInput.of("turns", "a unit has more thumbs than turns")
        n = table.shape[1]
        if not n:
            return cls(0, *_tuples(np.zeros(3), np.zeros((3, 3))))
        # Shifted by the first unit, equal numbers have a variance of exactly 0.
        shifted = table - table[:, :1]
        offset = shifted.mean(axis=1)
        centred = shifted - offset[:, None]
        return cls(n, *_tuples(table[:, 0] + offset, centred @ centred.T / max(n - 1, 1)))

    def __add__(self, other: "FeedbackCounts") -> "FeedbackCounts":
        """The moments of both arms' units together, equal to those of the units in one list.

        Source: T. F. Chan, G. H. Golub & R. J. LeVeque, The American Statistician 37 (1983) 242-247.
        """
        if not self.n or not other.n:
            return self if self.n else other
        merged = pooled((self.n, other.n), (self.mean, other.mean), (self.cov, other.cov))
        return FeedbackCounts(self.n + other.n, *_tuples(*merged))

    def moments(self, numerator: ArrayLike, denominator: ArrayLike) -> Moments:
        """Of the ratio of two sums, each a combination of (up, down, turns)."""
        top, bottom, cov = np.asarray(numerator), np.asarray(denominator), np.array(self.cov)
        return Moments(
            n=self.n,
            mean=float(top @ self.mean),
            var=float(top @ cov @ top),
            den_mean=float(bottom @ self.mean),
            den_var=float(bottom @ cov @ bottom),
            cov=float(top @ cov @ bottom),
        )


@dataclass(frozen=True)
class FeedbackEffect:
    """What a treatment did to thumbs; every answer is clustered by unit.

    Causal, all per turn: `up_rate`, `down_rate`, `response_rate`, and `net_rate`. `three_way` tests
    that up, down and silence are all as before. `approval` is up / (up + down): raters choose
    themselves, so it is refused ("not comparable") where the response rate moved, and elsewhere
    says nothing of who would not rate. `approval_by_arm` describes raters and nobody else, None in
    an arm without thumbs. `bounds` and `sensitivity` say what silence may hide.
    """

    up_rate: Effect
    down_rate: Effect
    response_rate: Effect
    net_rate: Effect
    three_way: WaldTest
    approval: Effect
    approval_by_arm: tuple[float | None, float | None]
    bounds: Bounds
    sensitivity: Sensitivity
    alpha: float

    @property
    def comparable(self) -> bool:
        """Whether approval among raters was compared: no proof that the raters are alike."""
        return self.approval.reason is None


@np.errstate(all="ignore")
def feedback_effect(
    control: FeedbackCounts,
    treatment: FeedbackCounts,
    *,
    bounds: Method = "manski",
    weights: tuple[float, float] | None = None,
    alpha: float = 0.05,
) -> FeedbackEffect:
    """Thumbs of two arms as three outcomes per turn: up, down, silence.

    `weights` is what an up and a down count in `net_rate`; None is (1, -1). Effects are
    `ratio_test`'s. The joint test is the generalised score test of equal up and down rates with
    residuals at the merged rates, 2 df; with one turn per unit and arms of equal size it is
    Pearson's chi-square. `bounds` of the share of satisfied turns: "manski" assumes nothing; "lee"
    that an arm only adds raters or only loses some, and speaks of turns rated in either arm.

    Raises: BadInput if `alpha` is not in (0, 1), `bounds` is unknown, or `weights` are not two
    finite numbers, one of them not 0.
    Sources: D. D. Boos, The American Statistician 46 (1992) 327-333; C. F. Manski, AER 80 (1990)
    319-323; D. S. Lee, Rev. Econ. Studies 76 (2009) 1071-1102.
    """
    check_alpha(alpha)
    check_word("bounds", bounds, get_args(Method))
    arms = control, treatment
    response = _effect(arms, _UP + _DOWN, _TURNS, alpha)
    approval = _effect(arms, _UP, _UP + _DOWN, alpha)
    unfit = _unfit(control) or _unfit(treatment)
    limits, tilt = _hidden(control, treatment, bounds, alpha, unfit)
    return FeedbackEffect(
        up_rate=_effect(arms, _UP, _TURNS, alpha),
        down_rate=_effect(arms, _DOWN, _TURNS, alpha),
        response_rate=response,
        net_rate=_effect(arms, _net(weights), _TURNS, alpha),
        three_way=WaldTest(None, None, None, unfit) if unfit else _three_way(control, treatment),
        approval=_approval(approval, response, silent=any(map(_silent, arms))),
        approval_by_arm=(_share(control), _share(treatment)),
        bounds=limits,
        sensitivity=tilt,
        alpha=alpha,
    )


def _effect(
    arms: tuple[FeedbackCounts, FeedbackCounts],
    numerator: NDArray[np.float64],
    denominator: NDArray[np.float64],
    alpha: float,
) -> Effect:
    control, treatment = (arm.moments(numerator, denominator) for arm in arms)
    return ratio_test(control, treatment, alpha=alpha)


def _hidden(
    control: FeedbackCounts,
    treatment: FeedbackCounts,
    method: Method,
    alpha: float,
    unfit: str | None,
) -> tuple[Bounds, Sensitivity]:
    if unfit:
        return Bounds(method, None, None, None, None, alpha, unfit), Sensitivity(None, unfit)
    arms = _rates(control), _rates(treatment)
    find = {"manski": manski, "lee": lee}[method]
    limits, tilt = find(*arms, alpha), sensitivity(*arms)
    if not np.isfinite([each or (0.0, 0.0) for each in (limits.effect, limits.ci)]).all():
        limits = Bounds(method, None, None, None, None, alpha, TOO_LARGE)
    return limits, tilt if isfinite(tilt.gamma or 0.0) else Sensitivity(None, TOO_LARGE)


def _net(weights: tuple[float, float] | None) -> NDArray[np.float64]:
    up, down = (1.0, -1.0) if weights is None else weights
    if not (isfinite(up) and isfinite(down) and (up or down)):
        raise BadInput.of("weights", f"two finite numbers, one of them not 0, not {up}, {down}")
    return up * _UP + down * _DOWN


def _approval(approval: Effect, response: Effect, *, silent: bool) -> Effect:
    if approval.reason or not silent:
        return approval
    if response.p_value is None:
        why = response.reason
    elif response.p_value < response.alpha:
        why = f"the response rate moved (p = {response.p_value:.2g})"
    else:
        return approval
    units = approval.n_control, approval.n_treatment
    return Asked(approval.method, units, approval.alpha).refuse(f"not comparable: {why}")


def _silent(arm: FeedbackCounts) -> bool:
    up, down, turns = arm.mean
    return turns - up - down > _ROUNDING * turns


def _share(arm: FeedbackCounts) -> float | None:
    up, down, _ = arm.mean
    return up / (up + down) if up + down > 0 else None


def _rates(arm: FeedbackCounts) -> Rates:
    up, down, turns = arm.mean
    # Of a unit: its thumbs less those its turns would bring at the arm's rates.
    linear = np.array([[1, 0, -up / turns], [0, 1, -down / turns]]) / turns
    return Rates(up / turns, down / turns, linear @ np.array(arm.cov) @ linear.T / arm.n)


def _three_way(control: FeedbackCounts, treatment: FeedbackCounts) -> WaldTest:
    arms = (control, treatment)
    sums = np.sum([arm.n * np.array(arm.mean) for arm in arms], axis=0)
    linear = np.column_stack([np.eye(2), -sums[:2] / sums[2]])
    covariance = np.zeros((2, 2))
    for arm in arms:
        # Around 0, not around the arm's mean: under the null that is where residuals centre.
        mean = linear @ arm.mean
        spread = linear @ np.array(arm.cov) @ linear.T * (arm.n - 1) / arm.n
        covariance += (spread + np.outer(mean, mean)) / arm.n / arm.mean[2] / arm.mean[2]
    rates = [np.array(arm.mean[:2]) / arm.mean[2] for arm in arms]
    return wald_test(rates[1] - rates[0], covariance)


def _unfit(arm: FeedbackCounts) -> str | None:
    if arm.n < 2:
        return "an arm has fewer than 2 units"
    if not np.isfinite([*arm.mean, *np.ravel(arm.cov)]).all():
        return "a moment is not finite"
    if min(np.diag(arm.cov)) < 0 or min(arm.mean) < 0:
        return "a count or a variance is negative"
    up, down, turns = arm.mean
    if up + down > turns * (1 + _ROUNDING):
        return "an arm has more thumbs than turns"
    return None if turns > 0 else "an arm has no turns"


def _sums(numbers: ArrayLike, field: str) -> NDArray[np.float64]:
    column = np.asarray(numbers, dtype=np.float64)
    if column.ndim != 1:
        raise BadInput.of(field, f"one number per unit, not {column.ndim} dimensions")
    if not (np.isfinite(column).all() and (column >= 0).all()):
        raise BadInput.of(field, "every number must be finite and 0 or more")
    return column


def _tuples(
    mean: NDArray[np.float64], cov: NDArray[np.float64]
) -> tuple[Triple, tuple[Triple, Triple, Triple]]:
    rows = [(float(a), float(b), float(c)) for a, b, c in (mean, *cov)]
    return rows[0], (rows[1], rows[2], rows[3])
