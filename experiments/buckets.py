"""Hashes and ranges: from a key to a bucket, by integers, the same in every language.

Strings are hashed as their UTF-8 bytes. GrowthBook's JavaScript and Python SDKs hash UTF-16 units
instead, so there, and only there, ids that are not ASCII fall into other buckets
(growthbook-flutter#134).
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import isfinite
from typing import Literal

import mmh3

from ingest.errors import BadInput

Algorithm = Literal["murmur3-32", "growthbook-v1", "growthbook-v2"]
RESOLUTION: dict[Algorithm, int] = {
    "murmur3-32": 10_000,
    "growthbook-v1": 1_000,
    "growthbook-v2": 10_000,
}
"""Buckets of each hash unless another number is asked for; GrowthBook's two are fixed."""

MAX_TOTAL_WEIGHT = 2**31 - 1
"""As in flagd. Far below the hash's 2**32 values, so an arm of weight 1 still gets units."""

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_USABLE_SUM = (0.99, 1.01)


def utf8(text: str) -> bytes:
    """The bytes that are hashed: a lone surrogate, which JavaScript ids may hold, is three."""
    return text.encode("utf-8", "surrogatepass")


def hash32(key: str, seed: int = 0) -> int:
    """MurmurHash3 x86-32 of the key's UTF-8 bytes, unsigned; `seed` in [0, 2**32).

    Source: A. Appleby, MurmurHash3 (public domain).
    """
    return mmh3.hash(utf8(key), seed, signed=False)


def hash_bucket(
    key: str,
    *,
    algorithm: Algorithm = "murmur3-32",
    resolution: int | None = None,
    seed: int | str = 0,
) -> int:
    """The bucket of `key`, in [0, resolution).

    `murmur3-32` maps the hash by integers, (h · resolution) >> 32, with a whole number in
    [0, 2**32) as seed. GrowthBook's seeds are text; v1 is fnv1a(key + seed) mod 1,000, v2
    fnv1a(str(fnv1a(seed + key))) mod 10,000. v1 is biased between experiments that run at the same
    time, as its own documentation says: it is here to keep arms that were dealt with it.

    Raises: BadInput for another algorithm, a seed of the wrong kind, or a resolution that is below
    1, above 2**32 or not GrowthBook's.
    Source: open-feature/flagd#1909; GrowthBook SDK specification 0.7.1.
    """
    if algorithm not in RESOLUTION:
        raise BadInput.of("algorithm", f"there are {', '.join(RESOLUTION)}; not {algorithm!r}")
    buckets = RESOLUTION[algorithm] if resolution is None else resolution
    if algorithm == "murmur3-32":
        if isinstance(seed, str) or not 0 <= seed < 2**32:
            raise BadInput.of("seed", f"must be a whole number in [0, 2**32), not {seed!r}")
        if not 1 <= buckets <= 2**32:
            raise BadInput.of("resolution", f"must be in [1, 2**32], not {buckets}")
        return (hash32(key, seed) * buckets) >> 32
    if buckets != RESOLUTION[algorithm]:
        raise BadInput.of("resolution", f"{algorithm} has {RESOLUTION[algorithm]}, not {buckets}")
    text = str(seed) if seed else ""
    if algorithm == "growthbook-v1":
        return _fnv1a32(key + text) % buckets
    return _fnv1a32(str(_fnv1a32(text + key))) % buckets


def bucket_ranges(weights: Sequence[float], coverage: float = 1.0) -> list[tuple[float, float]]:
    """A half-open range of [0, 1) for each arm, with the share `coverage` of its weight.

    A range starts where it would at full coverage, so a ramp only moves ends and nobody changes
    arms (growthbook-js#22). As in GrowthBook, coverage is brought into [0, 1], and weights that do
    not sum to 1 within 0.01 are taken as equal; a sum of 0.9999 leaves its last part to nobody.

    Raises: BadInput if a weight is negative, or it or the coverage is not finite.
    Source: GrowthBook SDK specification 0.7.1.
    """
    if not all(isfinite(weight) and weight >= 0 for weight in weights):
        raise BadInput.of("weights", f"must be finite and 0 or more, not {list(weights)}")
    if not isfinite(coverage):
        raise BadInput.of("coverage", f"must be finite, not {coverage}")
    low, high = _USABLE_SUM
    usable = weights if low <= sum(weights) <= high else [1 / len(weights)] * len(weights)
    share = min(max(coverage, 0.0), 1.0)
    starts = accumulate(usable, initial=0.0)
    return [(start, start + share * weight) for start, weight in zip(starts, usable, strict=False)]


def choose(point: float, ranges: Sequence[tuple[float, float]]) -> int:
    """Index of the first range that holds the point, its end excluded; -1 if none does."""
    for index, (start, end) in enumerate(ranges):
        if start <= point < end:
            return index
    return -1


def in_namespace(unit_id: str, namespace: tuple[str, float, float]) -> bool:
    """Whether a GrowthBook namespace, (name, start, end), has the unit.

    Source: GrowthBook SDK specification 0.7.1.
    """
    name, start, end = namespace
    bucket = hash_bucket(unit_id, algorithm="growthbook-v1", seed=f"__{name}")
    return start <= bucket / RESOLUTION["growthbook-v1"] < end


def pick(key: str, weights: Sequence[int]) -> int:
    """Index of the weight that `key` falls into; a zero weight gets nothing.

    The hash is mapped to [0, total) by integers only, as float formulas make languages disagree
    (open-feature/flagd#1872); the first cumulative weight strictly above wins.

    Raises: BadInput if weights are empty, negative, no integers, all zero, or sum to more than
    `MAX_TOTAL_WEIGHT`.
    """
    check_weights(weights, "weights")
    cumulative = tuple(accumulate(weights))
    return bisect_right(cumulative, (hash32(key) * cumulative[-1]) >> 32)


def floored(weights: Sequence[float], floor: float) -> list[float]:
    """Shares that sum to 1 and leave each arm at least `floor`, in the order of the weights.

    p = floor + (1 − k·floor)·w: all arms give alike. Clipping and dividing by the new sum instead
    would take it from the leader alone (growthbook#6145).

    Raises: BadInput if a weight is negative or not finite, all are 0, or k·floor is not in [0, 1].
    """
    if not all(isfinite(weight) and weight >= 0 for weight in weights) or not sum(weights) > 0:
        raise BadInput.of("weights", f"must be 0 or more and not all 0, not {list(weights)}")
    arms = len(weights)
    if not 0 <= floor * arms <= 1:
        raise BadInput.of("floor", f"must be in [0, {1 / arms:g}] for {arms} arms, not {floor}")
    total = sum(weights)
    return [floor + (1 - arms * floor) * weight / total for weight in weights]


def check_weight(weight: int, field: str) -> None:
    """Raises: BadInput naming `field`."""
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
        raise BadInput.of(field, f"must be an integer of 0 or more, not {weight!r}")


def check_weights(weights: Sequence[int], field: str) -> None:
    """Raises: BadInput naming `field`."""
    for weight in weights:
        check_weight(weight, field)
    if not 0 < sum(weights) <= MAX_TOTAL_WEIGHT:
        raise BadInput.of(field, f"weights must sum to 1..{MAX_TOTAL_WEIGHT}, not {sum(weights)}")


def _fnv1a32(text: str) -> int:
    """FNV-1a, 32 bits. Source: G. Fowler, L. C. Noll, K.-P. Vo."""
    value = _FNV_OFFSET
    for byte in utf8(text):
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value
