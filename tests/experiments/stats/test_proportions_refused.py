"""Proportions without an honest answer."""

from math import inf

import pytest

from experiments.stats.proportions import ProportionMethod, proportion_test, wilson_interval
from ingest.errors import BadInput
from tests.experiments.stats.test_proportions import interval, p_of


@pytest.mark.parametrize(
    ("control", "treatment", "method", "reason"),
    [
        ((0, 0), (1, 10), "newcombe", "an arm has no units"),
        ((0, 0), (0, 0), "wald", "an arm has no units"),
        ((1, 10), (2, 10), "wald", "an arm expects fewer than 5 successes or failures"),
        ((10, 10), (0, 10), "wald", "neither arm varies"),
        ((70, 160), (250, 300), "wald", None),
    ],
)
def test_no_honest_answer_is_a_reason_without_numbers(
    control: tuple[int, int],
    treatment: tuple[int, int],
    method: ProportionMethod,
    reason: str | None,
) -> None:
    effect = proportion_test(control, treatment, method=method)
    assert (effect.reason or "").startswith(reason or "")
    assert (effect.p_value is None) == (effect.ci is None) == (reason is not None)


def test_walds_test_and_interval_never_contradict_each_other() -> None:
    refused = 0
    for hits in range(100, 200):
        effect = proportion_test((100, 1000), (hits, 1400), method="wald")
        if effect.reason:
            refused += 1
            assert "contradict" in effect.reason
        else:
            low, high = interval(effect)
            assert (not low <= 0 <= high) == (p_of(effect) < 0.05)
    assert refused <= 2


def test_bad_questions_are_refused_with_their_field() -> None:
    for control, treatment, options, field in (
        ((5, 4), (1, 2), {}, "control"),
        ((1, 2), (-1, 2), {}, "treatment"),
        ((1.5, 2), (1, 2), {}, "control"),
        ((1, 2), (1, inf), {}, "treatment"),
        ((1, 2), (1, 2), {"margin": 1.0}, "margin"),
        ((1, 2), (1, 2), {"margin": float("nan")}, "margin"),
        ((1, 2), (1, 2), {"alpha": 0.0}, "alpha"),
        ((1, 2), (1, 2), {"method": "score"}, "method"),
        ((1, 2), (1, 2), {"alternative": "both"}, "alternative"),
    ):
        with pytest.raises(BadInput, match=field):
            proportion_test(control, treatment, **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="units"):
        wilson_interval(0, 0)
