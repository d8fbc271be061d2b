import dataclasses
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from experiments.assign import (
    LAYER_SLOTS,
    MAX_TOTAL_WEIGHT,
    Bucketer,
    Condition,
    ExperimentSpec,
    Variant,
    assign,
    hash32,
    pick,
)
from ingest.errors import BadInput

UNITS = [f"user-{number}" for number in range(20_000)]
# A test of uniformity is itself a test at a level. Its ids are fixed, so it passes or fails for ever.
RARE = 1e-4

slots = st.integers(0, LAYER_SLOTS)
ids = st.text(min_size=1, max_size=20)


def spec(
    key: str = "tab",
    *,
    weights: tuple[int, ...] = (1, 1),
    salt: str | None = None,
    layer: str = "default",
    layer_range: tuple[int, int] = (0, LAYER_SLOTS),
    version: int = 1,
    unit: Literal["user", "organization"] = "user",
) -> ExperimentSpec:
    variants = tuple(Variant(f"arm-{i}", f"cp-{i}", weight) for i, weight in enumerate(weights))
    return ExperimentSpec(
        key=key,
        version=version,
        unit=unit,
        variants=variants,
        salt=salt or key,
        layer=layer,
        layer_range=layer_range,
    )


def arm(of: ExperimentSpec, unit: str) -> str | None:
    assignment = assign(of, unit)
    return assignment.variant if assignment else None


@pytest.mark.parametrize(
    ("key", "seed", "expected"),
    [
        ("", 0, 0),
        ("", 1, 1_364_076_727),
        ("", 4_294_967_295, 2_180_083_513),
        ("test", 0, 3_127_628_307),
        ("Hello, world!", 2_538_058_380, 612_912_314),
        ("The quick brown fox jumps over the lazy dog", 2_538_058_380, 799_549_133),
    ],
)
def test_the_hash_is_murmur3_as_published(key: str, seed: int, expected: int) -> None:
    # Source: Wikipedia, "MurmurHash", test vectors of the public-domain reference code.
    assert hash32(key, seed) == expected


@pytest.mark.parametrize(
    ("key", "weights", "expected"),
    [
        ("fractional-flagjack", (25, 25, 25, 25), 2),
        ("fractional-flagqueen", (25, 25, 25, 25), 3),
        ("fractional-flagten", (25, 25, 25, 25), 0),
        ("fractional-flagnine", (25, 25, 25, 25), 1),
        ("fractional-flag3", (25, 25, 25, 25), 0),
        ("fractional-flag-shorthandjon@company.com", (1, 1), 0),
        ("fractional-flag-shorthandjane@company.com", (1, 1), 1),
    ],
)
def test_keys_fall_where_other_implementations_put_them(
    key: str, weights: tuple[int, ...], expected: int
) -> None:
    # Source: open-feature/flagd-testbed, gherkin/targeting.feature, @fractional-v2.
    assert pick(key, weights) == expected


def test_a_lone_surrogate_in_an_id_is_assigned_like_any_other() -> None:
    assert arm(spec(), "user-\ud83d") in {"arm-0", "arm-1"}
    assert hash32("\ud83d") != hash32("\ufffd")


@given(key=ids, weights=st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any))
def test_the_first_cumulative_weight_strictly_above_wins_and_zero_gets_nothing(
    key: str, weights: list[int]
) -> None:
    point = hash32(key) * sum(weights) // 2**32
    chosen = pick(key, weights)
    assert weights[chosen] > 0
    assert sum(weights[:chosen]) <= point < sum(weights[: chosen + 1])


def test_the_order_of_weights_decides_who_gets_them() -> None:
    first = [pick(unit, (9, 1)) for unit in UNITS[:2000]]
    second = [pick(unit, (1, 9)) for unit in UNITS[:2000]]
    assert first.count(0) > 1700
    assert second.count(1) > 1700


@pytest.mark.parametrize(
    "weights", [(), (0, 0), (1, -1), (2, -1), (MAX_TOTAL_WEIGHT, 1), (0.5, 0.5), (True, 1)]
)
def test_weights_that_say_nothing_are_refused_by_name(weights: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="weights: "):
        pick("key", weights)


def test_an_arm_of_the_smallest_weight_still_gets_keys() -> None:
    assert pick("", (1, MAX_TOTAL_WEIGHT - 1)) == 0  # the empty key hashes to 0


