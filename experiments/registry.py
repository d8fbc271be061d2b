"""Experiments as they were set up, what became of them, and the layers they share."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from experiments import lifecycle
from experiments.assign import ExperimentSpec, UnitType
from experiments.layers import Layer, around, check_layer
from experiments.lifecycle import HOLDS_SLOTS, Phase
from experiments.plans import (
    Experiment,
    Goals,
    Guardrail,
    Plan,
    PlannedVariant,
    check_plan,
)
from experiments.rows import (
    CHANGES,
    EXPERIMENTS,
    LAYERS,
    PINS,
    from_layer,
    from_row,
    to_change,
    to_layer,
    to_row,
)
from experiments.sticky import ControlSticky, StickyStore
from ingest.control import reading, utc_now, writing
from ingest.errors import BadInput, Conflict, NotFound

__all__ = ["Experiment", "Experiments", "Goals", "Guardrail", "Plan", "PlannedVariant"]

_FRESH_S = 1.0

Step = Callable[[Experiment, Sequence[Experiment], str], Experiment]
"""From an experiment, the others that hold slots of its layer, and the time, to what it becomes."""


@dataclass
class Experiments:
    """The registry. Reads of running specs are for the hot path: at most a second old."""

    engine: Engine
    has_checkpoint: Callable[[str], bool] = lambda _: True
    """Whether a checkpoint can serve; the registry of checkpoints lives in another room."""
    _running: tuple[ExperimentSpec, ...] = field(default=(), init=False)
    _read_at: float = field(default=-1e9, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @cached_property
    def sticky(self) -> StickyStore:
        """Where units of plans with `sticky` keep their arms."""
        return ControlSticky(self.engine)

    def create(self, plan: Plan) -> Experiment:
        """A draft. Raises: BadInput, Conflict when the key is taken."""
        check_plan(plan)
        draft = Experiment(plan, "draft", 1, (0, 0), utc_now(), None, None)
        try:
            with writing(self.engine) as connection:
                self._check_unit(connection, plan)
                connection.execute(insert(EXPERIMENTS).values(to_row(draft)))
                _note(connection, draft, "create", draft.created_at)
        except IntegrityError as error:
            raise Conflict(f"experiment {plan.key!r} exists; choose another key") from error
        return self.get(plan.key)

    def start(self, key: str) -> Experiment:
        """Traffic is split from now on. Raises: NotFound, Conflict saying what to do instead."""

        def step(experiment: Experiment, others: Sequence[Experiment], at: str) -> Experiment:
            started = lifecycle.start(experiment, others, at)
            self._check_checkpoints(started)
            return started

        return self._change(key, "start", step)

    def pause(self, key: str) -> Experiment:
        """Nobody is assigned until it is started again. Raises: NotFound, Conflict."""
        return self._change(key, "pause", lambda each, *_: lifecycle.pause(each))

    def stop(self, key: str) -> Experiment:
        """Nobody is assigned any more; the report stays. Raises: NotFound, Conflict."""
        return self._change(key, "stop", lambda each, _, at: lifecycle.stop(each, at))

    def ramp(self, key: str, coverage: float) -> Experiment:
        """More units are in; nobody changes arms. Raises: NotFound, Conflict."""
        return self._change(key, "ramp", lambda it, near, _: lifecycle.ramp(it, coverage, near))

    def change(self, key: str, plan: Plan) -> Experiment:
        """The plan is this one, where that moves nobody. Raises: NotFound, BadInput, Conflict."""
        return self._change(key, "change", lambda it, near, _: lifecycle.change(it, plan, near))

    def phase(self, key: str, wanted: Phase) -> Experiment:
        """Dealt anew as the next version. Raises: NotFound, BadInput, Conflict."""

        def step(experiment: Experiment, others: Sequence[Experiment], at: str) -> Experiment:
            begun = lifecycle.phase(experiment, wanted, others, at)
            self._check_checkpoints(begun)
            return begun

        return self._change(key, "phase", step)

    def reweigh(self, key: str, shares: Mapping[str, float], version: int) -> Experiment:
        """A bandit's next batch, after that of `version`. Raises: NotFound, Conflict."""
        return self._change(key, "reweigh", lambda it, *_: lifecycle.reweigh(it, shares, version))

    def pin(self, key: str, unit: str, variant: str | None) -> Experiment:
        """The unit gets this arm without a draw and is not measured; None draws again.

        Raises: NotFound, BadInput.
        """
        experiment = self.get(key)
        arms = [each.key for each in experiment.plan.variants]
        if variant is not None and variant not in arms:
            raise BadInput.of("variant", f"no variant {variant!r}; there are {', '.join(arms)}")
        pinned = (PINS.c.experiment == key) & (PINS.c.unit == unit)
        with writing(self.engine) as connection:
            connection.execute(delete(PINS).where(pinned))
            if variant is not None:
                row = {"experiment": key, "unit": unit, "variant": variant}
                connection.execute(insert(PINS).values(row))
        self._read_at = -1e9
        return self.get(key)

    def forget(self, unit_type: UnitType, unit: str) -> None:
        """No pin and no kept arm names the unit. Raises: Unavailable."""
        self.sticky.forget(unit_type, unit)
        keys = [each.plan.key for each in self.all() if each.plan.unit == unit_type]
        with writing(self.engine) as connection:
            gone = (PINS.c.unit == unit) & PINS.c.experiment.in_(keys)
            connection.execute(delete(PINS).where(gone))
        self._read_at = -1e9

    def get(self, key: str, version: int | None = None) -> Experiment:
        """The experiment, or as its phase of that version was at its end. Raises: NotFound."""
        with reading(self.engine) as connection:
            found = _find(self._read(connection), key)
            if version in {None, found.version}:
                return found
            of_version = (CHANGES.c.key == key) & (CHANGES.c.version == version)
            question = select(CHANGES).where(of_version).order_by(CHANGES.c.number)
            rows = connection.execute(question).all()
        if not rows:
            raise NotFound(f"{key!r} has versions 1 to {found.version}, not {version}")
        plan, slots = (
            Plan.model_validate_json(rows[-1].plan),
            (rows[-1].range_start, rows[-1].range_end),
        )
        begun = next((row.at for row in rows if row.action in {"start", "phase", "reweigh"}), None)
        return replace(
            found, plan=plan, version=rows[-1].version, slots=slots, phase_started_at=begun
        )

    def changes(self, key: str) -> list[dict[str, Any]]:
        """What was done to the experiment, oldest first."""
        question = select(CHANGES).where(CHANGES.c.key == key).order_by(CHANGES.c.number)
        with reading(self.engine) as connection:
            return [
                {"at": row.at, "action": row.action, "version": row.version}
                for row in connection.execute(question)
            ]

    def all(self) -> list[Experiment]:
        """Oldest first."""
        with reading(self.engine) as connection:
            return self._read(connection)

    def running(self) -> tuple[ExperimentSpec, ...]:
        """Specs of running experiments, the one started first first."""
        with self._lock:
            if time.monotonic() - self._read_at > _FRESH_S:
                started = [each for each in self.all() if each.status == "running"]
                started.sort(key=lambda each: each.started_at or "")
                self._running = tuple(each.spec for each in started)
                self._read_at = time.monotonic()
            return self._running

    def layers(self) -> list[Layer]:
        """Those that were described, by key."""
        with reading(self.engine) as connection:
            return list(_layers(connection).values())

    def save_layer(self, layer: Layer) -> Layer:
        """The layer is as described. Raises: BadInput, Conflict while it would move anybody."""
        if layer.holdout and not self.has_checkpoint(layer.holdout.checkpoint):
            raise BadInput.of("holdout.checkpoint", f"no checkpoint {layer.holdout.checkpoint!r}")
        with writing(self.engine) as connection:
            layers = _layers(connection)
            check_layer(layer, layers)
            experiments = self._read(connection)
            mine = [each for each in experiments if each.plan.layer == layer.key]
            if other := next((each for each in mine if each.plan.unit != layer.unit), None):
                fix = f"experiment {other.plan.key!r} splits it by {other.plan.unit}"
                raise BadInput.of("unit", f"{fix}; use another layer")
            if layers.get(layer.key) != layer:
                _check_quiet(layer, layers, experiments)
            connection.execute(delete(LAYERS).where(LAYERS.c.key == layer.key))
            connection.execute(insert(LAYERS).values(from_layer(layer)))
        self._read_at = -1e9
        return layer

    def _change(self, key: str, action: str, step: Step) -> Experiment:
        at = utc_now()
        with writing(self.engine) as connection:
            # Where writers are not alone, as in PostgreSQL, they wait for one another here.
            connection.execute(select(EXPERIMENTS.c.key).with_for_update()).all()
            everything = self._read(connection)
            before = _find(everything, key)
            others = [
                each
                for each in everything
                if each.status in HOLDS_SLOTS
                and each.plan.layer == before.plan.layer
                and each.plan.key != key
            ]
            after = step(before, others, at)
            if after.plan.layer != before.plan.layer or after.plan.unit != before.plan.unit:
                self._check_unit(connection, after.plan)
            row = to_row(after)
            connection.execute(update(EXPERIMENTS).where(EXPERIMENTS.c.key == key).values(row))
            _note(connection, after, action, at)
        self._read_at = -1e9
        return self.get(key)

    def _read(self, connection: Connection) -> list[Experiment]:
        layers, pins = _layers(connection), connection.execute(select(PINS)).all()
        found = []
        for row in connection.execute(select(EXPERIMENTS).order_by(EXPERIMENTS.c.created_at)):
            holdouts = [each.holdout for each in around(row.layer, layers) if each.holdout]
            pinned = ((pin.unit, pin.variant) for pin in pins if pin.experiment == row.key)
            found.append(from_row(row, tuple(holdouts), tuple(pinned)))
        return found

    def _check_unit(self, connection: Connection, plan: Plan) -> None:
        """Two unit types in a layer would exclude nothing (growthbook#442, #3794)."""
        described = _layers(connection).get(plan.layer)
        units = {
            each.plan.unit
            for each in self._read(connection)
            if each.plan.layer == plan.layer and each.plan.key != plan.key
        }
        if described:
            units.add(described.unit)
        if units - {plan.unit}:
            raise BadInput.of(
                "unit", f"layer {plan.layer!r} splits another unit; use another layer"
            )

    def _check_checkpoints(self, experiment: Experiment) -> None:
        """An arm that cannot be served would lose its units and bias the rest."""
        arms = [each.checkpoint for each in experiment.plan.variants]
        held = [each.checkpoint for each in experiment.holdouts]
        missing = [each for each in (*arms, *held) if not self.has_checkpoint(each)]
        if missing:
            raise Conflict(
                f"no checkpoint {missing[0]!r} to serve an arm; `thumbwheel checkpoint add` it first"
            )


def _note(connection: Connection, experiment: Experiment, action: str, at: str) -> None:
    connection.execute(insert(CHANGES).values(to_change(experiment, action, at)))


def _find(experiments: Sequence[Experiment], key: str) -> Experiment:
    for each in experiments:
        if each.plan.key == key:
            return each
    raise NotFound(f"no experiment {key!r}")


def _layers(connection: Connection) -> dict[str, Layer]:
    rows = connection.execute(select(LAYERS).order_by(LAYERS.c.key))
    return {row.key: to_layer(row) for row in rows}


def _check_quiet(layer: Layer, layers: dict[str, Layer], experiments: Sequence[Experiment]) -> None:
    """No experiment in the layer, or in one inside it, is measured now."""
    after = {**layers, layer.key: layer}
    for each in experiments:
        inside = any(outer.key == layer.key for outer in around(each.plan.layer, after))
        if each.status in HOLDS_SLOTS and inside:
            raise Conflict(
                f"{each.plan.key!r} is {each.status} in layer {layer.key!r}; stop it, or describe "
                "another layer"
            )
