"""Layers and the holdouts around them: the pure part, and what the registry keeps of it."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from experiments.assign import LAYER_SLOTS, ExperimentSpec, Holdout, Variant, allocate, assign
from experiments.layers import Layer, around
from experiments.registry import Experiments, Plan
from experiments.stats import srm_test
from ingest.errors import BadInput, Conflict

UNITS = [f"user-{number}" for number in range(20_000)]
RARE = 1e-4

slots = st.integers(0, LAYER_SLOTS)


def spec(key: str = "tab", *, weights: tuple[int, ...] = (1, 1)) -> ExperimentSpec:
    variants = tuple(Variant(f"arm-{i}", f"cp-{i}", weight) for i, weight in enumerate(weights))
    return ExperimentSpec(key, 1, "user", variants, salt=key)


def plan(key: str = "e1", **changes: Any) -> Plan:
    variants = [{"key": arm, "checkpoint": f"m-{arm}"} for arm in "ab"]
    return Plan.model_validate({"key": key, "variants": variants} | changes)


def begun(experiments: Experiments, key: str = "e1", **changes: Any) -> None:
    experiments.create(plan(key, **changes))
    experiments.start(key)


@pytest.fixture
def experiments(control: Engine) -> Experiments:
    return Experiments(control)


@pytest.mark.parametrize(
    ("taken", "coverage", "expected"),
    [
        ([], 1.0, (0, 10_000)),
        ([(0, 1000)], 0.1, (1000, 2000)),
        ([(5000, 6000), (0, 1000)], 0.4, (1000, 5000)),
        ([(5000, 6000), (0, 1000)], 0.41, None),
        ([(0, 9000)], 0.1001, None),
        ([(0, 5000), (100, 200), (4000, 6000)], 0.4, (6000, 10_000)),
        ([(500, 500)], 1.0, (0, 10_000)),
    ],
)
def test_a_new_experiment_gets_the_first_free_range(
    taken: list[tuple[int, int]], coverage: float, expected: tuple[int, int] | None
) -> None:
    assert allocate(taken, coverage) == expected


@given(st.lists(st.tuples(slots, slots).map(sorted), max_size=6), st.integers(1, LAYER_SLOTS))
def test_an_allocated_range_is_free_and_the_first(taken: list[list[int]], width: int) -> None:
    ranges = [(start, end) for start, end in taken]
    busy = {slot for start, end in ranges for slot in range(start, end)}
    starts = [0, *sorted(end for _, end in ranges)]
    runs = (start for start in starts if start + width <= LAYER_SLOTS)
    expected = next((start for start in runs if busy.isdisjoint(range(start, start + width))), None)
    found = allocate(ranges, width / LAYER_SLOTS)
    assert found == (None if expected is None else (expected, expected + width))


@pytest.mark.parametrize("coverage", [0, -0.1, 1.01, 0.00001, float("nan")])
def test_a_coverage_that_is_no_share_of_a_layer_is_refused(coverage: float) -> None:
    with pytest.raises(BadInput, match="coverage"):
        allocate([], coverage)


def test_a_taken_range_that_is_no_range_is_refused() -> None:
    with pytest.raises(BadInput, match="taken"):
        allocate([(9, 3)], 0.1)


def test_held_out_units_are_outside_what_the_arms_were_promised() -> None:
    """Report 3, posthog#60006: a holdout counted in the expectation, so that each alarmed."""
    held = dataclasses.replace(spec(weights=(1, 3)), holdouts=(Holdout("product", 1_000, "old"),))
    given = [each for unit in UNITS if (each := assign(held, unit))]
    out = [each for each in given if each.reason == "holdout"]
    assert 1_800 < len(out) < 2_200
    assert {(each.checkpoint, each.propensity) for each in out} == {("old", 0.1)}
    dealt = [each.variant for each in given if each.reason == "randomised"]
    result = srm_test([dealt.count("arm-0"), dealt.count("arm-1")], held.weights)
    assert result.p_value is not None
    assert result.p_value > RARE


def test_a_holdout_takes_the_same_units_from_every_experiment_and_moves_no_other() -> None:
    holdout = Holdout("product", 2_000, "old")
    for key in ("a", "b"):
        free = spec(key)
        held = dataclasses.replace(free, holdouts=(holdout,))
        for unit in UNITS[:2_000]:
            given = assign(held, unit)
            assert given is not None
            assert (given.reason == "holdout") == holdout.holds(unit)
            if given.reason == "randomised":
                assert given == assign(free, unit)


