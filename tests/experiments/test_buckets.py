"""Hashes, ranges and GrowthBook's evaluation, against published cases and GrowthBook's own SDK."""

from itertools import pairwise
from typing import Any

import pytest
from growthbook import Experiment, GrowthBook
from hypothesis import given
from hypothesis import strategies as st

from experiments.assign import Bucketer, ExperimentSpec, Variant, assign
from experiments.buckets import (
    Algorithm,
    bucket_ranges,
    choose,
    floored,
    hash_bucket,
    in_namespace,
    pick,
)
from experiments.growthbook import evaluate
from ingest.errors import BadInput
from tests.experiments.vectors import agrees, vector

ascii_ids = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=30)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def of(case: dict[str, Any]) -> float:
    algorithm: Algorithm = "growthbook-v1" if case["version"] == 1 else "growthbook-v2"
    resolution = {"growthbook-v1": 1_000, "growthbook-v2": 10_000}[algorithm]
    seed = case["seed"]
    return hash_bucket(case["value"], algorithm=algorithm, seed=seed) / resolution


def test_growthbooks_hashes_are_as_published() -> None:
    agrees("bucket-hash-gb-1", [of(case) for case in vector("bucket-hash-gb-1")["input"]])


def test_murmur3_is_as_published() -> None:
    cases = vector("bucket-murmur3-1")["input"]
    hashes = [hash_bucket(each["value"], resolution=2**32, seed=each["seed"]) for each in cases]
    agrees("bucket-murmur3-1", hashes)


def test_keys_fall_where_flagd_puts_them() -> None:
    case = vector("bucket-integer-range-1")["input"]
    named = [case["weights_first5"]] * 5 + [case["weights_last2"]] * 2
    agrees(
        "bucket-integer-range-1",
        [
            arms[pick(key, [weight for _, weight in arms])][0]
            for key, arms in zip(case["keys"], named, strict=True)
        ],
    )


def test_ranges_and_choices_are_growthbooks() -> None:
    case = vector("bucket-ranges-1")["input"]
    found = {
        "ranges": [
            bucket_ranges(
                each["weights"] if len(each["weights"] or ()) == each["k"] else [1 / each["k"]] * each["k"],
                each["coverage"],
            )
            for each in case["ranges"]
        ],
        "choose": [choose(each["n"], each["ranges"]) for each in case["choose"]],
    }  # fmt: skip
    agrees("bucket-ranges-1", found)


def test_namespaces_are_growthbooks() -> None:
    cases = vector("bucket-namespace-1")["input"]
    agrees(
        "bucket-namespace-1",
        [in_namespace(each["unit"], tuple(each["namespace"])) for each in cases],
    )


def test_whole_evaluations_are_growthbooks() -> None:
    found = []
    for case in vector("bucket-run-1")["input"]:
        result = evaluate(case["experiment"], case["context"])
        value = case["experiment"]["variations"][result.variation]
        found.append([value, result.in_experiment, result.hash_used])
    agrees("bucket-run-1", found)


@given(
    unit=ascii_ids,
    key=ascii_ids,
    version=st.sampled_from([1, 2]),
    coverage=st.floats(0, 1),
    weights=st.lists(st.floats(0, 1), min_size=2, max_size=5),
    start=st.floats(0, 1),
)
def test_any_experiment_is_evaluated_as_growthbooks_sdk_does(
    unit: str, key: str, version: int, *, coverage: float, weights: list[float], start: float
) -> None:
    fields: dict[str, Any] = {
        "key": key,
        "variations": list(range(len(weights))),
        "weights": weights,
        "coverage": coverage,
        "hashVersion": version,
        "namespace": ("space", start, 1.0),
    }
    oracle = GrowthBook(attributes={"id": unit}).run(Experiment(**fields))
    ours = evaluate(fields, {"attributes": {"id": unit}})
    assert (ours.variation, ours.in_experiment, ours.hash_used) == (
        oracle.variationId,
        oracle.inExperiment,
        oracle.hashUsed,
    )


