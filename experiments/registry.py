"""Experiments as they were set up, and what they may still become."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from sqlalchemy import Column, Engine, Integer, Row, String, Table, Text, insert, select, update
from sqlalchemy.exc import IntegrityError

from experiments.assign import LAYER_SLOTS, ExperimentSpec, UnitType, Variant, allocate
from experiments.metrics import metric
from ingest.control import METADATA, reading, utc_now, writing
from ingest.errors import BadInput, Conflict, NotFound

_FRESH_S = 1.0
_WEIGHT_STEPS = 1_000_000
_EXPERIMENTS = Table(
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
)

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,99}$")]
Status = Literal["draft", "running", "stopped"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedVariant(_Strict):
    key: Key
    checkpoint: Annotated[str, Field(min_length=1)]
    weight: Annotated[float, Field(ge=0, le=1_000_000)] = 1


class Guardrail(_Strict):
    metric: str
    margin: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """The largest harm that is acceptable, in the metric's own unit."""


class Goals(_Strict):
    goals: Annotated[tuple[str, ...], Field(min_length=1)] = ("thumbs_net",)
    guardrails: tuple[Guardrail, ...] = ()


class Plan(_Strict):
    """What an analyst asks for. The first variant is the control."""

    key: Key
    unit: UnitType = "user"
    variants: Annotated[tuple[PlannedVariant, ...], Field(min_length=2, max_length=20)]
    layer: Key = "default"
    coverage: Annotated[float, Field(gt=0, le=1)] = 1.0
    metrics: Goals = Goals()
    reading: Literal["sequential", "fixed"] = "sequential"
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    planned_units: Annotated[int, Field(ge=2)] = 5_000
    """Both arms together; a sequential reading is sharpest there."""

    @field_validator("metrics")
    @classmethod
    def _metrics_exist(cls, metrics: Goals) -> Goals:
        for key in (*metrics.goals, *(each.metric for each in metrics.guardrails)):
            try:
                metric(key, "metrics")
            except BadInput as error:
                raise ValueError(error.errors[0].detail) from error
        return metrics


@dataclass(frozen=True)
class Experiment:
    plan: Plan
    status: Status
    version: int
    slots: tuple[int, int]
    created_at: str
    started_at: str | None
    stopped_at: str | None

    @property
    def spec(self) -> ExperimentSpec:
        """What assignment needs; a new version has a new salt and re-deals the arms."""
        return ExperimentSpec(
            key=self.plan.key,
            version=self.version,
            unit=self.plan.unit,
            variants=tuple(
                Variant(each.key, each.checkpoint, weight)
                for each, weight in zip(self.plan.variants, _whole(self.plan.variants), strict=True)
            ),
            salt=f"{self.plan.key}/{self.version}/",
            layer=f"{self.plan.layer}/",
            layer_range=self.slots,
        )

    def public(self) -> dict[str, Any]:
        return self.plan.model_dump() | {
            "status": self.status,
            "version": self.version,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "stopped_at": self.stopped_at,
        }


