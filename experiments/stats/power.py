"""How many units a test needs, and what it can see with those it has."""

from dataclasses import dataclass
from math import ceil, inf, isfinite, sqrt
from typing import Unpack

import scipy

from experiments.stats._arm import Arm, unfit
from experiments.stats._chi import scales
from experiments.stats._design import Checked, Design
from experiments.stats._roots import brentq
from experiments.stats.effect import MOST, Scale, check_alpha, is_count
from experiments.stats.moments import Moments
from ingest.errors import BadInput


@dataclass(frozen=True)
class Plan:
    """Units per arm that see a true effect of `mde` with probability `power`, or a `reason`.

    `mde` is in the units of `scale`, parts of the baseline for "relative". `power` is what each
    test must have, after the guardrails' share. `days` is None where no rate was given; run whole
    weeks, and 7 days at the least.
    """

    n_control: int | None
    n_treatment: int | None
    mde: float | None
    days: int | None
    scale: Scale
    power: float
    alpha: float
    reason: str | None = None

    @property
    def total(self) -> int | None:
        """Units of both arms."""
        if self.n_control is None or self.n_treatment is None:
            return None
        return self.n_control + self.n_treatment


def sample_size(baseline: Moments | float, mde: float, **design: Unpack[Design]) -> Plan:
    """Units that a test needs to see a change of `mde` from the baseline.

    The baseline is a unit's moments (a mean, or a ratio by the delta method) or, as a float, the
    share of units that convert. `mde` is a part of the baseline, or with `scale="absolute"` in its
    units; negative is a fall. `Design` says what else can be asked. A guardrail is planned with
    `sides=1` and its margin, negative where higher is better: as `noninferiority_test` has it.

    Moments: (z_alpha + z_beta)² (v_control + v_treatment / ratio) / mde², and Student's share
    (about one unit). A relative lift r of a mean is planned with its own error, which grows with
    it: v (1 + r)² for the control, for two sides at least v. Shares: the pooled variance under no
    effect, each arm's own under the effect, as R's power.prop.test.

    `reason`, and no numbers, if the baseline has no variance or (relative) is 0, or the change is
    unreachable because a share would pass 0 or 1.

    Raises: BadInput if `mde` is 0 or not finite, a share is not in (0, 1), or a number of the
    design is out of its range.
    Sources: R. Kohavi et al., Data Mining and Knowledge Discovery 18 (2009) 140-181; M. Schultzberg
    et al., arXiv 2402.11609; R. Schouten, Statistics in Medicine 18 (1999) 87-91.
    """
    asked = Checked(**design)
    if not isfinite(mde) or mde == 0:
        raise BadInput.of("mde", f"must be a change, not {mde}")
    metric = _metric(baseline)
    if isinstance(metric, str):
        return _refusal(asked, metric)
    need = metric.need(mde, asked)
    return _refusal(asked, need) if isinstance(need, str) else _plan(asked, need, mde)


def minimum_detectable_effect(
    baseline: Moments | float, n_control: int, **design: Unpack[Design]
) -> Plan:
    """The smallest rise that a test with `n_control` units (and `ratio` times as many) can see.

    `sample_size` backwards: same baselines, design and formulas, the quadratic solved for a
    relative lift. `reason` also if no rise is reachable: the control is so noisy that a lift's own
    error grows faster than the lift, or a share would have to pass 1.

    Raises: BadInput if `n_control` is below 2, a share is not in (0, 1), or a number of the design
    is out of its range.
    """
    asked = Checked(**design)
    if not (is_count(n_control) and n_control >= 2):
        raise BadInput.of("n_control", f"must be 2 or more units, not {n_control}")
    metric = _metric(baseline)
    if isinstance(metric, str):
        return _refusal(asked, metric)
    mde = metric.reach(n_control, asked)
    return _refusal(asked, mde) if isinstance(mde, str) else _plan(asked, n_control, mde)


