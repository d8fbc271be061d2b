"""What an analyst asks for, and an experiment as it stands."""

from dataclasses import dataclass
from datetime import datetime
from math import isclose, isfinite
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from experiments.allocations import Adaptive, Allocation, Fixed, InPeriods
from experiments.assign import ExperimentSpec, Holdout, Switchback, UnitType, Variant
from experiments.buckets import Algorithm
from experiments.layers import LAYER_SLOTS, slots_of
from experiments.metrics import metric, segment
from experiments.targeting import Targeting
from ingest.errors import BadInput, Conflict

_WEIGHT_STEPS = 1_000_000

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,99}$")]
CheckpointId = Annotated[str, Field(min_length=1, max_length=200)]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
Status = Literal["draft", "running", "paused", "stopped"]


class Strict(BaseModel):
    """A body: what it does not know, it refuses."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedVariant(Strict):
    key: Key
    checkpoint: CheckpointId
    weight: Annotated[float, Field(ge=0, le=1_000_000, strict=True)] = 1
    """Whole numbers are proportions (1 and 3); others are shares and sum to 1 (0.25 and 0.75)."""


class Guardrail(Strict):
    metric: str
    margin: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
    """The largest harm that is acceptable, in the metric's own unit."""


class Goals(Strict):
    goals: Annotated[tuple[str, ...], Field(min_length=1)] = ("thumbs_net",)
    guardrails: tuple[Guardrail, ...] = ()


class Hashing(Strict):
    """How arms are dealt. GrowthBook's hashes keep the arms of an experiment that began there."""

    algorithm: Algorithm = "murmur3-32"
    seed: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """GrowthBook's seed of the experiment; its key if it has none."""


class Plan(Strict):
    """What an analyst asks for. The first variant is the control."""

    key: Key
    unit: UnitType = "user"
    variants: Annotated[tuple[PlannedVariant, ...], Field(min_length=2, max_length=20)]
    layer: Key = "default"
    coverage: Share = 1.0
    ramp_to: Share | None = None
    """The coverage that slots of the layer are kept free for; default is the coverage itself."""
    targeting: Targeting = ()
    segments: Annotated[tuple[Key, ...], Field(max_length=10)] = ()
    """What effects will be split by, chosen before any is seen."""
    metrics: Goals = Goals()
    reading: Literal["sequential", "group_sequential", "fixed"] = "sequential"
    alpha: Annotated[float, Field(ge=0.0001, lt=0.5, strict=True)] = 0.05
    planned_units: Annotated[int, Field(ge=2, le=10**12, strict=True)] = 5_000
    """Both arms together; a sequential reading is sharpest there."""
    min_days: Annotated[int, Field(ge=0, le=365, strict=True)] = 7
    """Nothing ships before, so that weekdays and weekends both count; harm stops it at any time."""
    on_harm: Literal["tell", "stop"] = "tell"
    """What the watch does when a guardrail is worse than its margin: record it, or stop, too."""
    sticky: bool = False
    """Units keep their first arm although their attributes change."""
    hashing: Hashing = Hashing()
    # Left out of what is kept where it says nothing: plans keep the digest they were decided with.
    allocation: Allocation = Field(default=Fixed(), exclude_if=lambda each: each == Fixed())

    @field_validator("metrics")
    @classmethod
    def _metrics_exist(cls, metrics: Goals) -> Goals:
        for key in (*metrics.goals, *(each.metric for each in metrics.guardrails)):
            try:
                metric(key, "metrics")
            except BadInput as error:
                raise ValueError(error.errors[0].detail) from error
        return metrics

    @property
    def room(self) -> float:
        """The share of its layer that nobody else may have."""
        if self.hashing.algorithm != "murmur3-32":
            return 1.0
        return max(self.coverage, self.ramp_to or 0.0)

    def salt(self, version: int) -> str:
        """Every version deals anew; GrowthBook's first one as GrowthBook did."""
        if self.hashing.algorithm == "murmur3-32":
            return f"{self.key}/{version}/"
        seed = self.hashing.seed or self.key
        return seed if version == 1 else f"{seed}/{version}/"


