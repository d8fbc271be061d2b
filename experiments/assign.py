"""Who sees what: a pure function of an experiment's spec and a unit's id.

Two hashes decide. The layer's hash says which of `LAYER_SLOTS` slots a unit has in a layer; an
experiment owns a range of slots, so experiments of one layer never share a unit. The experiment's
own hash says which arm. Neither knows the other: widening a range moves nobody who was in.

Sources: layers, D. Tang et al., KDD 2010; integer ranges, open-feature/flagd#1909.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Literal

import mmh3

from ingest.errors import BadInput

LAYER_SLOTS = 10_000
"""Slots in a layer: the finest step of a ramp is 0.01 % of its units."""

MAX_TOTAL_WEIGHT = 2**31 - 1
"""As in flagd. Far below the hash's 2**32 values, so an arm of weight 1 still gets units."""

# The layer's hash must stay independent of the arms' even where somebody names a salt after a
# layer; with one hash for both, a 10 % rollout would use a tenth of the arms' range only
# (Unleash/unleash-go-sdk#145).
_LAYER_SEED = 86_028_157

UnitType = Literal["user", "organization"]
Reason = Literal["randomised", "pinned", "fallback", "holdout"]
"""Why a unit got its arm, in the words of the `experiment.exposed` fact."""


@dataclass(frozen=True)
class Variant:
    """An arm: the checkpoint it is served by, and its integer share of the experiment's traffic.

    Raises: BadInput if the key is empty, or the weight negative or no integer.
    """

    key: str
    checkpoint: str
    weight: int

    def __post_init__(self) -> None:
        if not self.key:
            raise BadInput.of("key", "a variant needs a key")
        _check_weight(self.weight, "weight")


@dataclass(frozen=True)
class ExperimentSpec:
    """What assignment needs to know of an experiment.

    `layer_range` is (start, end), end excluded, in slots of the layer; its width is the coverage,
    and an empty range covers nobody. The layer owns the unit type: whoever stores specs refuses
    two unit types in a layer, as units of different types exclude nothing.

    A larger `end` is a ramp and moves nobody. New weights, variants or a new start re-deal the
    arms: raise `version` and take a new `salt`, or phase 1 leaks into phase 2.

    Raises: BadInput naming the field that is wrong.
    """

    key: str
    version: int
    unit: UnitType
    variants: tuple[Variant, ...]
    salt: str
    layer: str = "default"
    layer_range: tuple[int, int] = (0, LAYER_SLOTS)

    def __post_init__(self) -> None:
        for field in ("key", "salt", "layer"):
            if not getattr(self, field):
                raise BadInput.of(field, "must not be empty")
        if self.version < 1:
            raise BadInput.of("version", f"starts at 1, not {self.version}")
        keys = [variant.key for variant in self.variants]
        if len(set(keys)) < len(keys):
            raise BadInput.of("variants", f"keys must differ, got {keys}")
        _check_range(self.layer_range, "layer_range")
        _check_weights(self.weights, "variants")

    @cached_property
    def weights(self) -> tuple[int, ...]:
        return tuple(variant.weight for variant in self.variants)

    @cached_property
    def cumulative_weights(self) -> tuple[int, ...]:
        return tuple(accumulate(self.weights))

    @cached_property
    def identity(self) -> str:
        """What an assignment id is made of, before the unit's id."""
        # The key's length keeps ("a", "b:c") and ("a:b", "c") apart and forbids no character.
        return f"{self.unit}:{self.version}:{len(self.key)}:{self.key}"


@dataclass(frozen=True)
class Assignment:
    """The arm of one unit. `propensity` is the probability the randomisation gave that arm.

    `assignment_id` joins facts to it: 32 hex digits, always the same for the same experiment,
    version, unit type and unit.
    """

    assignment_id: str
    experiment: str
    version: int
    variant: str
    checkpoint: str
    propensity: float
    reason: Reason


