"""The mixture sequential probability ratio test of two streams of equal length."""

from math import inf, isfinite, log1p

from experiments.stats.effect import TOO_LARGE
from experiments.stats.sequential import EValue
from ingest.errors import BadInput


def msprt(diff: float, n_per_arm: int, variance: float, mixing_variance: float) -> EValue:
    """The evidence of a difference `diff` of two means of `n_per_arm` units each against 0.

    `variance` is a unit's, common to both arms and taken as known: with an estimated one the
    guarantee is asymptotic. `mixing_variance` is a variance too, that of the normal prior of
    differences, in squared units of the metric: what some packages call τ is its root. It is chosen
    before the start; about the square of the difference hoped for is best. The smallest p of all
    looks so far holds as well.

    Raises: BadInput if `n_per_arm` is below 1, a variance is not above 0, or a number not finite. `reason` where floats do not reach.
    Sources: H. Robbins, Annals of Mathematical Statistics 41 (1970) 1397-1409; R. Johari, P. Koomen,
    L. Pekelis & D. Walsh, Operations Research 70 (2022) 1806-1821.
    """
    if not isfinite(diff):
        raise BadInput.of("diff", f"must be finite, not {diff}")
    if not 1 <= n_per_arm < inf:
        raise BadInput.of("n_per_arm", f"must be 1 or more units, not {n_per_arm}")
    for field, value in (("variance", variance), ("mixing_variance", mixing_variance)):
        if not (isfinite(value) and value > 0):
            raise BadInput.of(field, f"must be finite and above 0, not {value}")
    noise = 2 * variance / n_per_arm  # of the difference
    if not noise:
        return EValue(None, None, TOO_LARGE)
    ratio = mixing_variance / noise
    log_e = 0.5 * (diff * diff / noise * ratio / (1 + ratio) - log1p(ratio))
    return EValue.of(log_e) if isfinite(log_e) else EValue(None, None, TOO_LARGE)
