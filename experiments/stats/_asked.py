"""What is asked of two arms, and the tails and intervals an answer is read from."""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal, get_args

import scipy

from experiments.stats.effect import TOO_LARGE, Effect, Scale, check_alpha
from ingest.errors import BadInput

Alternative = Literal["two-sided", "greater", "less"]


@dataclass(frozen=True)
class Asked:
    """A question to two arms, checked: what an Effect says apart from the numbers.

    Raises: BadInput if `alpha` is not in (0, 1), `margin` is not finite, or a word is not one of
    its type's.
    """

    method: str
    units: tuple[int, int]
    alpha: float
    scale: Scale = "absolute"
    alternative: Alternative = "two-sided"
    margin: float = 0.0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_word("scale", self.scale, get_args(Scale))
        check_word("alternative", self.alternative, get_args(Alternative))
        if not isfinite(self.margin):
            raise BadInput.of("margin", f"must be finite, not {self.margin}")

    def refuse(self, reason: str) -> Effect:
        return Effect(
            None,
            None,
            None,
            None,
            None,
            None,
            self.alpha,
            self.scale,
            self._title,
            *self.units,
            reason,
        )

    def answer(
        self,
        estimate: float,
        std_error: float,
        *,
        df: float,
        statistic: float | None = None,
        p_value: float | None = None,
        ci: tuple[float, float] | None = None,
    ) -> Effect:
        """The effect; what is not given follows from Student's t with `df` (inf is the normal).

        A reason instead, if any of it left the floats on the way.
        """
        if statistic is None:
            if not std_error:
                return self.refuse("the effect has no error")
            statistic = (estimate - self.margin) / std_error
        if p_value is None:
            p_value = tail(statistic, df, self.alternative)
        if ci is None:
            half = quantile(self.alpha, df, self.alternative) * std_error
            ci = self.side(estimate - half, estimate + half)
        low = estimate if self.alternative == "less" else ci[0]
        high = estimate if self.alternative == "greater" else ci[1]
        if not all(map(isfinite, (estimate, std_error, statistic, low, high))):
            return self.refuse(TOO_LARGE)
        numbers = (estimate, std_error, df, statistic, p_value, ci)
        return Effect(*numbers, self.alpha, self.scale, self._title, *self.units)

    def side(self, low: float, high: float) -> tuple[float, float]:
        """Both limits, or the one that the alternative asks for and no other."""
        return (
            -inf if self.alternative == "less" else low,
            inf if self.alternative == "greater" else high,
        )

    @property
    def _title(self) -> str:
        side = "" if self.alternative == "two-sided" else f", {self.alternative}"
        return self.method + side + (f", margin {self.margin:g}" if self.margin else "")


def check_word(field: str, word: str, words: Collection[str]) -> None:
    """Nothing, or BadInput if `word` is none of `words`."""
    if word not in words:
        raise BadInput.of(field, f"must be one of {', '.join(words)}, not {word}")


def tail(statistic: float, df: float, alternative: Alternative) -> float:
    """The p-value; always from a lower tail, so no small p is lost to 1 - p."""
    if alternative == "two-sided":
        return 2 * float(scipy.special.stdtr(df, -abs(statistic)))
    return float(scipy.special.stdtr(df, -statistic if alternative == "greater" else statistic))


def quantile(alpha: float, df: float, alternative: Alternative) -> float:
    """The t that is exceeded with probability `alpha`, on both sides together or on one."""
    return -float(scipy.special.stdtrit(df, alpha / 2 if alternative == "two-sided" else alpha))
