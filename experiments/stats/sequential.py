"""Answers that stay valid however often somebody looks."""

from dataclasses import dataclass
from math import exp, log, log1p, sqrt

from experiments.stats.effect import Effect, check_alpha
from ingest.errors import BadInput

BURN_IN_UNITS = 200
"""Units each arm needs before the asymptotics of a confidence sequence hold."""


@dataclass(frozen=True)
class AnytimeResult:
    """One look at a confidence sequence, in the units of the effect it was made from.

    With probability 1 - `alpha` the intervals of all looks hold the truth at once, and a null
    effect has a `p_value` below `alpha` at any look with probability at most `alpha`.
    `reason` says why not to act: the burn-in (the numbers are given), or the effect's own (they are
    None).
    """

    estimate: float | None
    ci: tuple[float, float] | None
    p_value: float | None
    alpha: float
    burn_in_reached: bool
    reason: str | None = None


def confidence_sequence(
    effect: Effect, n: int, *, tuning_n: int, alpha: float = 0.05
) -> AnytimeResult:
    """The effect's two-sided asymptotic confidence sequence after `n` units of both arms.

    `tuning_n` is the total of units at which the interval shall be tightest, the planned end;
    another one midway voids the guarantee. Start to look at `BURN_IN_UNITS` an arm: earlier,
    `reason` says so. Decide on the absolute scale: a relative effect's sequence is made from its
    delta-method error, which can contradict the absolute one.

    Raises: BadInput if `n` or `tuning_n` is below 1, or `alpha` not in (0, 1).
    Source: I. Waudby-Smith et al., Annals of Statistics 52 (2024), arXiv 2103.06476.
    """
    check_alpha(alpha)
    for field, units in (("n", n), ("tuning_n", tuning_n)):
        if units < 1:
            raise BadInput.of(field, f"must be 1 or more units, not {units}")
    warm = min(effect.n_control, effect.n_treatment) >= BURN_IN_UNITS
    if effect.estimate is None or effect.std_error is None:
        return AnytimeResult(None, None, None, alpha, warm, effect.reason)
    # nρ², the sample's information in units of the mixture's prior, tuned for `tuning_n`.
    mixing = n * (log(1 - 2 * log(alpha)) - 2 * log(alpha)) / tuning_n
    half = effect.std_error * sqrt((1 + 1 / mixing) * (log1p(mixing) - 2 * log(alpha)))
    z = effect.estimate / effect.std_error
    log_p = 0.5 * log1p(mixing) - 0.5 * z**2 * mixing / (1 + mixing)
    return AnytimeResult(
        estimate=effect.estimate,
        ci=(effect.estimate - half, effect.estimate + half),
        p_value=exp(min(0.0, log_p)),
        alpha=alpha,
        burn_in_reached=warm,
        reason=None if warm else f"fewer than {BURN_IN_UNITS} units in an arm: too early to act",
    )
