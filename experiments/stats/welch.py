"""Welch's test on moments: both scales, one side or two, any margin; relative non-inferiority."""

from math import copysign, exp, expm1, inf, isfinite, log, log1p, sqrt
from sys import float_info

import scipy

from experiments.stats._arm import Arm, unfit
from experiments.stats._asked import Alternative, Asked, quantile
from experiments.stats._contrast import Contrast
from experiments.stats.effect import Effect, Scale
from experiments.stats.moments import Moments
from experiments.stats.ratio import FEW_UNITS
from ingest.errors import BadInput


def welch_test(
    control: Moments,
    treatment: Moments,
    *,
    scale: Scale = "absolute",
    alternative: Alternative = "two-sided",
    alpha: float = 0.05,
    margin: float = 0.0,
) -> Effect:
    """Difference of two means or, on the relative scale, that difference over |control|.

    Tests that the effect is `margin`, in units of `scale`: "greater" with -0.1 asks for
    non-inferiority. `ci` excludes the margin exactly when `p_value` < `alpha`; for one side it is
    open (inf) on the other. The relative error is the delta method's, with the absolute df: it can
    contradict the absolute test, so decide on that, or show `relative_interval`. Ratios are
    linearised per unit, with the mark for few units, as in `ratio_test`.

    `reason`, and no numbers, if an arm has fewer than 2 units, neither varies, a moment is not
    finite or, on the relative scale, the control is not significantly different from 0.
    Raises: BadInput if `alpha` is not in (0, 1), `margin` not finite, or a word unknown.
    Source: B. L. Welch, Biometrika 34 (1947) 28-35.
    """
    asked = Asked(
        _method(control, treatment), (control.n, treatment.n), alpha, scale, alternative, margin
    )
    if reason := unfit(control) or unfit(treatment):
        return asked.refuse(reason)
    pair = Contrast.of_moments(control, treatment)
    if reason := pair.unusable:
        return asked.refuse(reason)
    if scale == "absolute":
        return asked.answer(pair.difference, sqrt(pair.variance), df=pair.df)
    if reason := pair.no_lift(quantile(alpha, pair.df, "two-sided")):
        return asked.refuse(reason)
    return asked.answer(pair.lift, pair.lift_error, df=pair.df)


def noninferiority_test(
    control: Moments,
    treatment: Moments,
    *,
    margin: float,
    lower_is_better: bool = False,
    alpha: float = 0.05,
) -> Effect:
    """Is the treatment worse than the control by less than `margin`, a part of the control?

    Tests treatment - (1 - margin) control > 0; for a metric that is better lower, treatment -
    (1 + margin) control < 0. The effect is the lift with Fieller's one-sided limit, which clears
    the margin exactly when `p_value` < `alpha`: both have Satterthwaite's df at the margin.
    `std_error` is the delta method's, for planning. Set the margin before the data. `reason`, and
    no numbers, where `welch_test` on the relative scale has one.

    Raises: BadInput if `alpha` is not in (0, 1) or `margin` not in [0, 1).
    Source: D. Hauschke, M. Kieser & L. A. Hothorn, Biometrical J. 41 (1999) 295-304.
    """
    if not 0 <= margin < 1:
        raise BadInput.of("margin", f"must be a part of the control in [0, 1), not {margin}")
    side: Alternative = "less" if lower_is_better else "greater"
    worst = margin if lower_is_better else -margin
    asked = Asked("fieller", (control.n, treatment.n), alpha, "relative", side, worst)
    if reason := unfit(control) or unfit(treatment):
        return asked.refuse(reason)
    at_margin = _at_margin(control, treatment, worst)
    if reason := at_margin.unusable:
        return asked.refuse(reason)
    pair, t = Contrast.of_moments(control, treatment), quantile(alpha, at_margin.df, side)
    if reason := pair.no_lift(t):
        return asked.refuse(reason)
    return asked.answer(
        pair.lift,
        pair.lift_error,
        df=at_margin.df,
        statistic=at_margin.statistic,
        ci=asked.side(*pair.lift_limits(t)),
    )


def _at_margin(control: Moments, treatment: Moments, worst: float) -> Contrast:
    """Treatment against what the control would be at the margin."""
    base, other = Arm.of(control), Arm.of(treatment)
    ratio = 1 + worst * copysign(1.0, base.value)
    return Contrast.of_arms(
        (ratio * base.value, ratio * ratio * base.variance),
        (other.value, other.variance),
        (base.n - 1, other.n - 1),
    )


def log_p_value(effect: Effect) -> float | None:
    """Natural logarithm of the effect's p, also where the p itself is too small for a float.

    None where the effect has none. A `p_value` of 0.0 says only "below 1e-308"; this says how far.
    """
    p, statistic, df = effect.p_value, effect.statistic, effect.df
    if p is None or statistic is None or df is None:
        return None
    if p >= float_info.min:
        return log(p)
    sides = log(2) if effect.ci is None or all(map(isfinite, effect.ci)) else 0.0
    return sides + _log_student_tail(abs(statistic), df)


def _log_student_tail(t: float, df: float) -> float:
    """The log of P(T > t) for a t far out: half the incomplete beta I_x(df/2, 1/2) at x = df / (df + t²).

    Lentz's continued fraction in the form of W. H. Press et al., Numerical Recipes, section 6.4.
    """
    if df == inf or t * t / df < 1e-8:
        return float(scipy.special.log_ndtr(-t))
    a, b, log_x = df / 2, 0.5, -log1p(t / df * t)
    x = exp(log_x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / (a + 2 * m - 1) / (a + 2 * m)
        odd = -(a + m) * (a + b + m) * x / (a + 2 * m) / (a + 2 * m + 1)
        before = fraction
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(fraction - before) <= 1e-15 * abs(fraction):
            break
    log_power = a * log_x + b * log(-expm1(log_x))
    return log_power - log(2 * a) - float(scipy.special.betaln(a, b)) + log(fraction)


def _method(control: Moments, treatment: Moments) -> str:
    if not (control.den_var or treatment.den_var):
        return "welch"
    return "delta, few units" if min(control.n, treatment.n) < FEW_UNITS else "delta"
