"""Two proportions: score tests and intervals that hold for small counts and at any margin."""

from math import copysign, inf, sqrt
from typing import Literal, get_args

import scipy

from experiments.stats._asked import Alternative, Asked, check_word, quantile
from experiments.stats._restricted import Counts, score, score_limits
from experiments.stats._roots import brentq
from experiments.stats.effect import Effect, check_alpha, is_count
from ingest.errors import BadInput

ProportionMethod = Literal["newcombe", "miettinen-nurminen", "mee", "wald"]
"""How two proportions are compared:

- "newcombe": the hybrid of two Wilson intervals; p is the level at which a limit meets the margin.
  Good from the smallest counts on.
- "miettinen-nurminen", "mee": z with the variance at the likeliest rates that are the margin apart,
  with and without the factor N / (N - 1); the interval inverts it. At margin 0, Mee's is the pooled
  z. For non-inferiority.
- "wald": z with the pooled variance at margin 0 and the separate one elsewhere, and the interval
  with the separate one. For large counts, and to compare with other tools.
"""

WALD_EXPECTED = 5
"""Successes and failures an arm must expect before Wald's normal approximation holds."""


def proportion_test(
    control: tuple[int, int],
    treatment: tuple[int, int],
    *,
    method: ProportionMethod = "newcombe",
    alternative: Alternative = "two-sided",
    margin: float = 0.0,
    alpha: float = 0.05,
) -> Effect:
    """Difference of two proportions, each (successes, units) of independent units.

    The hypothesis is that it is `margin`: a guardrail that may lose two points has margin -0.02 and
    the alternative "greater". `ci` excludes the margin exactly when `p_value` < `alpha`; for one
    side it is open (inf) on the other. `statistic` is a z with `p_value` as its tail. `std_error`
    has separate variances; if neither arm varies it is Agresti and Caffo's, for it cannot be 0.

    `reason`, and no numbers, if an arm has no units; for "wald" if an arm expects fewer than
    `WALD_EXPECTED` successes or failures, or test and interval contradict; for "newcombe" if its
    limits never reach the margin. Raises: BadInput if a count is no whole number in [0, units],
    `margin` not in (-1, 1), `alpha` not in (0, 1), or a word unknown.
    Sources: R. G. Newcombe, Statistics in Medicine 17 (1998) 873-890; O. Miettinen & M. Nurminen,
    ibid. 4 (1985) 213-226; R. W. Mee, Biometrics 40 (1984) 1175-1176.
    """
    _check_arm("control", control)
    _check_arm("treatment", treatment)
    check_word("method", method, get_args(ProportionMethod))
    units = control[1], treatment[1]
    asked = Asked(method, units, alpha, alternative=alternative, margin=margin)
    if not abs(margin) < 1:
        raise BadInput.of("margin", f"a difference of proportions is in (-1, 1), not {margin}")
    if not min(units):
        return asked.refuse("an arm has no units")
    counts = Counts((control[0], treatment[0]), units)
    if method == "wald":
        return _wald(asked, counts)
    return _newcombe(asked, counts) if method == "newcombe" else _score(asked, counts)


