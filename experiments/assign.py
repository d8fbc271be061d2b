"""Who sees what: a pure function of an experiment's spec and a unit's id.

Two hashes decide. The layer's hash says which of `LAYER_SLOTS` slots a unit has in a layer; an
experiment owns a range of slots, so experiments of one layer never share a unit. The experiment's
own hash says which arm. Neither knows the other: widening a range moves nobody who was in.

Sources: layers, D. Tang et al., KDD 2010; integer ranges, open-feature/flagd#1909.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

from experiments.buckets import (
    MAX_TOTAL_WEIGHT,
    bucket_ranges,
    choose,
    floored,
    hash32,
    hash_bucket,
    in_namespace,
    pick,
)
from experiments.layers import LAYER_SLOTS, Holdout, UnitType, allocate
from experiments.spec import Assignment, ExperimentSpec, Reason, Variant
from experiments.sticky import Place, StickyStore
from experiments.switchback import Switchback
from experiments.targeting import Attributes, Condition, targeted
from ingest.errors import BadInput

__all__ = [
    "LAYER_SLOTS",
    "MAX_TOTAL_WEIGHT",
    "Assignment",
    "Bucketer",
    "Condition",
    "ExperimentSpec",
    "Holdout",
    "Reason",
    "Switchback",
    "UnitType",
    "Variant",
    "allocate",
    "assign",
    "bucket_ranges",
    "choose",
    "floored",
    "hash32",
    "hash_bucket",
    "in_namespace",
    "pick",
]

_NO_ATTRIBUTES: Attributes = MappingProxyType({})


def assign(
    spec: ExperimentSpec,
    unit_id: str,
    attributes: Attributes = _NO_ATTRIBUTES,
    *,
    at: datetime | None = None,
) -> Assignment | None:
    """The unit's arm, or None if the experiment is not for it or does not own its slot.

    Pure: the same spec, unit, attributes and, for a switchback, block give the same answer in
    every process, for ever. A pinned unit gets its arm, a held-out one the holdout's checkpoint;
    `reason` says so.

    Raises: BadInput if `unit_id` is empty, as all units without an id would share one arm; if a
    switchback is asked without `at`.
    """
    if not unit_id:
        raise BadInput.of("unit_id", "must not be empty")
    if spec.is_plain:
        return spec.deal(unit_id)
    if unit_id in spec.pins:
        return spec.give(spec.pins[unit_id], unit_id, propensity=1.0, reason="pinned")
    if held := _held(spec, unit_id):
        return held
    if not targeted(spec.targeting, attributes):
        return None
    return _in_block(spec, unit_id, at) if spec.switchback else spec.deal(unit_id)


class Bucketer:
    """Assignment as a request meets it: with its overrides and with arms that are kept."""

    def assign(
        self,
        experiment: ExperimentSpec,
        unit_id: str,
        attributes: Attributes,
        overrides: Mapping[str, str] | None = None,
        sticky: StickyStore | None = None,
        *,
        at: datetime | None = None,
    ) -> Assignment | None:
        """The unit's arm; in this order: pinned, held out, kept, drawn.

        `overrides` are variant keys by unit id; they win over the experiment's own pins, and their
        units are not measured. An arm that `sticky` has kept holds, with the propensity it was
        dealt with, whatever became of weights, coverage and attributes; one that is drawn is kept.
        A unit kept at a version below `min_version` is left out. Arms of a bandit's earlier batches
        hold, with the version of their batch. A switchback that is not told when deals as of now.

        Raises: BadInput as `assign` does, and for an override to an arm that is not there;
            Unavailable if the store does not answer.
        """
        if experiment.switchback and at is None:
            at = datetime.now(UTC)
        if overrides and unit_id in overrides:
            return experiment.give(overrides[unit_id], unit_id, propensity=1.0, reason="pinned")
        if sticky is None or unit_id in experiment.pins or _held(experiment, unit_id):
            return assign(experiment, unit_id, attributes, at=at)
        return _kept(experiment, unit_id, attributes, sticky, at=at)


def _kept(
    spec: ExperimentSpec,
    unit_id: str,
    attributes: Attributes,
    sticky: StickyStore,
    *,
    at: datetime | None,
) -> Assignment | None:
    """The arm that the unit has, or gets now and keeps."""
    place = Place(spec.unit, unit_id, spec.key)
    versions = sticky.find(place)
    if any(version < spec.min_version for version in versions):
        return None
    if spec.kept_since is not None:
        batches = [version for version in versions if version >= spec.kept_since]
        if batches and min(batches) != spec.version:
            spec = replace(spec, version=min(batches))
    kept = versions.get(spec.version)
    if kept is None:
        drawn = assign(spec, unit_id, attributes, at=at)
        if drawn is None:
            return None
        arm, share = drawn.variant, drawn.propensity
        kept = sticky.keep(place, spec.version, variant=arm, propensity=share)
    return spec.give(kept.variant, unit_id, propensity=kept.propensity, reason="randomised")


def _held(spec: ExperimentSpec, unit_id: str) -> Assignment | None:
    """In a holdout, a unit has the control's name and the holdout's checkpoint."""
    for holdout in spec.holdouts:
        if holdout.holds(unit_id):
            share, control = holdout.slots / LAYER_SLOTS, spec.variants[0].key
            given = spec.give(control, unit_id, propensity=share, reason="holdout")
            return given._replace(checkpoint=holdout.checkpoint)
    return None


def _in_block(spec: ExperimentSpec, unit_id: str, at: datetime | None) -> Assignment | None:
    if at is None or spec.switchback is None:
        raise BadInput.of("at", f"{spec.key!r} switches with time; say when")
    block = spec.switchback.block(at)
    if block is None or not spec.covers(unit_id):
        return None
    arm = spec.variants[spec.switchback.arm(block, spec.salt, spec.weights)]
    share = arm.weight / sum(spec.weights)
    return spec.give(arm.key, unit_id, propensity=share, reason="randomised", block=block)
