"""Score statistics of two proportions that differ by a given amount."""

from dataclasses import dataclass
from math import acos, copysign, cos, pi, sqrt

from experiments.stats._roots import brentq

_HALVINGS = 200
_END = 1e-150


@dataclass(frozen=True)
class Counts:
    """Successes of two arms with at least one unit each."""

    successes: tuple[int, int]
    units: tuple[int, int]

    @property
    def rates(self) -> tuple[float, float]:
        return self.successes[0] / self.units[0], self.successes[1] / self.units[1]

    @property
    def difference(self) -> float:
        return self.rates[1] - self.rates[0]

    def variance(self, rates: tuple[float, float]) -> float:
        """Of the difference, if `rates` were the true ones."""
        return sum(
            max(p, 0.0) * max(1 - p, 0.0) / n for p, n in zip(rates, self.units, strict=True)
        )


def score(counts: Counts, margin: float, *, factor: float) -> float:
    """The z of the difference less `margin` over its error at the likeliest rates that far apart.

    `factor` is what the variance is multiplied by. 0 where the data are the margin itself.
    """
    gap = counts.difference - margin
    variance = factor * counts.variance(restricted(counts, margin))
    # Without variance both arms are all failures or all successes, and the margin is their gap, 0.
    return gap / sqrt(variance) if variance else 0.0


def score_limits(counts: Counts, z: float, *, factor: float) -> tuple[float, float]:
    """The margins at which `score` is z and -z."""

    def excess(margin: float) -> float:
        variance = factor * counts.variance(restricted(counts, margin))
        return abs(counts.difference - margin) - z * sqrt(variance)

    # At the estimate itself the excess may be 0 for want of variance: start a little outside.
    step = 1e-3 * min(z * z, 1.0) / sum(counts.units)

    def limit(end: float) -> float:
        start = counts.difference + copysign(step, end - counts.difference)
        if abs(counts.difference - end) <= step:
            return end
        return float(brentq(excess, end, start, xtol=1e-15, rtol=1e-14))

    return limit(-1.0), limit(1.0)


def restricted(counts: Counts, margin: float) -> tuple[float, float]:
    """The likeliest rates of control and treatment that are `margin` apart.

    Source: O. Miettinen & M. Nurminen, Statistics in Medicine 4 (1985) 213-226, appendix.
    """
    if 1 - abs(margin) == 1:
        margin = 0.0
    low, high = max(0.0, -margin), min(1.0, 1 - margin)
    if low >= high:
        return low, low + margin
    (x0, x1), (n0, n1) = counts.successes, counts.units
    # At an end of the range the likelihood is 0, unless no count forbids that end.
    low_open = not (x0 and margin >= 0) and not (x1 and margin <= 0)
    high_open = not (n0 - x0 and margin <= 0) and not (n1 - x1 and margin >= 0)
    if low_open and _slope(counts, margin, low)[0] <= 0:
        return low, low + margin
    if high_open and _slope(counts, margin, high)[0] >= 0:
        return high, high + margin
    rate = min(max(_cubic_root(counts, margin), low), high)
    # The closed form's arc cosine keeps half of the digits: rates of 1e-8 need the other half.
    for _ in range(_HALVINGS):
        if low < rate < high:
            slope, curve = _slope(counts, margin, rate)
            low, high = (rate, high) if slope > 0 else (low, rate)
            newton = rate - slope / curve
        else:
            newton = low
        middle = newton if low < newton < high else (low + high) / 2
        if abs(middle - rate) <= 1e-15 * middle:
            break
        rate = middle
    return rate, rate + margin


def _slope(counts: Counts, margin: float, rate: float) -> tuple[float, float]:
    """First and second derivative of the log likelihood in the control's rate."""
    slope = curve = 0.0
    for rate_of, x, n in zip((rate, rate + margin), counts.successes, counts.units, strict=True):
        for hits, part, sign in ((x, rate_of, 1), (n - x, 1 - rate_of, -1)):
            if hits:
                # Rounding may put a rate inside the range on its end.
                share = max(part, _END)
                slope += sign * hits / share
                curve -= hits / share / share
    return slope, curve


def _cubic_root(counts: Counts, margin: float) -> float:
    (x0, x1), (n0, n1) = counts.successes, counts.units
    cube = n0 + n1
    square = (n1 + 2 * n0) * margin - cube - x0 - x1
    line = (n0 * margin - cube - 2 * x0) * margin + x0 + x1
    rest = x0 * margin * (1 - margin)
    third = square / (3 * cube)
    q = third**3 - square * line / (6 * cube**2) + rest / (2 * cube)
    p = copysign(sqrt(max(third**2 - line / (3 * cube), 0.0)), q)
    angle = acos(min(max(q / p**3, -1.0), 1.0)) if p else 0.0
    return 2 * p * cos((pi + angle) / 3) - third