@pytest.mark.parametrize("salt", ["tab", "tab-2", "9f2", "checkpoint/ünïcode", "x"])
@pytest.mark.parametrize("weights", [(1, 1), (1, 2, 7)])
def test_arms_get_their_shares_under_any_salt(salt: str, weights: tuple[int, ...]) -> None:
    dealt = spec(weights=weights, salt=salt)
    arms = [arm(dealt, unit) for unit in UNITS]
    counts = [arms.count(f"arm-{i}") for i in range(len(weights))]
    shares = [len(UNITS) * weight / sum(weights) for weight in weights]
    assert chisquare(counts, shares).pvalue > RARE


@pytest.mark.parametrize("layer", ["default", "serving", "a"])
def test_units_spread_evenly_over_a_layer(layer: str) -> None:
    edges = pairwise(range(0, LAYER_SLOTS + 1, LAYER_SLOTS // 10))
    parts = [spec(layer=layer, layer_range=each) for each in edges]
    tenths = [sum(arm(part, unit) is not None for unit in UNITS[:5000]) for part in parts]
    assert sum(tenths) == 5000
    assert chisquare(tenths).pvalue > RARE


@pytest.mark.parametrize(("salt", "other"), [("tab", "chat"), ("exp-1", "exp-2"), ("a", "aa")])
def test_the_arms_of_two_experiments_are_independent(salt: str, other: str) -> None:
    """Report 27, togglz#104: without a salt the same users were first in every rollout."""
    table = [[0, 0, 0], [0, 0, 0]]
    two, three = spec(salt=salt), spec(salt=other, weights=(1, 1, 1))
    for unit in UNITS:
        row, column = arm(two, unit), arm(three, unit)
        assert row is not None
        assert column is not None
        table[int(row[-1])][int(column[-1])] += 1
    assert chi2_contingency(table).pvalue > RARE


@pytest.mark.parametrize("salt", ["tab", "default"])
def test_arms_keep_their_shares_inside_a_narrow_range_even_if_salted_like_the_layer(
    salt: str,
) -> None:
    """Report 15, unleash-go-sdk#145: rollout and variant had one hash, so at a rollout of 10 % only
    a tenth of the variants' range was used.
    """
    narrow = spec(salt=salt, weights=(1, 1, 1, 1), layer_range=(0, 1000))
    arms = [chosen for unit in UNITS if (chosen := arm(narrow, unit))]
    assert 1700 < len(arms) < 2300
    assert chisquare([arms.count(f"arm-{i}") for i in range(4)]).pvalue > RARE


@given(unit=ids, start=slots, end=slots, wider=slots)
def test_a_ramp_moves_nobody(unit: str, start: int, end: int, wider: int) -> None:
    start, end, wider = sorted((start, end, wider))
    before = assign(spec(layer_range=(start, end)), unit)
    after = assign(spec(layer_range=(start, wider)), unit)
    assert before is None or before == after


def test_a_ramp_takes_more_units_at_each_step_and_all_at_the_end() -> None:
    steps = [spec(layer_range=(0, end)) for end in (0, 100, 1000, 5000, LAYER_SLOTS)]
    counts = [sum(assign(each, unit) is not None for unit in UNITS[:2000]) for each in steps]
    assert counts == sorted(counts)
    assert counts[0] == 0, "a coverage of 0 is nobody, not 'unset'"
    assert counts[-1] == 2000


@given(unit=ids, cut=slots, weights=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_two_experiments_in_a_layer_never_share_a_unit(
    unit: str, cut: int, weights: tuple[int, int]
) -> None:
    lower = assign(spec("a", layer_range=(0, cut), weights=weights), unit)
    upper = assign(spec("b", layer_range=(cut, LAYER_SLOTS)), unit)
    assert (lower is None) != (upper is None)


def test_experiments_in_two_layers_share_units_freely() -> None:
    first = spec("a", layer="one", layer_range=(0, 5000))
    second = spec("b", layer="two", layer_range=(0, 5000))
    both = sum(bool(arm(first, unit) and arm(second, unit)) for unit in UNITS)
    assert 4700 < both < 5300


def test_an_assignment_says_what_was_dealt_and_how_likely() -> None:
    assignment = assign(spec(weights=(0, 3, 1)), "user-1")
    assert assignment is not None
    assert assignment.reason == "randomised"
    assert (assignment.experiment, assignment.version) == ("tab", 1)
    assert assignment.checkpoint == assignment.variant.replace("arm", "cp")
    assert assignment.propensity == {"arm-1": 0.75, "arm-2": 0.25}[assignment.variant]


def test_an_assignment_keeps_its_id_when_coverage_salt_and_weights_change() -> None:
    for same in (spec(), spec(salt="other", weights=(9, 1), layer_range=(0, 9999))):
        assignment = assign(same, "user-1")
        assert assignment is not None
        assert assignment.assignment_id == "2ba42348a788432c3d87bbde1c1c7902"


def test_assignment_ids_differ_by_experiment_version_unit_type_and_unit() -> None:
    found = [
        assign(spec(), "u"),
        assign(spec("other"), "u"),
        assign(spec(version=2), "u"),
        assign(spec(unit="organization"), "u"),
        assign(spec(), "v"),
        assign(spec("a:b"), "c"),
        assign(spec("a"), ":bc"),
        assign(spec("a"), "b:c"),
    ]
    assert len({each.assignment_id for each in found if each}) == len(found)


def test_a_unit_without_an_id_is_refused() -> None:
    with pytest.raises(BadInput, match="unit_id"):
        assign(spec(), "")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"key": ""}, "key"),
        ({"salt": ""}, "salt"),
        ({"layer": ""}, "layer"),
        ({"version": 0}, "version"),
        ({"variants": ()}, "variants"),
        ({"variants": (Variant("a", "cp", 0),)}, "variants"),
        ({"variants": (Variant("a", "cp", 1), Variant("a", "cp", 1))}, "variants"),
        ({"layer_range": (5, 4)}, "layer_range"),
        ({"layer_range": (-1, 4)}, "layer_range"),
        ({"layer_range": (0, LAYER_SLOTS + 1)}, "layer_range"),
    ],
)
def test_a_spec_that_cannot_be_dealt_names_its_field(change: dict[str, object], field: str) -> None:
    fields = {each.name: getattr(spec(), each.name) for each in dataclasses.fields(ExperimentSpec)}
    with pytest.raises(BadInput) as refused:
        ExperimentSpec(**(fields | change))
    assert [error.field for error in refused.value.errors] == [field]


