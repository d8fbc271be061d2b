"""Whatever numbers come in: an honest answer, a reason, or a refusal by name; never a made-up one.

Numpy's warnings are errors here (pyproject.toml), so none is hidden either.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from itertools import product
from math import isfinite, isnan, nan
from typing import Any

import numpy as np
import pytest

from experiments import stats
from experiments.stats import (
    BatchMoments,
    Duels,
    Effect,
    Moments,
    NormalPrior,
    PairedCounts,
    PreMoments,
    QuantileSummary,
)
from ingest.errors import BadInput
from tests.experiments.stats.hostile import (
    ARMS,
    BOUNDS,
    COLUMNS,
    COMMON,
    DAYS,
    EFFECT,
    EFFECTS,
    NUMBERS,
    PAST,
    TAILS,
    THUMBS,
    UNITS,
)

OPEN = ("df", "ci", "upper")
"""What may be infinite: the df of a normal, the open end of one side, a bound of no spending."""


def pasts(values: list[float], before: list[float], bottoms: list[float]) -> PreMoments:
    return PreMoments.of(values, before, pre_denominators=bottoms if len(bottoms) > 1 else None)


def on_pasts(question: Callable[..., Any]) -> Callable[..., Any]:
    return lambda one, other, third: question(pasts(one, other, third), pasts(other, one, third))


def batches(control: Moments, treatment: Moments, share: float, method: str) -> Effect:
    first = BatchMoments(COMMON, COMMON, 0.5, 0.5, 200)
    other = BatchMoments(control, treatment, share, 0.5, control.n + treatment.n)
    return stats.adaptive_effect([first, other], method=method)  # type: ignore[arg-type]


def belief(mean: float, sd: float) -> Any:
    return stats.posterior(replace(EFFECT, estimate=mean, std_error=sd))


class Known:
    def __init__(self, mean: float, sd: float) -> None:
        self.mean, self.sd = mean, sd


SIDES = ("two-sided", "greater", "less")
SCALES = ("absolute", "relative")
SHARES = ("newcombe", "miettinen-nurminen", "mee", "wald")
QUESTIONS: dict[str, tuple[Callable[..., Any], Iterable[tuple[Any, ...]]]] = {
    "moments": (Moments.of, product(COLUMNS, COLUMNS)),
    "moments merged": (lambda a, b: stats.ratio_test(a + b, COMMON), product(ARMS, ARMS)),
    "welch": (lambda a, b, scale: stats.welch_test(a, b, scale=scale), product(ARMS, ARMS, SCALES)),
    "welch, a margin": (
        lambda m, a: stats.welch_test(COMMON, COMMON, margin=m, alpha=a),
        product(NUMBERS, NUMBERS),
    ),
    "non-inferiority": (
        lambda a, b, m: stats.noninferiority_test(a, b, margin=m), product(ARMS, ARMS, (0.1, nan))
    ),
    "ratio": (stats.ratio_test, product(ARMS, ARMS)),
    "lift": (stats.relative_interval, product(ARMS, ARMS)),
    "lift, alpha": (
        lambda arm, a: stats.relative_interval(COMMON, arm, alpha=a), product(ARMS[:3], NUMBERS)
    ),
    "CR2": (lambda a, b, scale: stats.cr2_test(a, b, scale=scale), product(UNITS, UNITS, SCALES)),
    "CUPED": (on_pasts(stats.cuped), product(COLUMNS, COLUMNS, COLUMNS)),
    "CUPED, Lin": (
        on_pasts(lambda a, b: stats.cuped(a, b, adjustment="lin")),
        product(COLUMNS, COLUMNS, COLUMNS),
    ),
    "imbalance before": (on_pasts(stats.pre_imbalance), product(COLUMNS, COLUMNS, COLUMNS)),
    "cap": (
        lambda a, b, cap: stats.winsorize({"a": a, "b": b}, upper=cap),
        product(COLUMNS, COLUMNS, NUMBERS),
    ),
    "quantile": (
        lambda a, b, scale: stats.quantile_test(a, b, 0.95, scale=scale),
        product(TAILS, TAILS, SCALES),
    ),
    "quantile of events": (
        lambda number, q: QuantileSummary.of([number, *range(99)], range(100), q),
        product(NUMBERS, NUMBERS),
    ),
    "bound levels": (stats.bound_levels, product(NUMBERS, NUMBERS)),
    "cluster factor": (stats.cluster_factor, product(ARMS, (0.5, *NUMBERS))),
    "thumbs": (
        lambda a, b, limits: stats.feedback_effect(a, b, bounds=limits),
        product(THUMBS, THUMBS, ("manski", "lee")),
    ),
    "thumbs, weights": (
        lambda up, down: stats.feedback_effect(THUMBS[2], THUMBS[2], weights=(up, down)),
        product(NUMBERS, NUMBERS),
    ),
    "shares": (
        lambda a, b, how, side: stats.proportion_test((a, b), (5, 10), method=how, alternative=side),
        product(NUMBERS, NUMBERS, SHARES, SIDES),
    ),
    "shares of all counts": (
        lambda a, b, m, how: stats.proportion_test((a, 10**12), (b, 10**12), margin=m, method=how),
        product((0, 1, 10**12 - 1, 10**12), (0, 1, 10**12), (0, -0.02, 0.999, nan), SHARES),
    ),
    "one share": (stats.wilson_interval, product(NUMBERS, NUMBERS)),
    "pairs": (lambda a, b: stats.mcnemar(PairedCounts(5, a, b, 0)), product(NUMBERS, NUMBERS)),
    "signs": (stats.sign_test, product(NUMBERS, NUMBERS)),
    "adjusted p": (lambda *p: stats.adjust_pvalues(p), product(NUMBERS, NUMBERS)),
    "Dunnett": (
        lambda a, b, how: stats.dunnett(a, [b, COMMON], variances=how),
        product(ARMS[::3], ARMS[::2], ("pooled", "separate")),
    ),
    "mismatch": (lambda *n: stats.srm_test(n, [1, 1]), product(NUMBERS, NUMBERS)),
    "mismatch, weights": (lambda *w: stats.srm_test([90, 110], w), product(NUMBERS, NUMBERS)),
    "mismatch at every look": (
        lambda n, w, c: stats.srm_sequential([n, 100], [w, 1], concentration=c),
        product(NUMBERS, NUMBERS, (100.0, *NUMBERS)),
    ),
    "mismatch of batches": (
        lambda n, w: stats.srm_batches([[n, 9], [9, 9]], [[w, 1], [1, 1]]), product(NUMBERS, NUMBERS)
    ),
    "at every look": (
        lambda e, side: stats.confidence_sequence(e, 1_000, tuning_n=5_000, side=side),
        product(EFFECTS, ("two-sided", "lower", "upper")),
    ),
    "at every look, units": (
        lambda n, end: stats.confidence_sequence(EFFECT, n, tuning_n=end), product(NUMBERS, NUMBERS)
    ),
    "mixture ratio": (
        lambda diff, v, t: stats.msprt(diff, 100, v, t), product(NUMBERS, NUMBERS, NUMBERS)
    ),
    "planned looks": (
        lambda *times: stats.group_sequential_bounds(times), product(NUMBERS, NUMBERS)
    ),
    "planned looks, spending": (
        lambda a, phi: stats.group_sequential_bounds([0.5, 1], alpha=a, spending="hsd", phi=phi),
        product(NUMBERS, NUMBERS),
    ),
    "crossing": (
        lambda bound, drift: stats.crossing_probability([0.5, 1], [bound, 2.0], drift=drift),
        product(NUMBERS, NUMBERS),
    ),
    "a planned look": (
        lambda e, look: stats.repeated_interval(e, BOUNDS, look), product(EFFECTS, (1, 2, 3))
    ),
    "after stopping": (
        lambda e, look: stats.stage_wise(e, BOUNDS, look), product(EFFECTS, (1, 2, 3))
    ),
    "conditional power": (
        lambda e, t: stats.conditional_power(e, BOUNDS, 1, truth=t), product(EFFECTS, (None, nan, 1e300))
    ),
    "belief": (belief, product(NUMBERS, NUMBERS)),
    "belief, a prior": (
        lambda mean, sd: stats.posterior(EFFECT, NormalPrior(mean, sd, "absolute")),
        product(NUMBERS, NUMBERS),
    ),
    "prior": (lambda e: NormalPrior.fit([e, *PAST]), product(EFFECTS)),
    "belief in shares": (
        lambda hits, count: stats.beta_binomial((3, 10), (5, 10), (hits, count)),
        product(NUMBERS, NUMBERS),
    ),
    "best arm": (
        lambda mean, sd, policy: stats.bandit_weights([Known(mean, sd), Known(0, 1)] * 2, policy=policy),
        product(NUMBERS, NUMBERS, ("thompson", "top-two")),
    ),
    "a bandit's data": (
        batches, product(ARMS[::2], ARMS[::3], (0.5, 1e-300, nan), ("bols", "aw-aipw"))
    ),
    "segments": (
        lambda a, b: stats.interaction_test({"one": (a, b), "two": (COMMON, COMMON)}),
        product(ARMS, ARMS),
    ),
    "novelty": (lambda e: stats.novelty_test({0: e, **DAYS}), product(EFFECTS)),
    "days": (
        lambda a, b: stats.day_correlation([[a, 1], [0, 3]], [[b, 1], [0, 2]]),
        product(NUMBERS, NUMBERS),
    ),
    "switchback": (
        lambda y, p: stats.switchback_effect([0, 1] * 10, [y, 1.0] * 10, p=p), product(NUMBERS, NUMBERS)
    ),
    "blocks": (
        lambda at, y: stats.block_means([0, 1], [at, 0.0], [y, 1.0], blocks=2), product(NUMBERS, NUMBERS)
    ),
    "units needed": (
        lambda mde, base: stats.sample_size(base, mde), product(NUMBERS, (*NUMBERS, *ARMS))
    ),
    "units needed, design": (
        lambda field, number: stats.sample_size(COMMON, 0.1, **{field: number}),
        product(("power", "alpha", "ratio", "rho", "design_effect", "units_per_day"), NUMBERS),
    ),
    "effect in reach": (
        lambda n, base: stats.minimum_detectable_effect(base, n), product(NUMBERS, (0.1, *ARMS))
    ),
    "power of t": (
        lambda size, n, ratio: stats.t_test_power(size, n, ratio=ratio),
        product(NUMBERS, NUMBERS, NUMBERS),
    ),
    "units of t": (
        lambda size, ratio: stats.t_test_n(size, ratio=ratio), product(NUMBERS, NUMBERS)
    ),
    "duels": (
        lambda won, tied, pseudo: stats.bradley_terry(
            [[0, won], [2, 0]], [[0, tied], [tied, 0]], pseudo=pseudo
        ),
        product(NUMBERS, NUMBERS, (0.0, 0.5, nan, 1e300)),
    ),
    "duels with covariates": (
        lambda a, b: stats.bradley_terry(
            Duels.of([0, 1, 0, 1], [1, 0, 1, 0], ["first", "first", "tie", "second"], items=2),
            covariates=[[a], [b], [1.0], [0.0]],
        ),
        product(NUMBERS, NUMBERS),
    ),
}  # fmt: skip


def dishonest(answer: Any, name: str = "") -> str | None:
    """What in an answer is no number that may stand there."""
    if is_dataclass(answer):
        parts = [(each.name, getattr(answer, each.name)) for each in fields(answer)]
        return untrue(answer) or next(
            filter(None, (dishonest(part, key) for key, part in parts)), None
        )
    if isinstance(answer, list | tuple | np.ndarray):
        return next(filter(None, (dishonest(part, name) for part in answer)), None)
    if (
        isinstance(answer, float)
        and not isfinite(answer)
        and not (name in OPEN and not isnan(answer))
    ):
        return f"{name} = {answer}"
    return None


def untrue(answer: Any) -> str | None:
    """What contradicts itself: no error, ends in the wrong order, a p of 0 or 1 that is not earned."""
    if (error := getattr(answer, "std_error", None)) is not None and np.min(error) < 0:
        return f"std_error = {error}"
    if isinstance(answer, Effect) and error == 0:
        return "std_error = 0"
    ci, p = getattr(answer, "ci", None), getattr(answer, "p_value", None)
    if ci is not None and not (ci[0] <= ci[1] and any(map(isfinite, ci))):
        return f"ci = {ci}"
    z = getattr(answer, "statistic", None)
    if p is not None and (not 0 <= p <= 1 or (p == 0 and z is not None and abs(z) < 37)):
        return f"p_value = {p} of {z}"
    return None


@pytest.mark.parametrize("name", QUESTIONS)
def test_hostile_numbers_get_an_honest_answer_a_reason_or_a_refusal(name: str) -> None:
    question, inputs = QUESTIONS[name]
    asked = answered = 0
    for arguments in inputs:
        asked += 1
        try:
            answer = question(*arguments)
        except BadInput:
            continue
        answered += 1
        if isinstance(answer, Moments | PreMoments):
            answer = stats.ratio_test(answer, COMMON) if isinstance(answer, Moments) else None
        assert dishonest(answer) is None, (arguments, answer)
    assert asked >= 30
    assert answered, "all refused: nothing was tried"
