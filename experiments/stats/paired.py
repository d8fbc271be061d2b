"""The same prompts through both checkpoints: McNemar's test, the sign test, prompt families."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Literal, Self, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from experiments.stats._arm import Arm
from experiments.stats._asked import Asked, check_word
from experiments.stats._roots import brentq
from experiments.stats.effect import Effect, is_count
from experiments.stats.moments import Moments
from experiments.stats.ratio import FEW_UNITS
from ingest.errors import BadInput

Method = Literal["exact", "mid-p"]

# Quantiles of the discordant share at which the melded distribution is integrated.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_LEVELS, _MASSES = (_NODES + 1) / 2, _WEIGHTS / 2


@dataclass(frozen=True)
class PairedCounts:
    """Prompts by which checkpoint passed."""

    both: int
    only_control: int
    only_treatment: int
    neither: int

    def __post_init__(self) -> None:
        counts = (self.both, self.only_control, self.only_treatment, self.neither)
        if not all(map(is_count, counts)):
            raise BadInput.of("pairs", f"must be whole counts, none negative: {list(counts)}")

    @classmethod
    def of(cls, control: ArrayLike, treatment: ArrayLike) -> Self:
        """Counted from one 0 or 1 per prompt and arm, in the same order.

        Raises: BadInput if the two differ in length or a result is not 0 or 1.
        """
        left, right = _passes(control, "control"), _passes(treatment, "treatment")
        if len(left) != len(right):
            raise BadInput.of("treatment", f"{len(right)} for {len(left)} results of control")
        both, only = int((left & right).sum()), int((left & ~right).sum())
        return cls(both, only, int((right & ~left).sum()), int((~left & ~right).sum()))

    @property
    def total(self) -> int:
        return self.both + self.only_control + self.only_treatment + self.neither


def mcnemar(pairs: PairedCounts, *, method: Method = "mid-p", alpha: float = 0.05) -> Effect:
    """Difference of two pass rates on the same prompts, treatment - control.

    The p is binomial on the prompts where one checkpoint passed and the other did not: "exact", at
    most the nominal error, or "mid-p", close to it. The interval melds those of the discordant
    prompts' share and of the treatment's share in them, and excludes 0 exactly when p < `alpha`.
    `statistic` is McNemar's z; `std_error` Wald's, for planning (Agresti and Min's where one side
    won all); `df` is infinite.

    `reason`, and no numbers, if no prompt tells the two apart. Prompts must be independent: for
    families of like prompts see `clustered_mcnemar`.

    Raises: BadInput if `alpha` is not in (0, 1) or `method` is unknown.
    Sources: Q. McNemar, Psychometrika 12 (1947) 153-157; M. W. Fagerland, S. Lydersen & P. Laake,
    BMC Med. Res. Methodology 13 (2013) 91; M. P. Fay & K. Lumbard, Statistics in Medicine 40
    (2021) 1147-1159.
    """
    counts = pairs.only_treatment, pairs.only_control
    return _discordant(*counts, pairs.total, name="McNemar", method=method, alpha=alpha)


def sign_test(
    wins: int, losses: int, ties: int = 0, *, method: Method = "mid-p", alpha: float = 0.05
) -> Effect:
    """How much oftener the treatment is preferred: (wins - losses) / all, ties among all.

    The same test and interval as `mcnemar`: ties say nothing of the direction, but much of the
    size, so they stay in the estimate. Judgements must be independent: for users who judge often
    see `clustered_sign_test`.

    `reason`, and no numbers, if all were ties. Raises: BadInput for a negative count, `alpha`
    outside (0, 1) or an unknown `method`.
    """
    if not all(map(is_count, (wins, losses, ties))):
        raise BadInput.of("wins", f"must be whole counts, none negative: {[wins, losses, ties]}")
    total = wins + losses + ties
    return _discordant(wins, losses, total, name="sign test", method=method, alpha=alpha)


def clustered_mcnemar(
    control: ArrayLike, treatment: ArrayLike, families: Sequence[object], *, alpha: float = 0.05
) -> Effect:
    """Difference of two pass rates on the same prompts, when prompts come in families.

    As `clustered_sign_test`, of 1 where only the treatment passed and -1 where only the control.

    Raises: BadInput if lengths differ, a result is not 0 or 1, or `alpha` is not in (0, 1).
    """
    left, right = _passes(control, "control"), _passes(treatment, "treatment")
    if len(left) != len(right):
        raise BadInput.of("treatment", f"{len(right)} for {len(left)} results of control")
    effect = clustered_sign_test(right.astype(int) - left, families, alpha=alpha)
    return replace(effect, method=effect.method.replace("sign test", "McNemar"))


def clustered_sign_test(
    preferences: ArrayLike, families: Sequence[object], *, alpha: float = 0.05
) -> Effect:
    """Mean preference (1 treatment, 0 tie, -1 control), when judgements come in families.

    A family is what was drawn: a group of like prompts, or a user. The error is the delta method's
    over families, t with families - 1 df; under `FEW_UNITS` of them `method` says so. `n_*` count
    families. `reason`, and no numbers, if there are fewer than 2 or they do not differ.

    Raises: BadInput if lengths differ, a preference is none of the three, or `alpha` is not in
    (0, 1).
    """
    signs = np.asarray(preferences, dtype=np.float64)
    if signs.ndim != 1 or not np.isin(signs, (-1, 0, 1)).all():
        raise BadInput.of("preferences", "one of -1, 0, 1 per judgement")
    if len(families) != len(signs):
        raise BadInput.of("families", f"{len(families)} for {len(signs)} judgements")
    numbers: dict[object, int] = {}
    owner = np.array([numbers.setdefault(each, len(numbers)) for each in families], dtype=np.intp)
    sums = Moments.of(np.bincount(owner, signs), np.bincount(owner))
    method = "clustered sign test" + (", few units" if sums.n < FEW_UNITS else "")
    asked = Asked(method, (sums.n, sums.n), alpha)
    if sums.n < 2:
        return asked.refuse("there are fewer than 2 families")
    mean = Arm.of(sums)
    if not mean.variance:
        return asked.refuse("the families do not differ")
    effect = asked.answer(mean.value, sqrt(mean.variance), df=sums.n - 1)
    low, high = effect.ci or (-1.0, 1.0)
    return replace(effect, ci=(max(low, -1.0), min(high, 1.0)))


def _discordant(
    wins: int, losses: int, total: int, *, name: str, method: Method, alpha: float
) -> Effect:
    check_word("method", method, get_args(Method))
    asked = Asked(f"{name}, {method}", (total, total), alpha)
    apart, gap = wins + losses, wins - losses
    if not apart:
        return asked.refuse("no pair tells the two apart")
    return asked.answer(
        gap / total,
        _wald_error(apart, gap, total),
        df=inf,
        statistic=gap / sqrt(apart),
        p_value=min(1.0, 2 * min(_tail(wins, losses, method), _tail(losses, wins, method))),
        ci=(
            _lower(wins, losses, total, method, alpha),
            -_lower(losses, wins, total, method, alpha),
        ),
    )


def _wald_error(apart: int, gap: int, total: int) -> float:
    """Wald's standard error; where one side won all, Agresti and Min's, for it cannot be 0.

    Source: A. Agresti & Y. Min, Statistics in Medicine 24 (2005) 729-740.
    """
    spread = apart - gap * gap / total
    if spread <= 0:
        apart, total = apart + 1, total + 2
        spread = apart - gap * gap / total
    return sqrt(spread) / total


def _tail(wins: int, losses: int, method: Method) -> float:
    """P(as many wins or more) of a fair coin; for mid-p only half of P(just as many) is in it."""
    least = _below(0.5, wins, losses + 1)
    return least if method == "exact" else (least + _below(0.5, wins + 1, losses)) / 2


def _below(share: float, a: float, b: float) -> float:
    """P(Beta(a, b) <= share), where a = 0 is all at 0 and b = 0 all at 1."""
    if a == 0:
        return float(share >= 0)
    if b == 0:
        return float(share >= 1)
    return float(scipy.special.betainc(a, b, min(max(share, 0.0), 1.0)))


def _lower(wins: int, losses: int, total: int, method: Method, alpha: float) -> float:
    """The gap's lower limit: the alpha / 2 quantile of discordant share × (2 × wins' share - 1).

    Each share has the confidence distribution its binomial test belongs to, for mid-p the even
    mixture of the two. Where the product is negative it is the larger discordant share that lowers
    it.
    """
    apart, rest = wins + losses, total - wins - losses
    small, large = _Discordant(apart, rest + 1), _Discordant(apart + 1, rest)
    least, most = (wins, losses + 1), (wins + 1, losses)

    def surplus(gap: float) -> float:
        if method == "exact":
            chance = (small if gap > 0 else large).below(gap, *least)
        else:
            pairs = [(share, beta) for share in (small, large) for beta in (least, most)]
            chance = sum(share.below(gap, *beta) for share, beta in pairs) / 4
        return chance - alpha / 2

    # Sign first: the quantile is positive exactly when the test rejects.
    if _tail(wins, losses, method) < alpha / 2:
        return float(brentq(surplus, 0.0, 1.0, xtol=1e-12))
    if surplus(-1.0) >= 0:
        return -1.0
    return float(brentq(surplus, -1.0, 0.0, xtol=1e-12))


class _Discordant:
    """A confidence distribution of the share of pairs that tell the two apart."""

    def __init__(self, a: int, b: int) -> None:
        self._a, self._b = a, b
        self._levels = scipy.special.betaincinv(a, b, _LEVELS) if b else np.ones_like(_LEVELS)

    def below(self, gap: float, a: int, b: int) -> float:
        """P(share × (2 × Beta(a, b) - 1) <= gap)."""
        if a == 0:
            return _below(1 + gap, self._b, self._a) if gap < 0 else 1.0
        if b == 0:
            return _below(gap, self._a, self._b)
        shares = np.clip((1 + gap / self._levels) / 2, 0.0, 1.0)
        return float(_MASSES @ scipy.special.betainc(a, b, shares))


def _passes(results: ArrayLike, field: str) -> NDArray[np.bool_]:
    column = np.asarray(results, dtype=np.float64)
    if column.ndim != 1 or not np.isin(column, (0, 1)).all():
        raise BadInput.of(field, "one 0 or 1 per prompt")
    return np.asarray(column == 1)
