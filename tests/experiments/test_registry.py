"""What the registry refuses, remembers and gives to assignment."""

import pytest
from sqlalchemy import Engine

from experiments.assign import LAYER_SLOTS, assign
from experiments.lifecycle import Phase
from experiments.registry import Experiments, Plan, PlannedVariant
from ingest.errors import BadInput, Conflict, NotFound


def plan(key: str, *weights: float, **changes: object) -> Plan:
    variants = tuple(
        PlannedVariant(key=f"v{number}", checkpoint=f"m{number}", weight=weight)
        for number, weight in enumerate(weights or (1, 1))
    )
    return Plan.model_validate({"key": key, "variants": variants} | changes)


@pytest.fixture
def experiments(control: Engine) -> Experiments:
    return Experiments(control)


def test_a_coverage_that_covers_nobody_is_refused_at_save(experiments: Experiments) -> None:
    with pytest.raises(BadInput) as refused:
        experiments.create(plan("e1", coverage=1e-5))
    assert refused.value.errors[0].field == "coverage"
    assert experiments.all() == []


def test_weights_may_be_shares_and_keep_their_proportion(experiments: Experiments) -> None:
    made = experiments.create(plan("e1", 0.1, 0.3, 0.6))
    first, second, third = made.spec.weights
    assert (second / first, third / first) == (3, 6)
    assert experiments.create(plan("e2", 1, 3)).spec.weights == (1, 3)


def test_running_experiments_of_a_layer_own_slots_that_do_not_meet(
    experiments: Experiments,
) -> None:
    for key, coverage in (("e1", 0.2), ("e2", 0.5), ("e3", 0.3)):
        experiments.create(plan(key, coverage=coverage))
        experiments.start(key)
    owned = [set(range(*each.slots)) for each in experiments.all()]
    assert [len(slots) for slots in owned] == [2_000, 5_000, 3_000]
    assert len(set.union(*owned)) == LAYER_SLOTS


def test_a_stopped_experiment_frees_its_slots_and_moves_nobody_else(
    experiments: Experiments,
) -> None:
    for key in ("e1", "e2"):
        experiments.create(plan(key, coverage=0.5))
        experiments.start(key)
    before = experiments.get("e2")
    experiments.stop("e1")
    experiments.create(plan("e3", coverage=0.5))
    assert experiments.start("e3").slots == (0, 5_000)
    assert experiments.get("e2") == before
    assert {spec.key for spec in experiments.running()} == {"e2", "e3"}


def test_a_layer_that_is_full_names_who_fills_it(experiments: Experiments) -> None:
    for key in ("e1", "e2"):
        experiments.create(plan(key))
    experiments.start("e1")
    with pytest.raises(Conflict, match="no room for coverage 1 beside 'e1'; stop one"):
        experiments.start("e2")
    experiments.create(plan("e3", layer="another"))
    assert experiments.start("e3").status == "running"


def test_arms_are_dealt_anew_for_each_experiment(experiments: Experiments) -> None:
    for key in ("e1", "e2"):
        experiments.create(plan(key, layer=f"of-{key}"))
    specs = [experiments.start(key).spec for key in ("e1", "e2")]
    arms = [
        tuple(given.variant for spec in specs if (given := assign(spec, f"u{number}")))
        for number in range(4_000)
    ]
    counts = [arms.count((a, b)) for a in ("v0", "v1") for b in ("v0", "v1")]
    # Four cells of 1,000 each if independent; five standard deviations are 137.
    assert all(abs(count - 1_000) < 137 for count in counts)


def test_changes_are_seen_at_once_by_who_made_them(experiments: Experiments) -> None:
    experiments.create(plan("e1"))
    assert experiments.running() == ()
    experiments.start("e1")
    assert [spec.key for spec in experiments.running()] == ["e1"]
    experiments.stop("e1")
    assert experiments.running() == ()


def test_what_does_not_exist_is_not_found(experiments: Experiments) -> None:
    for ask in (experiments.get, experiments.start, experiments.stop):
        with pytest.raises(NotFound):
            ask("none")


def test_shares_that_do_not_sum_to_one_are_refused_at_save(experiments: Experiments) -> None:
    for weights in ((0.5, 0.4), (1.5, 1), (0.5, 0.5, 0.5)):
        with pytest.raises(BadInput, match="must sum to 1") as refused:
            experiments.create(plan("e1", *weights))
        assert refused.value.errors[0].field == "variants"
    with pytest.raises(BadInput, match="would get nobody"):
        experiments.create(plan("e1", 1e-7, 1 - 1e-7))
    assert experiments.all() == []


def test_room_and_segments_are_checked_at_save(experiments: Experiments) -> None:
    for field, bad in (
        ("ramp_to", {"coverage": 0.5, "ramp_to": 0.4}),
        ("segments", {"segments": ("language", "language")}),
        ("segments", {"segments": ("horoscope",)}),
        ("hashing.seed", {"hashing": {"seed": "x"}}),
    ):
        with pytest.raises(BadInput) as refused:
            experiments.create(plan("e1", **bad))
        assert refused.value.errors[0].field == field
    made = experiments.create(
        plan("e1", reading="group_sequential", segments=("language",), coverage=0.1, ramp_to=1)
    )
    assert made.public()["reading"] == "group_sequential"


def test_an_experiment_from_growthbook_has_its_layer_to_itself(experiments: Experiments) -> None:
    """There, coverage shrinks the arms' ranges: other experiments would share its units."""
    hashing = {"algorithm": "growthbook-v2", "seed": "my-test"}
    experiments.create(plan("e1", hashing=hashing, coverage=0.2))
    spec = experiments.start("e1").spec
    assert (spec.salt, spec.algorithm, spec.layer_range) == ("my-test", "growthbook-v2", (0, 2_000))
    experiments.create(plan("e2", coverage=0.1))
    with pytest.raises(Conflict, match="no room"):
        experiments.start("e2")
    assert experiments.ramp("e1", 0.4).slots == (0, 4_000)
    assert experiments.phase("e1", Phase()).spec.salt == "my-test/2/"
