"""Layers split units of one type between experiments; holdouts keep units out of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.buckets import hash32
from ingest.errors import BadInput

LAYER_SLOTS = 10_000
"""Slots in a layer: the finest step of a ramp is 0.01 % of its units."""

# The layer's hash must stay independent of the arms' even where somebody names a salt after a
# layer; with one hash for both, a 10 % rollout would use a tenth of the arms' range only
# (Unleash/unleash-go-sdk#145).
LAYER_SEED = 86_028_157

UnitType = Literal["user", "organization"]


@dataclass(frozen=True)
class Holdout:
    """Units that no experiment of a layer touches: the first `slots` of a hash of their own.

    They are served by `checkpoint` while the layer's experiments run, so what all experiments did
    together can be read against them.

    Raises: BadInput if it holds nobody, or more than half.
    """

    key: str
    slots: int
    checkpoint: str

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= LAYER_SLOTS // 2:
            raise BadInput.of("holdout.share", f"must be in [{1 / LAYER_SLOTS}, 0.5]")

    @property
    def prefix(self) -> str:
        """What is hashed before the unit's id; no layer's own prefix is the same."""
        return f"{self.key}/holdout/"

    def holds(self, unit_id: str) -> bool:
        return slot(self.prefix, unit_id) < self.slots


@dataclass(frozen=True)
class Layer:
    """The layer owns the unit type: units of two types would exclude nothing (growthbook#442).

    `within` names the layer around this one, whose holdout holds back here too.
    """

    key: str
    unit: UnitType
    within: str | None = None
    holdout: Holdout | None = None


def slot(prefix: str, unit_id: str) -> int:
    """The unit's place in a layer, in [0, LAYER_SLOTS)."""
    return (hash32(prefix + unit_id, LAYER_SEED) * LAYER_SLOTS) >> 32


def around(key: str, layers: Mapping[str, Layer]) -> list[Layer]:
    """The layer and all around it, outermost first; nothing of a layer that nobody described.

    Raises: BadInput naming `within` where the way outwards is a circle.
    """
    found: list[Layer] = []
    step: str | None = key
    while step is not None and step in layers:
        found.append(layers[step])
        step = found[-1].within
        if any(each.key == step for each in found):
            names = " in ".join(repr(each.key) for each in found)
            raise BadInput.of("within", f"{names} in {step!r} is a circle; leave one of them out")
    return found[::-1]


def check_layer(layer: Layer, layers: Mapping[str, Layer]) -> None:
    """The layer may be saved beside the others.

    Raises: BadInput if the layer around it is unknown, splits another unit, or lies within it.
    """
    if layer.within is not None and layer.within != layer.key:
        outer = layers.get(layer.within)
        if outer is None:
            raise BadInput.of("within", f"no layer {layer.within!r}; describe that one first")
        if outer.unit != layer.unit:
            raise BadInput.of(
                "within", f"layer {outer.key!r} splits by {outer.unit}, this one by {layer.unit}"
            )
    around(layer.key, {**layers, layer.key: layer})


def allocate(taken: Sequence[tuple[int, int]], coverage: float) -> tuple[int, int] | None:
    """The first free run of slots as wide as `coverage`, or None if no gap of a layer is.

    `taken` are the ranges of the layer's other experiments, in any order; they may overlap. To
    leave room for a ramp, allocate the widest coverage it will reach and serve its lower end.

    Raises: BadInput if coverage is not in (0, 1] or below one slot, or a range is no range.
    """
    width = slots_of(coverage)
    for each in taken:
        check_range(each, "taken")
    free_from = 0
    for start, end in sorted(each for each in taken if each[0] < each[1]):
        if start - free_from >= width:
            break
        free_from = max(free_from, end)
    return (free_from, free_from + width) if free_from + width <= LAYER_SLOTS else None


def slots_of(coverage: float, field: str = "coverage") -> int:
    """How many slots a share of a layer is. Raises: BadInput if not in (0, 1] or below one slot."""
    if not 0 < coverage <= 1:
        raise BadInput.of(field, f"must be in (0, 1], not {coverage}")
    width = round(coverage * LAYER_SLOTS)
    if not width:
        raise BadInput.of(field, f"the smallest is {1 / LAYER_SLOTS}, not {coverage}")
    return width


def check_range(slots: tuple[int, int], field: str) -> None:
    """Raises: BadInput naming `field`."""
    start, end = slots
    if not 0 <= start <= end <= LAYER_SLOTS:
        raise BadInput.of(field, f"must be 0 <= start <= end <= {LAYER_SLOTS}, not {slots}")
