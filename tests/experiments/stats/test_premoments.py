import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.stats import Moments
from experiments.stats.cuped import PreMoments
from ingest.errors import BadInput
from tests.experiments.stats.pasts import arms_of, ratios, users


def test_in_a_ratio_a_missing_past_adds_to_neither_sum() -> None:
    arm = ratios({**arms_of(8)[0], "past": np.r_[np.full(50, np.nan), arms_of(8)[0]["past"][50:]]})
    kept = arms_of(8)[0]
    assert arm.mean[2] / arm.mean[3] == pytest.approx(
        kept["past"][50:].sum() / kept["past_size"][50:].sum(), rel=1e-12
    )


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, 59))
def test_merged_parts_equal_the_whole(seed: int, cut: int) -> None:
    arm = users(np.random.default_rng(seed), 60)
    whole = ratios(arm)
    parts = [
        ratios({name: column[part] for name, column in arm.items()})
        for part in (slice(cut), slice(cut, None))
    ]
    merged = parts[0] + parts[1]
    assert merged.n == 60
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(merged.cov, whole.cov, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        whole.cov,
        np.cov([arm[name] for name in ("value", "size", "past", "past_size")]),
        rtol=1e-10,
    )
    outcome = Moments.of(arm["value"], arm["size"])
    assert whole.outcome.var == pytest.approx(outcome.var)
    assert whole.outcome.cov == pytest.approx(outcome.cov)
    assert whole + PreMoments.of([], []) == PreMoments.of([], []) + whole == whole


@pytest.mark.parametrize(
    ("values", "past", "field"),
    [
        ([1.0, 2.0], [1.0], "pre"),
        ([1.0, np.nan], [1.0, 2.0], "values"),
        ([1.0, 2.0], [1.0, np.inf], "pre"),
        ([1.0, 2.0], [[1.0], [2.0]], "pre"),
    ],
)
def test_columns_that_are_none_are_refused(
    values: list[float], past: list[float], field: str
) -> None:
    with pytest.raises(BadInput) as caught:
        PreMoments.of(values, past)
    assert caught.value.errors[0].field == field


def test_moments_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadInput, match="missing"):
        PreMoments(1, (0.0,) * 4, ((0.0,) * 4,) * 4, missing=2)
    with pytest.raises(BadInput, match="cov"):
        PreMoments(1, (0.0,) * 4, ((0.0,) * 3,) * 4)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="pre_denominators"):
        PreMoments.of([1.0, 2.0], [1.0, 2.0], pre_denominators=[1.0])