def test_the_outermost_holdout_decides_and_a_pin_comes_before_it() -> None:
    outer, inner = Holdout("outer", 5_000, "older"), Holdout("inner", 5_000, "old")
    held = dataclasses.replace(
        spec(), holdouts=(outer, inner), pinned=tuple((unit, "arm-1") for unit in UNITS[:50])
    )
    for unit in UNITS[:50]:
        pinned = assign(held, unit)
        assert pinned is not None
        assert (pinned.variant, pinned.reason, pinned.propensity) == ("arm-1", "pinned", 1)
    for unit in UNITS[50:200]:
        given = assign(held, unit)
        assert given is not None
        wanted = "older" if outer.holds(unit) else "old" if inner.holds(unit) else None
        assert wanted in {None, given.checkpoint}


def test_two_kinds_of_units_in_a_layer_are_refused_at_save(experiments: Experiments) -> None:
    """Report 13, growthbook#442 and #3794: a namespace of two unit types excluded nothing."""
    experiments.create(plan("e1", layer="models"))
    with pytest.raises(BadInput) as refused:
        experiments.create(plan("e2", layer="models", unit="organization"))
    assert refused.value.errors[0].field == "unit"
    experiments.save_layer(Layer("orgs", "organization"))
    with pytest.raises(BadInput, match="unit"):
        experiments.create(plan("e3", layer="orgs"))
    with pytest.raises(BadInput, match="unit"):
        experiments.save_layer(Layer("models", "organization"))


def test_a_holdout_keeps_its_units_out_of_every_layer_inside(experiments: Experiments) -> None:
    held = Holdout("product", 500, "m-old")
    experiments.save_layer(Layer("product", "user", None, held))
    experiments.save_layer(Layer("inner", "user", "product"))
    begun(experiments, "e1", layer="inner")
    begun(experiments, "e2", layer="product")
    begun(experiments, "e3", layer="elsewhere")
    one, two, three = (
        {unit: assign(each, unit) for unit in UNITS[:2_000]} for each in experiments.running()
    )
    held_out = {unit for unit, each in one.items() if each and each.reason == "holdout"}
    assert held_out == {unit for unit, each in two.items() if each and each.reason == "holdout"}
    assert 70 < len(held_out) < 130
    assert {each.checkpoint for u, each in one.items() if each and u in held_out} == {"m-old"}
    assert {each.reason for each in three.values() if each} == {"randomised"}


def test_a_circle_of_layers_is_refused_with_its_way(experiments: Experiments) -> None:
    experiments.save_layer(Layer("a", "user"))
    experiments.save_layer(Layer("b", "user", "a"))
    experiments.save_layer(Layer("c", "user", "b"))
    for layer in (Layer("a", "user", "c"), Layer("a", "user", "a")):
        with pytest.raises(BadInput, match="circle") as refused:
            experiments.save_layer(layer)
        assert refused.value.errors[0].field == "within"
    assert [each.key for each in around("c", {each.key: each for each in experiments.layers()})] == [
        "a", "b", "c",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "field"),
    [
        (Layer("x", "user", "nowhere"), "within"),
        (Layer("x", "organization", "users"), "within"),
        (Layer("x", "user", None, Holdout("x", 10, "unserved")), "holdout.checkpoint"),
    ],
)
def test_a_layer_that_cannot_be_names_its_field(control: Engine, layer: Layer, field: str) -> None:
    experiments = Experiments(control, lambda checkpoint: checkpoint != "unserved")
    experiments.save_layer(Layer("users", "user"))
    with pytest.raises(BadInput) as refused:
        experiments.save_layer(layer)
    assert refused.value.errors[0].field == field
    assert [each.key for each in experiments.layers()] == ["users"]


def test_a_holdout_does_not_change_under_a_measured_experiment(experiments: Experiments) -> None:
    experiments.save_layer(Layer("product", "user"))
    experiments.save_layer(Layer("inner", "user", "product"))
    begun(experiments, layer="inner")
    wider = Layer("product", "user", None, Holdout("product", 100, "m-old"))
    with pytest.raises(Conflict, match="'e1' is running in layer 'product'; stop it"):
        experiments.save_layer(wider)
    assert experiments.save_layer(Layer("product", "user")).holdout is None
    experiments.stop("e1")
    experiments.save_layer(wider)
    assert experiments.get("e1").spec.holdouts == (wider.holdout,)