def wilson_interval(successes: int, units: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Limits of one proportion that cover it with probability about 1 - `alpha`, within [0, 1].

    Raises: BadInput if there are no units, `successes` is no whole number in [0, units], or
    `alpha` is not in (0, 1).
    Source: E. B. Wilson, J. Am. Statist. Assoc. 22 (1927) 209-212.
    """
    check_alpha(alpha)
    _check_arm("successes", (successes, units))
    if not units:
        raise BadInput.of("units", "a proportion of no units is unknown: give 1 or more")
    return _wilson(successes, units, -float(scipy.special.ndtri(alpha / 2)))


def _wilson(successes: int, units: int, z: float) -> tuple[float, float]:
    rate, square = successes / units, z * z
    middle = successes + square / 2
    half = z * sqrt(units * rate * (1 - rate) + square / 4)
    # The ends of the range are exact: rounding may not make 0 successes possible only above 1e-19.
    low = (middle - half) / (units + square) if successes else 0.0
    high = (middle + half) / (units + square) if successes < units else 1.0
    return low, high


def _wald(asked: Asked, counts: Counts) -> Effect:
    pooled = sum(counts.successes) / sum(counts.units)
    if min(counts.units) * min(pooled, 1 - pooled) < WALD_EXPECTED:
        return asked.refuse(
            f"an arm expects fewer than {WALD_EXPECTED} successes or failures: use newcombe"
        )
    apart = sqrt(counts.variance(counts.rates))
    null = apart if asked.margin else sqrt(counts.variance((pooled, pooled)))
    if not apart:
        return asked.refuse("neither arm varies: use newcombe")
    statistic = (counts.difference - asked.margin) / null
    effect = asked.answer(counts.difference, apart, df=inf, statistic=statistic)
    if effect.ci is None or effect.p_value is None:
        return effect
    outside = not effect.ci[0] <= asked.margin <= effect.ci[1]
    if outside != (effect.p_value < asked.alpha):
        return asked.refuse("the pooled test and the interval contradict: use miettinen-nurminen")
    return effect


def _score(asked: Asked, counts: Counts) -> Effect:
    total = sum(counts.units)
    factor = total / (total - 1) if asked.method == "miettinen-nurminen" else 1.0
    return asked.answer(
        counts.difference,
        _std_error(counts),
        df=inf,
        statistic=score(counts, asked.margin, factor=factor),
        ci=asked.side(*score_limits(counts, _z(asked), factor=factor)),
    )


def _newcombe(asked: Asked, counts: Counts) -> Effect:
    difference, gap = counts.difference, counts.difference - asked.margin
    side = 0 if gap > 0 else 1

    def short(z: float) -> float:
        """How far the limit on the margin's side still is from it at this z."""
        return (_newcombe_limits(counts, z)[side] - asked.margin) * (1 if gap > 0 else -1)

    z = 0.0
    if gap:
        far = 1.0
        while short(far) > 0:
            far *= 2
            if far > 1e9:
                return asked.refuse("the interval never reaches the margin: use miettinen-nurminen")
        z = float(brentq(short, 0.0, far, xtol=1e-12, rtol=1e-13))
    return asked.answer(
        difference,
        _std_error(counts),
        df=inf,
        statistic=copysign(z, gap),
        ci=asked.side(*_newcombe_limits(counts, _z(asked))),
    )


def _newcombe_limits(counts: Counts, z: float) -> tuple[float, float]:
    (base, rate), difference = counts.rates, counts.difference
    low0, high0 = _wilson(counts.successes[0], counts.units[0], z)
    low1, high1 = _wilson(counts.successes[1], counts.units[1], z)
    return (
        difference - sqrt((rate - low1) ** 2 + (high0 - base) ** 2),
        difference + sqrt((high1 - rate) ** 2 + (base - low0) ** 2),
    )


def _z(asked: Asked) -> float:
    return quantile(asked.alpha, inf, asked.alternative)


def _std_error(counts: Counts) -> float:
    if variance := counts.variance(counts.rates):
        return sqrt(variance)
    # A. Agresti & B. Caffo, The American Statistician 54 (2000) 280-288.
    added = Counts(
        (counts.successes[0] + 1, counts.successes[1] + 1),
        (counts.units[0] + 2, counts.units[1] + 2),
    )
    return sqrt(added.variance(added.rates))


def _check_arm(field: str, arm: tuple[int, int]) -> None:
    successes, units = arm
    if not (is_count(successes) and is_count(units)):
        raise BadInput.of(field, f"must be whole counts, not {successes} of {units}")
    if not 0 <= successes <= units:
        raise BadInput.of(field, f"must have 0 to {units} successes, not {successes}")