@dataclass(frozen=True)
class Experiment:
    plan: Plan
    status: Status
    version: int
    slots: tuple[int, int]
    created_at: str
    started_at: str | None
    stopped_at: str | None
    room_end: int = 0
    """The end of the slots kept for it, at or beyond the end of those it serves."""
    phase_started_at: str | None = None
    min_version: int = 0
    run_version: int = 0
    """Of a bandit, the version of its first batch: arms that were dealt since are kept."""
    holdouts: tuple[Holdout, ...] = ()
    pinned: tuple[tuple[str, str], ...] = ()

    @property
    def reserved(self) -> tuple[int, int]:
        return self.slots[0], max(self.room_end, self.slots[1])

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
            salt=self.plan.salt(self.version),
            layer=f"{self.plan.layer}/",
            layer_range=self.slots,
            targeting=self.plan.targeting,
            holdouts=self.holdouts,
            pinned=self.pinned,
            sticky=self.plan.sticky or self.is_bandit,
            min_version=self.min_version,
            kept_since=self.run_version if self.is_bandit else None,
            algorithm=self.plan.hashing.algorithm,
            switchback=self.switchback,
        )

    @property
    def is_bandit(self) -> bool:
        return isinstance(self.plan.allocation, Adaptive)

    @property
    def switchback(self) -> Switchback | None:
        """The periods of a switchback that has begun."""
        how, began = self.plan.allocation, self.phase_started_at or self.started_at
        if not isinstance(how, InPeriods) or began is None:
            return None
        return Switchback(datetime.fromisoformat(began), how.period_s)

    def check_splits_units(self) -> None:
        """Nothing, or Conflict saying where to look if a report over units would be wrong."""
        key, kind = self.plan.key, self.plan.allocation.kind
        why = {
            "switchback": "everybody changes arms from period to period, so users are no units",
            "bandit": "its weights followed its own results, so a pooled test would err too often",
        }
        if kind in why:
            where = f"GET /v1/experiments/{key}/{kind} or `thumbwheel {kind} {key}`"
            raise Conflict(f"{key!r} is a {kind}: {why[kind]}; see {where}")

    def public(self) -> dict[str, Any]:
        return self.plan.model_dump() | {
            "status": self.status,
            "version": self.version,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "phase_started_at": self.phase_started_at or self.started_at,
            "stopped_at": self.stopped_at,
            "allocation": self.plan.allocation.model_dump(),
        }


def check_plan(plan: Plan) -> None:
    """The plan can be dealt as it says. Plans of older versions are not asked again.

    Raises: BadInput naming the field.
    """
    slots_of(plan.coverage)
    if plan.ramp_to is not None and plan.ramp_to < plan.coverage:
        raise BadInput.of("ramp_to", f"must be at or above the coverage of {plan.coverage:g}")
    weights = [each.weight for each in plan.variants]
    if any(weight != int(weight) for weight in weights) and not isclose(
        sum(weights), 1, abs_tol=1e-6
    ):
        raise BadInput.of(
            "variants",
            f"weights that are shares must sum to 1, not {sum(weights):g}; whole numbers are "
            "proportions and may have any sum",
        )
    if len(set(plan.segments)) < len(plan.segments):
        raise BadInput.of("segments", "must differ")
    for key in plan.segments:
        segment(key, "segments")
    if plan.hashing.seed and plan.hashing.algorithm == "murmur3-32":
        raise BadInput.of("hashing.seed", "is for GrowthBook's algorithms; ours has its own salt")
    plan.allocation.check(plan)
    spec = Experiment(plan, "draft", 1, (0, LAYER_SLOTS), "", None, None).spec
    for each, weight in zip(plan.variants, spec.weights, strict=True):
        if each.weight and not weight:
            raise BadInput.of("variants", f"{each.key!r} would get nobody; the least is 0.000001")


def _whole(variants: tuple[PlannedVariant, ...]) -> list[int]:
    """Weights as integers in the same proportion, to one part in a million."""
    weights = [each.weight for each in variants]
    total = sum(weights)
    if not isfinite(total) or total <= 0:
        raise BadInput.of("variants", "weights must sum to more than 0")
    if all(weight == int(weight) for weight in weights):
        return [int(weight) for weight in weights]
    return [round(weight / total * _WEIGHT_STEPS) for weight in weights]