def t_test_power(effect_size: float, n: float, *, alpha: float = 0.05, ratio: float = 1.0) -> float:
    """Chance of a two-sided t test with `n` and `ratio` n units to see `effect_size` deviations.

    Exact for normal units of equal variance, by the noncentral t (scipy's has no value far out); either side's rejection counts.
    Raises: BadInput if an arm has fewer than 2 units, or `alpha` is not in (0, 1).
    """
    check_alpha(alpha)
    if not all(2 <= units <= MOST for units in (n, n * ratio)):
        raise BadInput.of("n", f"must be 2 or more units an arm, not {n} and {n * ratio}")
    if not isfinite(effect_size):
        raise BadInput.of("effect_size", f"must be finite, not {effect_size}")
    df, shift = n * (1 + ratio) - 2, effect_size * sqrt(n * ratio / (1 + ratio))
    t = -float(scipy.special.stdtrit(df, alpha / 2))
    # The tails at a far t are narrower than the density of the errors.
    errors, mass = scales(0.0, df, step=0.1)
    return float(
        mass @ (scipy.special.ndtr(shift - t * errors) + scipy.special.ndtr(-shift - t * errors))
    )


def t_test_n(
    effect_size: float, *, power: float = 0.8, alpha: float = 0.05, ratio: float = 1.0
) -> float:
    """Control units, not rounded, at which `t_test_power` is `power`; 2 or more in each arm.

    Raises: BadInput if `effect_size` is below 1e-7, `power` not in (alpha, 1), or as `t_test_power`.
    """
    Checked(power=power, alpha=alpha, ratio=ratio)
    if not 1e-7 <= abs(effect_size) < inf:
        raise BadInput.of("effect_size", f"must be a change of 1e-7 or more, not {effect_size}")
    low = max(2.0, 2 / ratio)
    high = (
        low
        + 8
        + 4
        * ((scipy.special.ndtri(power) - scipy.special.ndtri(alpha / 2)) / effect_size) ** 2
        * (1 + 1 / ratio)
    )

    def short(n: float) -> float:
        return t_test_power(effect_size, n, alpha=alpha, ratio=ratio) - power

    return low if short(low) >= 0 else float(brentq(short, low, high, rtol=1e-12))


def proportion_power(
    p_control: float, p_treatment: float, n: float, *, alpha: float = 0.05
) -> float:
    """Chance of a two-sided pooled z test with `n` units an arm to see two shares apart.

    As R's power.prop.test: a rejection on the wrong side does not count.
    Raises: BadInput if a share is not in (0, 1), `n` not above 0, or `alpha` not in (0, 1).
    """
    check_alpha(alpha)
    if not n > 0:
        raise BadInput.of("n", f"must be above 0, not {n}")
    share, other = _Share.of(p_control), _Share.of(p_treatment)
    null, own = share.errors(other.rate, 1.0)
    return float(
        scipy.special.ndtr(
            (abs(other.rate - share.rate) * sqrt(n) + scipy.special.ndtri(alpha / 2) * null) / own
        )
    )


