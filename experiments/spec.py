"""What assignment needs to know of an experiment, and what it answers."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Literal, NamedTuple

import mmh3

from experiments.buckets import (
    RESOLUTION,
    Algorithm,
    bucket_ranges,
    check_weight,
    check_weights,
    choose,
    hash_bucket,
    utf8,
)
from experiments.layers import LAYER_SEED, LAYER_SLOTS, Holdout, UnitType, check_range
from experiments.switchback import Switchback
from experiments.targeting import Condition
from ingest.errors import BadInput

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
        check_weight(self.weight, "weight")


class Assignment(NamedTuple):
    """The arm of one unit. `propensity` is the probability the randomisation gave that arm.

    `assignment_id` joins facts to it: 32 hex digits, always the same for the same experiment,
    version, unit type and unit; in a switchback also for the block, whose number follows a dot.
    Only `reason` "randomised" is measured.
    """

    assignment_id: str
    experiment: str
    version: int
    variant: str
    checkpoint: str
    propensity: float
    reason: Reason


@dataclass(frozen=True)
class ExperimentSpec:
    """What assignment needs to know of an experiment.

    `layer_range` is (start, end), end excluded, in slots of the layer; its width is the coverage,
    and an empty range covers nobody. The layer owns the unit type: whoever stores specs refuses
    two unit types in a layer, as units of different types exclude nothing.

    A larger `end` is a ramp and moves nobody. New weights, variants or a new start re-deal the
    arms: raise `version` and take a new `salt`, or phase 1 leaks into phase 2. Only where arms are
    kept in a sticky store may weights change within a version.

    With one of GrowthBook's algorithms the salt is its seed, and the coverage shrinks the arms'
    ranges as it does there; such an experiment owns its whole layer.

    Raises: BadInput naming the field that is wrong.
    """

    key: str
    version: int
    unit: UnitType
    variants: tuple[Variant, ...]
    salt: str
    layer: str = "default"
    layer_range: tuple[int, int] = (0, LAYER_SLOTS)
    targeting: tuple[Condition, ...] = ()
    holdouts: tuple[Holdout, ...] = ()
    """Of the layer and of those around it, the outermost first."""
    pinned: tuple[tuple[str, str], ...] = ()
    """(unit id, variant key): units that get an arm without a draw, and are not measured."""
    sticky: bool = False
    """Arms are to be kept: give `Bucketer.assign` a store."""
    min_version: int = 0
    """Units that a sticky store knows from a version below this are left out."""
    algorithm: Algorithm = "murmur3-32"
    switchback: Switchback | None = None
    kept_since: int | None = None
    """Of a bandit: arms that a sticky store keeps from this version on hold in this one, too."""

    def __post_init__(self) -> None:
        for field in ("key", "salt", "layer"):
            if not getattr(self, field):
                raise BadInput.of(field, "must not be empty")
        if self.version < 1:
            raise BadInput.of("version", f"starts at 1, not {self.version}")
        keys = [variant.key for variant in self.variants]
        if len(set(keys)) < len(keys):
            raise BadInput.of("variants", f"keys must differ, got {keys}")
        check_range(self.layer_range, "layer_range")
        check_weights(self.weights, "variants")
        if self.algorithm != "murmur3-32" and self.layer_range[0]:
            raise BadInput.of("layer_range", f"starts at 0 with {self.algorithm}")

    @cached_property
    def weights(self) -> tuple[int, ...]:
        return tuple(variant.weight for variant in self.variants)

    @cached_property
    def identity(self) -> bytes:
        """What an assignment id is made of, before the unit's id."""
        # The key's length keeps ("a", "b:c") and ("a:b", "c") apart and forbids no character.
        return utf8(f"{self.unit}:{self.version}:{len(self.key)}:{self.key}")

    @cached_property
    def pins(self) -> Mapping[str, str]:
        return dict(self.pinned)

    @cached_property
    def is_plain(self) -> bool:
        """Nothing but the unit's id matters."""
        return not (self.pinned or self.holdouts or self.targeting or self.switchback)

    @cached_property
    def deal(self) -> Callable[[str], Assignment | None]:
        """The draw alone, compiled: everything that does not depend on the unit is done."""
        return _murmur_deal(self) if self.algorithm == "murmur3-32" else _growthbook_deal(self)

    def covers(self, unit_id: str) -> bool:
        """Whether the unit's slot in the layer is the experiment's."""
        start, end = self.layer_range
        hashed = mmh3.mmh3_32_uintdigest(utf8(self.layer + unit_id), LAYER_SEED)
        return start <= (hashed * LAYER_SLOTS) >> 32 < end

    def give(
        self,
        variant: str,
        unit_id: str,
        *,
        propensity: float,
        reason: Reason,
        block: int | None = None,
    ) -> Assignment:
        """The assignment of a unit to one of the arms, however it came about.

        Raises: BadInput if there is no such arm.
        """
        arm = next((each for each in self.variants if each.key == variant), None)
        if arm is None:
            keys = ", ".join(each.key for each in self.variants)
            raise BadInput.of("overrides", f"no variant {variant!r}; there are {keys}")
        where = "" if block is None else f":{block}:"
        named = _assignment_id(self.identity + where.encode() + utf8(unit_id))
        if block is not None:
            named += f".{block}"
        return Assignment(
            named, self.key, self.version, arm.key, arm.checkpoint, propensity, reason
        )


def _murmur_deal(spec: ExperimentSpec) -> Callable[[str], Assignment | None]:
    layer, salt, identity = utf8(spec.layer), utf8(spec.salt), spec.identity
    start, end = spec.layer_range
    whole = (start, end) == (0, LAYER_SLOTS)
    cumulative = tuple(accumulate(spec.weights))
    total, arms = cumulative[-1], _arms(spec)
    hashed, make = mmh3.mmh3_32_uintdigest, tuple.__new__

    def deal(unit_id: str) -> Assignment | None:
        unit = unit_id.encode("utf-8", "surrogatepass")
        if not whole and not start <= (hashed(layer + unit, LAYER_SEED) * LAYER_SLOTS) >> 32 < end:
            return None
        arm = arms[bisect_right(cumulative, (hashed(salt + unit) * total) >> 32)]
        # As Assignment(…), in half the time.
        return make(Assignment, (_assignment_id(identity + unit), *arm))

    return deal


def _growthbook_deal(spec: ExperimentSpec) -> Callable[[str], Assignment | None]:
    total, arms, buckets = sum(spec.weights), _arms(spec), RESOLUTION[spec.algorithm]
    coverage = spec.layer_range[1] / LAYER_SLOTS
    ranges = bucket_ranges([weight / total for weight in spec.weights], coverage)

    def deal(unit_id: str) -> Assignment | None:
        bucket = hash_bucket(unit_id, algorithm=spec.algorithm, seed=spec.salt)
        index = choose(bucket / buckets, ranges)
        if index < 0:
            return None
        return Assignment(_assignment_id(spec.identity + utf8(unit_id)), *arms[index])

    return deal


def _arms(spec: ExperimentSpec) -> list[tuple[str, int, str, str, float, Reason]]:
    """What an assignment says after its id, for each arm."""
    total = sum(spec.weights)
    return [
        (spec.key, spec.version, arm.key, arm.checkpoint, arm.weight / total, "randomised")
        for arm in spec.variants
    ]


def _assignment_id(named: bytes) -> str:
    return blake2b(named, digest_size=16).hexdigest()
