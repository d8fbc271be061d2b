"""An inline experiment as GrowthBook's SDKs evaluate it, for arms that were dealt with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.buckets import (
    RESOLUTION,
    Algorithm,
    bucket_ranges,
    choose,
    hash_bucket,
    in_namespace,
)
from ingest.errors import BadInput

_READ = {
    "key", "variations", "weights", "coverage", "ranges", "namespace", "hashAttribute",
    "hashVersion", "seed", "active", "force", "name", "phase", "meta",
}  # fmt: skip
"""Fields that decide here, or decide nothing. Any other would change who is in: it is refused."""


@dataclass(frozen=True)
class Evaluation:
    """`variation` is an index; units outside the experiment have the first, `in_experiment` false.

    `hash_used` is false for forced units: they are in, and no part of the analysis.
    """

    variation: int
    in_experiment: bool
    hash_used: bool


_OUTSIDE = Evaluation(0, in_experiment=False, hash_used=False)


def evaluate(experiment: Mapping[str, Any], context: Mapping[str, Any]) -> Evaluation:
    """What `run` of GrowthBook's SDKs answers for an experiment and a context in their JSON.

    The context may hold `attributes`, `enabled`, `qaMode` and `forcedVariations`.

    Raises: BadInput for a field of the experiment that is not read here, as `condition`: translate
    it into targeting; or for a hash version other than 1 and 2.
    Source: GrowthBook SDK specification 0.7.1, order of `run`.
    """
    if unread := sorted(set(experiment) - _READ):
        raise BadInput.of(unread[0], "is not read here; use the experiment's own targeting")
    variations = experiment["variations"]
    if len(variations) < 2 or not context.get("enabled", True):
        return _OUTSIDE
    forced = context.get("forcedVariations", {}).get(experiment["key"])
    if forced is not None:
        return _forced(forced, variations)
    index = _drawn(experiment, context)
    if index < 0:
        return _OUTSIDE
    if experiment.get("force") is not None:
        return _forced(experiment["force"], variations)
    return (
        _OUTSIDE if context.get("qaMode") else Evaluation(index, in_experiment=True, hash_used=True)
    )


def _drawn(experiment: Mapping[str, Any], context: Mapping[str, Any]) -> int:
    """Index of the arm that the hash gives the unit; -1 if none."""
    unit = _text(context.get("attributes", {}).get(experiment.get("hashAttribute") or "id"))
    if not experiment.get("active", True) or not unit:
        return -1
    namespace = experiment.get("namespace")
    if namespace and not in_namespace(unit, (namespace[0], namespace[1], namespace[2])):
        return -1
    return choose(_point(experiment, unit), _ranges(experiment))


def _forced(index: int, variations: Sequence[Any]) -> Evaluation:
    """An index beyond the variations is as no answer: outside."""
    if not 0 <= index < len(variations):
        return _OUTSIDE
    return Evaluation(index, in_experiment=True, hash_used=False)


def _point(experiment: Mapping[str, Any], unit: str) -> float:
    version = experiment.get("hashVersion") or 1
    if version not in {1, 2}:
        raise BadInput.of("hashVersion", f"must be 1 or 2, not {version!r}")
    algorithm: Algorithm = "growthbook-v1" if version == 1 else "growthbook-v2"
    seed = experiment.get("seed") or experiment["key"]
    return hash_bucket(unit, algorithm=algorithm, seed=seed) / RESOLUTION[algorithm]


def _ranges(experiment: Mapping[str, Any]) -> Sequence[tuple[float, float]]:
    if experiment.get("ranges"):
        return [(start, end) for start, end in experiment["ranges"]]
    arms = len(experiment["variations"])
    weights = experiment.get("weights") or ()
    equal = [1 / arms] * arms
    coverage = experiment.get("coverage")
    return bucket_ranges(
        weights if len(weights) == arms else equal, 1.0 if coverage is None else coverage
    )


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """An id as JavaScript spells it; "" where it is neither text nor a whole number."""
    if isinstance(value, str):
        return value
    is_whole = isinstance(value, int | float) and abs(value) < 2**53 and value == int(value)
    return str(int(value)) if is_whole and not isinstance(value, bool) else ""