def test_a_variant_without_a_key_or_with_a_negative_weight_is_refused() -> None:
    for key, weight in (("", 1), ("a", -1)):
        with pytest.raises(BadInput, match="key" if not key else "weight"):
            Variant(key, "cp", weight)


def test_a_coverage_of_half_is_half_and_each_arm_has_its_share_of_it() -> None:
    """Report 7, growthbook-sdk-java#207: the percentage was hashed twice, and 50 % became 25 %."""
    half = spec(layer_range=(0, 5_000))
    arms = [arm(half, unit) for unit in UNITS]
    counts = [arms.count(each) for each in (None, "arm-0", "arm-1")]
    assert chisquare(counts, [10_000, 5_000, 5_000]).pvalue > RARE


def test_two_rollouts_do_not_begin_with_the_same_users() -> None:
    """Report 27, togglz#104."""
    first, second = (spec(key, layer=f"{key}/", layer_range=(0, 1_000)) for key in ("a", "b"))
    table = [[0, 0], [0, 0]]
    for unit in UNITS:
        table[arm(first, unit) is None][arm(second, unit) is None] += 1
    assert chi2_contingency(table).pvalue > RARE


def test_who_is_not_targeted_is_not_in_and_all_others_are_as_without() -> None:
    german = Condition(attribute="country", operator="equals", value="de")
    targeted = dataclasses.replace(spec(), targeting=(german,))
    for unit in UNITS[:200]:
        assert assign(targeted, unit, {"country": "de"}) == assign(spec(), unit)
        assert assign(targeted, unit, {"country": "fr"}) is None
        assert assign(targeted, unit) is None


def test_an_override_wins_over_a_pin_and_is_not_measured() -> None:
    pinned = dataclasses.replace(spec(), pinned=(("u", "arm-0"),))
    given = Bucketer().assign(pinned, "u", {}, {"u": "arm-1"})
    assert given is not None
    assert (given.variant, given.reason) == ("arm-1", "pinned")
    others = Bucketer().assign(pinned, "v", {}, {"u": "arm-1"})
    assert others == assign(spec(), "v")
