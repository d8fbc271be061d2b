"""Experiments and layers as rows of the control database."""

from typing import Any

from sqlalchemy import Column, Float, Integer, Row, String, Table, Text

from experiments.layers import LAYER_SLOTS, Holdout, Layer
from experiments.plans import Experiment, Plan
from ingest.control import METADATA

EXPERIMENTS = Table(
    "experiments",
    METADATA,
    Column("key", String, primary_key=True),
    Column("plan", Text, nullable=False),
    Column("status", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("layer", String, nullable=False),
    Column("range_start", Integer),
    Column("range_end", Integer),
    Column("created_at", String, nullable=False),
    Column("started_at", String),
    Column("stopped_at", String),
    Column("room_end", Integer),
    Column("phase_started_at", String),
    Column("min_version", Integer),
    Column("run_version", Integer),
)

CHANGES = Table(
    "experiment_changes",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, index=True),
    Column("at", String, nullable=False),
    Column("action", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("plan", Text, nullable=False),
    Column("range_start", Integer, nullable=False),
    Column("range_end", Integer, nullable=False),
)
"""What was done, and the plan and slots after it: the plan of an earlier phase is its last one."""

LAYERS = Table(
    "experiment_layers",
    METADATA,
    Column("key", String, primary_key=True),
    Column("unit", String, nullable=False),
    Column("within", String),
    Column("holdout_share", Float),
    Column("holdout_checkpoint", String),
)

PINS = Table(
    "experiment_pins",
    METADATA,
    Column("experiment", String, primary_key=True),
    Column("unit", String, primary_key=True),
    Column("variant", String, nullable=False),
)


def to_row(experiment: Experiment) -> dict[str, Any]:
    return {
        "key": experiment.plan.key,
        "plan": experiment.plan.model_dump_json(),
        "status": experiment.status,
        "version": experiment.version,
        "layer": experiment.plan.layer,
        "range_start": experiment.slots[0],
        "range_end": experiment.slots[1],
        "created_at": experiment.created_at,
        "started_at": experiment.started_at,
        "stopped_at": experiment.stopped_at,
        "room_end": experiment.room_end,
        "phase_started_at": experiment.phase_started_at,
        "min_version": experiment.min_version,
        "run_version": experiment.run_version,
    }


def to_change(experiment: Experiment, action: str, at: str) -> dict[str, Any]:
    row = to_row(experiment)
    kept = ("key", "version", "plan", "range_start", "range_end")
    return {"at": at, "action": action} | {name: row[name] for name in kept}


def from_row(
    row: Row[Any],
    holdouts: tuple[Holdout, ...] = (),
    pinned: tuple[tuple[str, str], ...] = (),
) -> Experiment:
    """Rows of older versions hold nothing in newer columns."""
    return Experiment(
        plan=Plan.model_validate_json(row.plan),
        status=row.status,
        version=row.version,
        slots=(row.range_start or 0, row.range_end or 0),
        created_at=row.created_at,
        started_at=row.started_at,
        stopped_at=row.stopped_at,
        room_end=row.room_end or 0,
        phase_started_at=row.phase_started_at or row.started_at,
        min_version=row.min_version or 0,
        run_version=row.run_version or 0,
        holdouts=holdouts,
        pinned=pinned,
    )


def to_layer(row: Row[Any]) -> Layer:
    holdout = None
    if row.holdout_share is not None:
        slots = round(row.holdout_share * LAYER_SLOTS)
        holdout = Holdout(row.key, slots, row.holdout_checkpoint)
    return Layer(row.key, row.unit, row.within, holdout)


def from_layer(layer: Layer) -> dict[str, Any]:
    held = layer.holdout
    return {
        "key": layer.key,
        "unit": layer.unit,
        "within": layer.within,
        "holdout_share": held.slots / LAYER_SLOTS if held else None,
        "holdout_checkpoint": held.checkpoint if held else None,
    }
