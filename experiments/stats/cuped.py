"""Less noise by what units did before: CUPED, and Lin's regression, for means and ratios.

"pooled" takes one slope θ = cov(Y, X) / var(X) of both arms together off both. "lin" takes each
arm's own: the regression on the arm, the centred covariate and their product, which in large
samples never does worse than no adjustment, whatever the split. Its variance is that of each arm's
residuals (n - 2 df) and, since units are a sample, of the mean covariate where two different slopes
are read. Ratios enter linearised.

Sources: A. Deng, Y. Xu, R. Kohavi & T. Walker, WSDM 2013; W. Lin, Annals of Applied Statistics 7
(2013) 295-318; A. Negi & J. M. Wooldridge, Econometric Reviews 40 (2021) 504-534.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

import numpy as np

from experiments.stats._asked import Asked
from experiments.stats._contrast import Contrast, satterthwaite
from experiments.stats._premoments import Linear, PreMoments
from experiments.stats.effect import TOO_LARGE, Effect, Scale
from experiments.stats.ratio import FEW_UNITS, ratio_test, relative_interval
from ingest.errors import BadInput

__all__ = ["PRE_ALARM", "Cuped", "PreMoments", "cuped", "pre_imbalance"]

PRE_ALARM = 0.001
"""A difference before the experiment with a p below this, over all covariates, is no chance."""

# An adjusted variance below this share of the variance before is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Cuped:
    """The adjusted effect on both scales, and what the adjustment did.

    `thetas` are the slopes taken off control and treatment. `variance_factor` is the variance of
    the difference over that without adjustment: 1 - ρ² where the arms agree, so 0.5 halves the
    units a test needs. Both are None where `absolute` has a reason. `note` says what a reader must
    know of units without a past.
    """

    absolute: Effect
    relative: Effect
    thetas: tuple[float, float] | None
    variance_factor: float | None
    note: str | None = None


@np.errstate(all="ignore")
def cuped(
    control: PreMoments,
    treatment: PreMoments,
    *,
    adjustment: Literal["pooled", "lin"] = "pooled",
    alpha: float = 0.05,
) -> Cuped:
    """Difference of two means or ratios, less what the covariate explains, and its lift.

    Interval and p are Student's with Satterthwaite's df. The lift is over the control's
    *unadjusted* value, by Fieller's interval with the joint covariance of that value and the
    adjusted difference; both scales have one p. Its `std_error` is the delta method's.

    The covariate must end before the unit's own first exposure: one that the treatment moves takes
    the effect off. Where it does not vary the effect is `ratio_test`'s, and `method` says so.

    `reason`, and no numbers, where `ratio_test` has one, if a moment of the covariate is not
    finite, if the covariate explains all (it is the outcome itself), or, for "lin", with fewer than
    3 units in an arm.

    Raises: BadInput if `alpha` is not in (0, 1).
    """
    plain = ratio_test(control.outcome, treatment.outcome, alpha=alpha)
    method = "CUPED" if adjustment == "pooled" else "CUPED, Lin"
    if min(control.n, treatment.n) < FEW_UNITS:
        method += ", few units"
    asked = [Asked(method, (control.n, treatment.n), alpha, scale) for scale in _SCALES]
    if reason := plain.reason or _unfit(control, treatment, adjustment):
        return _refused(asked, reason, _note(control, treatment))
    pair = _Pair.of(control, treatment)
    if pair is None:
        return _unadjusted(control, treatment, plain)
    thetas = pair.pooled_slope() if adjustment == "pooled" else pair.own_slopes()
    contrast = pair.pooled(thetas[0]) if adjustment == "pooled" else pair.lin(*thetas)
    factor = contrast.variance / pair.unadjusted_variance
    if reason := _worthless(*thetas, factor):
        return _refused(asked, reason, _note(control, treatment))
    absolute, relative = (contrast.effect(each) for each in asked)
    return Cuped(absolute, relative, thetas, factor, _note(control, treatment))


def pre_imbalance(control: PreMoments, treatment: PreMoments, *, covariates: int = 1) -> Effect:
    """Difference of the covariate between arms, before the experiment could have made one.

    Tested at `PRE_ALARM` over the number of `covariates` that are tested (Bonferroni): a p below
    the effect's `alpha` says that the arms were not alike, or that the covariate is not from before.
    Raises: BadInput if `covariates` is below 1.
    """
    if covariates < 1:
        raise BadInput.of("covariates", f"must be at least 1, not {covariates}")
    return ratio_test(control.pre, treatment.pre, alpha=PRE_ALARM / covariates)


_SCALES: tuple[Scale, Scale] = ("absolute", "relative")


@dataclass(frozen=True)
class _Pair:
    """Two arms whose covariate varies, their values linearised, alone and both as one."""

    control: Linear
    treatment: Linear
    both: Linear
    n_control: int
    n_treatment: int
    # The control's part of the covariate's denominator: its weight in the covariate's mean.
    share: float

    @classmethod
    def of(cls, control: PreMoments, treatment: PreMoments) -> "_Pair | None":
        both = control + treatment
        if not (control.mean[3] and treatment.mean[3] and both.mean[3] and both.mean[1]):
            return None
        linear = Linear.of(control), Linear.of(treatment), Linear.of(both)
        if not all(each.pre_var for each in linear):
            return None
        share = control.n * control.mean[3] / both.n / both.mean[3]
        return cls(*linear, control.n, treatment.n, share)

    @property
    def unadjusted_variance(self) -> float:
        control, treatment = self.control.outcome_var, self.treatment.outcome_var
        return control / self.n_control + treatment / self.n_treatment

    def pooled_slope(self) -> tuple[float, float]:
        slope = self.both.cov / self.both.pre_var
        return slope, slope

    def own_slopes(self) -> tuple[float, float]:
        return self.control.cov / self.control.pre_var, self.treatment.cov / self.treatment.pre_var

    def pooled(self, slope: float) -> Contrast:
        def variance(arm: Linear, n: int) -> float:
            return (arm.outcome_var - 2 * slope * arm.cov + slope * slope * arm.pre_var) / n

        parts = variance(self.control, self.n_control), variance(self.treatment, self.n_treatment)
        difference = self.treatment.outcome - self.control.outcome
        return self._contrast(
            difference - slope * (self.treatment.pre - self.control.pre),
            variances=parts,
            extra=0.0,
            spent=1,
            cov=-(self.control.outcome_var - slope * self.control.cov) / self.n_control,
        )

    def lin(self, slope: float, treated_slope: float) -> Contrast:
        def variance(arm: Linear, n: int) -> float:
            left = (arm.outcome_var - arm.cov * arm.cov / arm.pre_var) * (n - 1) / (n - 2)
            off = arm.pre - self.both.pre
            return left * (1 / n + off * off / (n - 1) / arm.pre_var)

        def level(arm: Linear, own: float) -> float:
            return arm.outcome - own * (arm.pre - self.both.pre)

        tilt, shares = treated_slope - slope, (self.share, 1 - self.share)
        arms = (self.control, self.n_control), (self.treatment, self.n_treatment)
        where = sum(s**2 * arm.pre_var / n for s, (arm, n) in zip(shares, arms, strict=True))
        left = self.control.outcome_var - slope * self.control.cov
        return self._contrast(
            level(self.treatment, treated_slope) - level(self.control, slope),
            variances=(variance(*arms[0]), variance(*arms[1])),
            extra=tilt * tilt * where,
            spent=2,
            cov=(tilt * self.share * self.control.cov - left) / self.n_control,
        )

    def _contrast(
        self,
        difference: float,
        *,
        variances: tuple[float, float],
        extra: float,
        spent: int,
        cov: float,
    ) -> Contrast:
        df = self.n_control - spent, self.n_treatment - spent
        return Contrast(
            difference=difference,
            variance=max(sum(variances) + extra, 0.0),
            base=self.control.outcome,
            base_variance=self.control.outcome_var / self.n_control,
            cov=cov,
            df=satterthwaite(zip((max(v, 0.0) for v in variances), df, strict=True)),
            plain=self.treatment.outcome - self.control.outcome,
        )


def _unfit(control: PreMoments, treatment: PreMoments, adjustment: str) -> str | None:
    if not all(np.isfinite((*arm.mean, *np.ravel(arm.cov))).all() for arm in (control, treatment)):
        return "a moment of the covariate is not finite"
    if adjustment == "lin" and min(control.n, treatment.n) < 3:
        return "an arm has fewer than 3 units"
    return None


def _worthless(slope: float, other: float, factor: float) -> str | None:
    if not all(map(isfinite, (slope, other, factor))):
        return TOO_LARGE
    explains_all = factor <= _ROUNDING
    return "the covariate explains all: it is the outcome itself" if explains_all else None


def _refused(asked: Sequence[Asked], reason: str, note: str | None) -> Cuped:
    absolute, relative = (each.refuse(reason) for each in asked)
    return Cuped(absolute, relative, None, None, note)


def _unadjusted(control: PreMoments, treatment: PreMoments, plain: Effect) -> Cuped:
    lift = relative_interval(control.outcome, treatment.outcome, alpha=plain.alpha)
    absolute, relative = (
        replace(each, method=f"{each.method}, unadjusted: the covariate does not vary")
        for each in (plain, lift)
    )
    return Cuped(absolute, relative, (0.0, 0.0), 1.0, _note(control, treatment))


def _note(control: PreMoments, treatment: PreMoments) -> str | None:
    if not control.missing + treatment.missing:
        return None
    shares = (f"{arm.missing / max(arm.n, 1):.1%}" for arm in (control, treatment))
    return (
        f"{' and '.join(shares)} of control and treatment have no past: a stratum of new units, "
        "kept with a covariate of 0"
    )
