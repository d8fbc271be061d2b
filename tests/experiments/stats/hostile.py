"""Numbers that no measurement gives, in every form that the tests of `experiments.stats` take."""

from dataclasses import replace
from math import inf, nan

import numpy as np

from experiments import stats
from experiments.stats import FeedbackCounts, Moments, QuantileSummary

NUMBERS = (nan, inf, -inf, -1, 0, 0.5, 1, 1.5, 100, 1e300, -1e300, 1e-300, 5e-324, 2**63)
COMMON = Moments(100, 1.0, 1.0)
ARMS = (
    COMMON,
    Moments(0, 0.0, 0.0),
    Moments(1, 1.0, 0.0),
    Moments(2, 0.0, 0.0),
    Moments(10**12, 1.0, 1.0),
    *(
        replace(COMMON, **{field: number})  # type: ignore[arg-type]
        for field in ("mean", "var", "den_mean", "den_var", "cov")
        for number in (nan, inf, -1.0, 0.0, 1e300, 1e-300)
    ),
    Moments(100, 1e154, 1e307),
    Moments(100, 5e-324, 5e-324),
    Moments(100, 1e300, 1e300, 1e300, 1e300, 1e300),
)
EFFECT = stats.ratio_test(COMMON, Moments(100, 1.5, 1.0))
EFFECTS = (
    *(
        replace(EFFECT, estimate=estimate, std_error=error)
        for estimate in (0.0, 1.0, nan, inf, 1e300, 1e-300)
        for error in (0.0, 1.0, nan, inf, -1.0, 1e300, 1e-300, 5e-324)
    ),
    stats.ratio_test(Moments(1, 1.0, 0.0), COMMON),
    *(replace(EFFECT, df=df) for df in (0.0, -1.0, nan, inf)),
)
DAYS = {day: replace(EFFECT, estimate=float(day)) for day in (1, 2, 3)}
PAST = [replace(EFFECT, estimate=float(number)) for number in range(12)]
UNITS = (
    [],
    [[1, 1]],
    [[0, 0], [0, 0]],
    [[1, 0], [1, 1], [2, 1]],
    [[1, -1], [1, 1]],
    *([[number, 1], [0, 1], [1, 1]] for number in (nan, inf, 1e300, 1e-300, 5e-324)),
    *([[1, number], [0, 1], [1, 1]] for number in (1e300, 1e-300, 5e-324)),
    [[0, 1], [0, 2], [0, 3]],
)
COLUMNS = (
    [],
    [1.0],
    [0.0, 0.0, 0.0],
    [1.0, 2.0, 3.0],
    *([number, 1.0, 0.0] for number in (nan, inf, 1e300, -1e300, 1e-300, 5e-324)),
)
THUMBS = (
    FeedbackCounts(0, (0.0,) * 3, ((0.0,) * 3,) * 3),
    FeedbackCounts.of([0, 0, 0], [0, 0, 0], [1, 2, 3]),
    FeedbackCounts.of([0, 1, 0, 3], [1, 0, 0, 1], [9, 9, 9, 9]),
    FeedbackCounts.of([1e-300, 0], [0, 0], [1, 1]),
    *(
        FeedbackCounts(10, mean, tuple(map(tuple, np.diag([var, 1.0, 1.0]))))  # type: ignore[arg-type]
        for mean in ((0.1, 0.1, 1.0), (0.1, 0.1, 1e-300), (nan, 0.0, 1.0), (2.0, 0.1, 1.0))
        for var in (1.0, 0.0, -1.0, inf, 1e300)
    ),
)
TAILS = tuple(
    QuantileSummary(0.95, n, units, value, low, high, factor)
    for n, units in ((73, 1), (100, 50), (10**9, 50))
    for low, value, high in (
        (0.0, 0.1, 2.0),
        (1.0, 1.0, 1.0),
        (1e300, 1e301, 1e302),
        (0, 5e-324, 1),
    )
    for factor in (0.0, 1.0, 1e300)
)
BOUNDS = stats.group_sequential_bounds([0.5, 1.0])
