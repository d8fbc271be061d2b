from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.stats import Moments
from ingest.errors import BadInput

numbers = st.floats(-1e6, 1e6)
units = st.lists(st.tuples(numbers, st.floats(0, 1e4)), min_size=1, max_size=30)


def of(pairs: list[tuple[float, float]]) -> Moments:
    return Moments.of([top for top, _ in pairs], [bottom for _, bottom in pairs])


def as_array(moments: Moments) -> list[float]:
    return [
        moments.n,
        moments.mean,
        moments.var,
        moments.den_mean,
        moments.den_var,
        moments.cov,
    ]


def assert_same(left: Moments, right: Moments, pairs: list[tuple[float, float]]) -> None:
    # Rounding errors are relative to the values, not to the moment that is left of them; below
    # the smallest normal number they are absolute.
    top, bottom = (max(abs(pair[i]) for pair in pairs) for i in (0, 1))
    scales = np.array([1, top, top**2, bottom, bottom**2, top * bottom])
    gap = np.abs(np.array(as_array(left)) - np.array(as_array(right)))
    assert (gap <= 1e-13 * scales + np.finfo(np.float64).tiny).all()


def test_a_small_variance_on_a_large_mean_is_not_cancelled() -> None:
    values = np.array([1e9 + 1, 1e9 + 2, 1e9 + 3])
    assert Moments.of(values) == Moments(3, 1e9 + 2, 1.0)
    assert (values @ values - values.sum() ** 2 / 3) / 2 != 1, "raw sums would do, then"


def test_a_small_variance_on_a_large_mean_survives_a_merge() -> None:
    merged = sum((Moments.of([1e9 + i]) for i in (1, 2, 3)), start=Moments.of([]))
    assert merged == Moments(3, 1e9 + 2, 1.0)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e9 + 0.1, -7.7])
@pytest.mark.parametrize("count", [2, 3, 10, 99])
def test_units_that_agree_have_no_variance_at_all(value: float, count: int) -> None:
    whole = Moments.of([value] * count)
    assert (whole.mean, whole.var) == (value, 0.0)
    assert (whole + whole).var == 0.0


@given(pairs=units.filter(lambda pairs: len(pairs) > 1))
def test_moments_are_those_of_numpy(pairs: list[tuple[float, float]]) -> None:
    tops, bottoms = np.array(pairs).T
    cov = np.cov(tops, bottoms)
    expected = Moments(
        len(pairs), tops.mean(), cov[0, 0], bottoms.mean(), cov[1, 1], float(cov[0, 1])
    )
    assert_same(of(pairs), expected, pairs)


@given(parts=st.lists(units, min_size=1, max_size=5))
def test_merged_parts_equal_the_whole(parts: list[list[tuple[float, float]]]) -> None:
    whole = [pair for part in parts for pair in part]
    assert_same(reduce(add, map(of, parts)), of(whole), whole)


@given(left=units, right=units)
def test_the_order_of_a_merge_does_not_matter(
    left: list[tuple[float, float]], right: list[tuple[float, float]]
) -> None:
    assert_same(of(left) + of(right), of(right) + of(left), left + right)


@given(pairs=units)
def test_nothing_merges_as_nothing(pairs: list[tuple[float, float]]) -> None:
    assert of(pairs) + Moments.of([]) == of(pairs) == Moments.of([]) + of(pairs)


@given(pairs=units, seed=st.integers(0, 99))
def test_the_order_of_units_does_not_matter(pairs: list[tuple[float, float]], seed: int) -> None:
    shuffled = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]
    assert_same(of(shuffled), of(pairs), pairs)


def test_a_mean_is_a_ratio_over_ones() -> None:
    assert Moments.of([1, 2, 4]) == Moments.of([1, 2, 4], [1, 1, 1])


@pytest.mark.parametrize(
    ("values", "denominators", "field"),
    [
        ([1, 2], [1], "denominators"),
        ([1, float("nan")], None, "values"),
        ([1, 2], [1, float("inf")], "denominators"),
        ([[1, 2]], None, "values"),
    ],
)
def test_numbers_that_are_not_one_per_unit_are_refused_by_name(
    values: list[float], denominators: list[float] | None, field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        Moments.of(values, denominators)
    assert [error.field for error in refused.value.errors] == [field]


def test_a_negative_count_of_units_is_refused() -> None:
    with pytest.raises(BadInput, match="n: "):
        Moments(-1, 0.0, 0.0)