def proportion_n(
    p_control: float, p_treatment: float, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Units an arm, not rounded, at which `proportion_power` is `power`.

    Raises: BadInput if the shares are equal or not in (0, 1), or `power` not in (alpha, 1).
    """
    share, other = _Share.of(p_control), _Share.of(p_treatment)
    if share == other:
        raise BadInput.of("p_treatment", "must differ from p_control")
    return share.units(other.rate - share.rate, Checked(power=power, alpha=alpha))


@dataclass(frozen=True)
class _Mean:
    """A mean or ratio with the variance of one unit's part in it."""

    value: float
    variance: float

    def need(self, mde: float, asked: Checked) -> float | str:
        change, own = mde, 1.0
        if asked.scale == "relative":
            change, own = mde * self.value, (1 + mde) * (1 + mde)
            # The absolute test of a fall has no less error for the fall's sake.
            own = max(own, 1.0) if asked.sides == 2 else own
        if not change:
            return "the baseline is 0, so its lift is undefined"
        spread = self.variance * (own + 1 / asked.ratio)
        return self._multiple(asked) * spread / change / change + _students_share(asked)

    def reach(self, n: int, asked: Checked) -> float | str:
        units = n - _students_share(asked)
        if units <= 0:
            return "unreachable: too few units for the error rate"
        noise, both = self._multiple(asked) * self.variance / units, 1 + 1 / asked.ratio
        if asked.scale == "absolute":
            return sqrt(noise * both)
        if not self.value:
            return "the baseline is 0, so its lift is undefined"
        # r² = noise / value² · (1 / ratio + (1 + r)²), solved for the r above 0.
        spare = self.value / noise * self.value - 1
        if spare <= 0:
            return "unreachable: the baseline is too noisy for any lift at so few units"
        return (1 + sqrt(1 + spare * both)) / spare

    def _multiple(self, asked: Checked) -> float:
        return asked.factor * (asked.critical + asked.reserve) ** 2


@dataclass(frozen=True)
class _Share:
    """The share of units that convert."""

    rate: float

    @classmethod
    def of(cls, rate: float) -> "_Share":
        if not 0 < rate < 1:
            raise BadInput.of("baseline", f"a share must be in (0, 1), not {rate}")
        return cls(rate)

    def errors(self, other: float, ratio: float) -> tuple[float, float]:
        """Of the difference with one control unit: if all have one share, and each its own."""
        pooled = (self.rate + ratio * other) / (1 + ratio)
        null = pooled * (1 - pooled) * (1 + 1 / ratio)
        return sqrt(null), sqrt(self.rate * (1 - self.rate) + other * (1 - other) / ratio)

    def units(self, change: float, asked: Checked) -> float:
        null, own = self.errors(self.rate + change, asked.ratio)
        errors = (asked.critical * null + asked.reserve * own) / change
        return asked.factor * errors * errors

    def need(self, mde: float, asked: Checked) -> float | str:
        change = mde * self.rate if asked.scale == "relative" else mde
        if not change:
            return "unreachable: no finite plan"
        if not 0 <= self.rate + change <= 1:
            return f"unreachable: a share of {self.rate:g} cannot change by {change:g}"
        return self.units(change, asked)

    def reach(self, n: int, asked: Checked) -> float | str:
        most = 1 - self.rate
        if self.units(most, asked) > n:
            return "unreachable: even a share of 1 needs more units"
        least = most * 1e-12
        change = float(
            brentq(lambda rise: self.units(rise, asked) / n - 1, least, most, rtol=1e-12)
        )
        return change / self.rate if asked.scale == "relative" else change


def _metric(baseline: Moments | float) -> _Mean | _Share | str:
    if not isinstance(baseline, Moments):
        return _Share.of(baseline)
    if reason := unfit(baseline):
        return reason
    arm = Arm.of(baseline)
    if not arm.variance:
        return "the baseline does not vary"
    return _Mean(arm.value, arm.variance * arm.n)


def _students_share(asked: Checked) -> float:
    """Control units that Student's t needs beyond the normal: z² n / (2 df) at the planned split."""
    inverse = 1 / asked.ratio
    return asked.critical**2 * (1 + inverse**3) / (2 * (1 + inverse) ** 2)


def _plan(asked: Checked, n_control: float, mde: float) -> Plan:
    if not (isfinite(n_control) and isfinite(mde)):
        return _refusal(asked, "unreachable: no finite plan")
    # A unit's share of 1e-9 is rounding, not need.
    control = max(ceil(n_control - 1e-9), asked.fewest)
    treatment = max(ceil(n_control * asked.ratio - 1e-9), asked.fewest)
    days = asked.days(control + treatment)
    return Plan(control, treatment, mde, days, asked.scale, asked.own_power, asked.alpha)


def _refusal(asked: Checked, reason: str) -> Plan:
    return Plan(None, None, None, None, asked.scale, asked.own_power, asked.alpha, reason)