@dataclass
class Experiments:
    """The registry. Reads of running specs are for the hot path: at most a second old."""

    engine: Engine
    has_checkpoint: Callable[[str], bool] = lambda _: True
    """Whether a checkpoint can serve; the registry of checkpoints lives in another room."""
    _running: tuple[ExperimentSpec, ...] = field(default=(), init=False)
    _read_at: float = field(default=-1e9, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def create(self, plan: Plan) -> Experiment:
        """A draft. Raises: BadInput, Conflict when the key is taken."""
        spec = Experiment(plan, "draft", 1, (0, LAYER_SLOTS), "", None, None).spec
        allocate([], plan.coverage)  # refuses now what start would refuse
        others = [each for each in self.all() if each.plan.layer == plan.layer]
        if any(each.plan.unit != spec.unit for each in others):
            raise BadInput.of(
                "unit", f"layer {plan.layer!r} splits another unit; use another layer"
            )
        try:
            with writing(self.engine) as connection:
                connection.execute(
                    insert(_EXPERIMENTS).values(
                        key=plan.key,
                        plan=plan.model_dump_json(),
                        status="draft",
                        version=1,
                        layer=plan.layer,
                        created_at=utc_now(),
                    )
                )
        except IntegrityError as error:
            raise Conflict(f"experiment {plan.key!r} exists; choose another key") from error
        return self.get(plan.key)

    def start(self, key: str) -> Experiment:
        """Traffic is split from now on. Raises: NotFound, Conflict saying what to do instead."""
        with writing(self.engine) as connection:
            rows = [_read(row) for row in connection.execute(select(_EXPERIMENTS))]
            experiment = next((each for each in rows if each.plan.key == key), None)
            if experiment is None:
                raise NotFound(f"no experiment {key!r}")
            if experiment.status != "draft":
                raise Conflict(
                    f"{key!r} is {experiment.status}; create a new experiment to run again"
                )
            self._check_checkpoints(experiment.plan)
            busy = [
                each
                for each in rows
                if each.status == "running" and each.plan.layer == experiment.plan.layer
            ]
            slots = allocate([each.slots for each in busy], experiment.plan.coverage)
            if slots is None:
                names = ", ".join(repr(each.plan.key) for each in busy)
                raise Conflict(
                    f"layer {experiment.plan.layer!r} has no room for coverage "
                    f"{experiment.plan.coverage:g} beside {names}; stop one, or create this "
                    "experiment with a smaller coverage or in another layer"
                )
            connection.execute(
                update(_EXPERIMENTS)
                .where(_EXPERIMENTS.c.key == key)
                .values(
                    status="running", range_start=slots[0], range_end=slots[1], started_at=utc_now()
                )
            )
        self._read_at = -1e9
        return self.get(key)

    def _check_checkpoints(self, plan: Plan) -> None:
        """An arm that cannot be served would lose its units and bias the rest."""
        missing = [v.checkpoint for v in plan.variants if not self.has_checkpoint(v.checkpoint)]
        if missing:
            raise Conflict(
                f"no checkpoint {missing[0]!r} to serve an arm; `thumbwheel checkpoint add` it first"
            )

    def stop(self, key: str) -> Experiment:
        """Nobody is assigned any more; the report stays. Raises: NotFound, Conflict."""
        experiment = self.get(key)
        if experiment.status != "running":
            raise Conflict(
                f"{key!r} is {experiment.status}; only a running experiment can be stopped"
            )
        with writing(self.engine) as connection:
            connection.execute(
                update(_EXPERIMENTS)
                .where(_EXPERIMENTS.c.key == key)
                .values(status="stopped", stopped_at=utc_now())
            )
        self._read_at = -1e9
        return self.get(key)

    def get(self, key: str) -> Experiment:
        """Raises: NotFound."""
        question = select(_EXPERIMENTS).where(_EXPERIMENTS.c.key == key)
        with reading(self.engine) as connection:
            row = connection.execute(question).one_or_none()
        if row is None:
            raise NotFound(f"no experiment {key!r}")
        return _read(row)

    def all(self) -> list[Experiment]:
        """Oldest first."""
        with reading(self.engine) as connection:
            rows = connection.execute(select(_EXPERIMENTS).order_by(_EXPERIMENTS.c.created_at))
            return [_read(row) for row in rows]

    def running(self) -> tuple[ExperimentSpec, ...]:
        """Specs of running experiments, the one started first first."""
        with self._lock:
            if time.monotonic() - self._read_at > _FRESH_S:
                started = [each for each in self.all() if each.status == "running"]
                started.sort(key=lambda each: each.started_at or "")
                self._running = tuple(each.spec for each in started)
                self._read_at = time.monotonic()
            return self._running


def _read(row: Row[Any]) -> Experiment:
    return Experiment(
        plan=Plan.model_validate_json(row.plan),
        status=row.status,
        version=row.version,
        slots=(row.range_start or 0, row.range_end or 0),
        created_at=row.created_at,
        started_at=row.started_at,
        stopped_at=row.stopped_at,
    )


def _whole(variants: tuple[PlannedVariant, ...]) -> list[int]:
    """Weights as integers in the same proportion, to one part in a million."""
    weights = [each.weight for each in variants]
    total = sum(weights)
    if not isfinite(total) or total <= 0:
        raise BadInput.of("variants", "weights must sum to more than 0")
    if all(weight == int(weight) for weight in weights):
        return [int(weight) for weight in weights]
    return [round(weight / total * _WEIGHT_STEPS) for weight in weights]