def hash32(key: str, seed: int = 0) -> int:
    """MurmurHash3 x86-32 of the key's UTF-8 bytes, unsigned; `seed` in [0, 2**32).

    A lone surrogate, which JavaScript ids may contain, hashes as its three bytes and raises nothing.
    Source: A. Appleby, MurmurHash3 (public domain).
    """
    return mmh3.hash(key.encode("utf-8", "surrogatepass"), seed, signed=False)


def pick(key: str, weights: Sequence[int]) -> int:
    """Index of the weight that `key` falls into; a zero weight gets nothing.

    The hash is mapped to [0, total) by integers only, as float formulas make languages disagree
    (open-feature/flagd#1872); the first cumulative weight strictly above wins.

    Raises: BadInput if weights are empty, negative, no integers, all zero, or sum to more than
    `MAX_TOTAL_WEIGHT`.
    """
    _check_weights(weights, "weights")
    return _place(key, tuple(accumulate(weights)))


def assign(spec: ExperimentSpec, unit_id: str) -> Assignment | None:
    """The unit's arm, or None if its slot in the layer is not the experiment's.

    Pure: the same spec and unit give the same answer in every process, for ever.

    Raises: BadInput if `unit_id` is empty: all units without an id would share one arm.
    """
    if not unit_id:
        raise BadInput.of("unit_id", "must not be empty")
    slot = (hash32(spec.layer + unit_id, _LAYER_SEED) * LAYER_SLOTS) >> 32
    start, end = spec.layer_range
    if not start <= slot < end:
        return None
    cumulative = spec.cumulative_weights
    variant = spec.variants[_place(spec.salt + unit_id, cumulative)]
    return Assignment(
        assignment_id=_assignment_id(spec, unit_id),
        experiment=spec.key,
        version=spec.version,
        variant=variant.key,
        checkpoint=variant.checkpoint,
        propensity=variant.weight / cumulative[-1],
        reason="randomised",
    )


def allocate(taken: Sequence[tuple[int, int]], coverage: float) -> tuple[int, int] | None:
    """The first free run of slots as wide as `coverage`, or None if no gap of a layer is.

    `taken` are the ranges of the layer's other experiments, in any order; they may overlap. To
    leave room for a ramp, allocate the widest coverage it will reach and serve its lower end.

    Raises: BadInput if coverage is not in (0, 1] or below one slot, or a range is no range.
    """
    if not 0 < coverage <= 1:
        raise BadInput.of("coverage", f"must be in (0, 1], not {coverage}")
    width = round(coverage * LAYER_SLOTS)
    if not width:
        raise BadInput.of("coverage", f"the smallest is {1 / LAYER_SLOTS}, not {coverage}")
    for each in taken:
        _check_range(each, "taken")
    free_from = 0
    for start, end in sorted(each for each in taken if each[0] < each[1]):
        if start - free_from >= width:
            break
        free_from = max(free_from, end)
    return (free_from, free_from + width) if free_from + width <= LAYER_SLOTS else None


def _place(key: str, cumulative: tuple[int, ...]) -> int:
    return bisect_right(cumulative, (hash32(key) * cumulative[-1]) >> 32)


def _assignment_id(spec: ExperimentSpec, unit_id: str) -> str:
    return blake2b(
        (spec.identity + unit_id).encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()


def _check_weight(weight: int, field: str) -> None:
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
        raise BadInput.of(field, f"must be an integer of 0 or more, not {weight!r}")


def _check_weights(weights: Sequence[int], field: str) -> None:
    for weight in weights:
        _check_weight(weight, field)
    if not 0 < sum(weights) <= MAX_TOTAL_WEIGHT:
        raise BadInput.of(field, f"weights must sum to 1..{MAX_TOTAL_WEIGHT}, not {sum(weights)}")


def _check_range(slots: tuple[int, int], field: str) -> None:
    start, end = slots
    if not 0 <= start <= end <= LAYER_SLOTS:
        raise BadInput.of(field, f"must be 0 <= start <= end <= {LAYER_SLOTS}, not {slots}")