@given(unit=ascii_ids, weights=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_an_experiment_that_began_in_growthbook_keeps_its_arms(
    unit: str, weights: list[int]
) -> None:
    total = sum(weights)
    oracle = GrowthBook(attributes={"id": unit}).run(
        Experiment(
            key="old-test",
            variations=list(range(len(weights))),
            weights=[weight / total for weight in weights],
            coverage=0.5,
            hashVersion=2,
        )
    )
    arms = tuple(Variant(str(i), "m", weight) for i, weight in enumerate(weights))
    spec = ExperimentSpec(
        "e1", 1, "user", arms, "old-test", layer_range=(0, 5_000), algorithm="growthbook-v2"
    )
    given_arm = assign(spec, unit)
    expected = str(oracle.variationId) if oracle.inExperiment else None
    assert (given_arm.variant if given_arm else None) == expected


def test_a_field_that_would_change_who_is_in_is_refused_and_not_ignored() -> None:
    experiment = {"key": "k", "variations": [0, 1], "condition": {"id": "1"}}
    with pytest.raises(BadInput, match="condition"):
        evaluate(experiment, {"attributes": {"id": "1"}})
    with pytest.raises(BadInput, match="hashVersion"):
        evaluate({"key": "k", "variations": [0, 1], "hashVersion": 3}, {"attributes": {"id": "1"}})


@pytest.mark.parametrize(
    ("experiment", "context", "expected"),
    [
        ({"force": 1}, {}, (1, True, False)),
        ({"active": False}, {}, (0, False, False)),
        ({}, {"enabled": False}, (0, False, False)),
        ({}, {"forcedVariations": {"my-test": 9}}, (0, False, False)),
        ({"ranges": [[0, 0.1], [0.1, 1]]}, {}, (1, True, True)),
        ({}, {"attributes": {"id": 1.0}}, (1, True, True)),
        ({"hashAttribute": "pays"}, {"attributes": {"pays": True}}, (0, False, False)),
    ],
)
def test_forced_stopped_and_ranged_experiments_are_growthbooks_too(
    experiment: dict[str, Any], context: dict[str, Any], expected: tuple[int, bool, bool]
) -> None:
    fields = {"key": "my-test", "variations": [0, 1], **experiment}
    found = evaluate(fields, {"attributes": {"id": "1"}, **context})
    assert (found.variation, found.in_experiment, found.hash_used) == expected


# GrowthBook's own SDK says the latter two; the first is how arms were dealt before there were three.
GOLDEN = {
    "murmur3-32": "11010000000111110011",
    "growthbook-v1": "00001110010000001111",
    "growthbook-v2": "01010111000101000000",
}


@pytest.mark.parametrize("algorithm", GOLDEN)
def test_no_release_moves_users_who_have_an_arm(algorithm: Algorithm) -> None:
    """Report 9, growthbook-swift#75: the v2 hash changed in a patch release; users saw two arms."""
    arms = (Variant("0", "m0", 1), Variant("1", "m1", 1))
    spec = ExperimentSpec("golden", 1, "user", arms, "golden/1/", algorithm=algorithm)
    dealt = [assign(spec, f"user-{number}") for number in range(20)]
    assert "".join(each.variant for each in dealt if each) == GOLDEN[algorithm]


def test_ids_beyond_ascii_hash_as_utf8_in_every_algorithm() -> None:
    # FNV-1a of the bytes C3 BC, by hand: ((0x811C9DC5 ^ C3)·p ^ BC)·p mod 2**32.
    prime, step = 0x01000193, 0x811C9DC5
    for byte in (0xC3, 0xBC):
        step = (step ^ byte) * prime % 2**32
    assert hash_bucket("ü", algorithm="growthbook-v1") == step % 1_000


@given(weights=shares, low=st.floats(0, 1), high=st.floats(0, 1), point=st.floats(0, 1))
def test_a_wider_coverage_moves_nobody_between_arms(
    weights: list[float], low: float, high: float, point: float
) -> None:
    """Report 5, growthbook-js#22: a lower coverage re-shuffled arms."""
    low, high = sorted((low, high))
    narrow, wide = bucket_ranges(weights, low), bucket_ranges(weights, high)
    assert [start for start, _ in narrow] == [start for start, _ in wide]
    if choose(point, narrow) >= 0:
        assert choose(point, narrow) == choose(point, wide)


@given(shares)
def test_ranges_lie_side_by_side(weights: list[float]) -> None:
    full = bucket_ranges(weights)
    assert all(one[1] == other[0] for one, other in pairwise(full))
    assert full[-1][1] == pytest.approx(1, abs=0.011)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8).filter(any), st.floats(0, 1))
def test_a_floor_is_under_every_arm_and_takes_from_all_alike(
    weights: list[float], part: float
) -> None:
    """growthbook#6145: clipping to the floor and dividing again took it from the leader alone."""
    floor = part / len(weights)
    shared = floored(weights, floor)
    assert sum(shared) == pytest.approx(1)
    assert min(shared) >= floor - 1e-12
    total = sum(weights)
    for weight, share in zip(weights, shared, strict=True):
        assert share - floor == pytest.approx((1 - part) * weight / total, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: hash_bucket("a", algorithm="md5"), "algorithm"),  # type: ignore[arg-type]
        (lambda: hash_bucket("a", seed="text"), "seed"),
        (lambda: hash_bucket("a", seed=-1), "seed"),
        (lambda: hash_bucket("a", resolution=0), "resolution"),
        (lambda: hash_bucket("a", algorithm="growthbook-v1", resolution=10), "resolution"),
        (lambda: bucket_ranges([0.5, -0.5]), "weights"),
        (lambda: bucket_ranges([0.5, float("nan")]), "weights"),
        (lambda: bucket_ranges([0.5, 0.5], float("inf")), "coverage"),
        (lambda: floored([0, 0], 0.1), "weights"),
        (lambda: floored([1, 1], 0.6), "floor"),
        (lambda: floored([1, 1], float("nan")), "floor"),
        (
            lambda: ExperimentSpec(
                "e", 1, "user", (Variant("a", "m", 1),), "s",
                layer_range=(1, 2), algorithm="growthbook-v1",
            ),
            "layer_range",
        ),
        (
            lambda: Bucketer().assign(
                ExperimentSpec("e", 1, "user", (Variant("a", "m", 1),), "s"), "u", {}, {"u": "z"}
            ),
            "overrides",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_dealt_names_its_field(call: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        call()
    assert [error.field for error in refused.value.errors] == [field]
