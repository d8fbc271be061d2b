"""HTTP: experiments, layers, assignments, reports, metrics."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from experiments.assign import Bucketer, ExperimentSpec, UnitType
from experiments.designs_api import DesignsApi
from experiments.layers import LAYER_SLOTS, Holdout, Layer, slots_of
from experiments.lifecycle import Phase, Ramp
from experiments.metrics import METRICS, SEGMENTS
from experiments.plans import Key
from experiments.registry import Experiments, Plan
from experiments.report import report
from experiments.sticky import Unchanged
from ingest.keys import Keys
from ingest.store import Store
from ingest.web import requires

UnitId = Annotated[str, Field(min_length=1, max_length=800)]
_ONE = "/v1/experiments/{key}"


class Unit(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    user: UnitId | None = None
    organization: UnitId | None = None

    def id_for(self, spec: ExperimentSpec) -> str | None:
        return self.user if spec.unit == "user" else self.organization


class Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Unit
    attributes: dict[str, Any] = Field(default_factory=dict)


class Pin(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: UnitId
    variant: str | None
    """None ends the pin: the unit is drawn as everybody is."""


class HeldOut(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    share: Annotated[float, Field(gt=0, le=0.5)]
    checkpoint: Annotated[str, Field(min_length=1)]


class DescribedLayer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: UnitType
    within: Key | None = None
    holdout: HeldOut | None = None


class ExperimentsApi:
    """The routes of this room, bound to what they need."""

    def __init__(self, experiments: Experiments, store: Store, keys: Keys) -> None:
        self._experiments, self._store, self._keys = experiments, store, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["experiments"])
        analyst = [Depends(requires(self._keys, "analyst"))]
        serve = [Depends(requires(self._keys, "serve"))]
        router.add_api_route(
            "/v1/experiments", self.create, methods=["POST"], status_code=201, dependencies=analyst
        )
        router.add_api_route("/v1/experiments", self.all, dependencies=analyst)
        router.add_api_route(_ONE, self.get, dependencies=analyst)
        router.add_api_route(_ONE, self.change, methods=["PUT"], dependencies=analyst)
        for action in (self.start, self.pause, self.ramp, self.phase, self.stop, self.pin):
            path = f"{_ONE}/{action.__name__}"
            router.add_api_route(path, action, methods=["POST"], dependencies=analyst)
        router.add_api_route(f"{_ONE}/report", self.report, dependencies=analyst)
        router.add_api_route("/v1/layers", self.layers, dependencies=analyst)
        router.add_api_route(
            "/v1/layers/{key}", self.save_layer, methods=["PUT"], dependencies=analyst
        )
        router.add_api_route("/v1/assignments", self.assign, methods=["POST"], dependencies=serve)
        router.add_api_route("/v1/metrics", self.metrics, dependencies=analyst)
        designs = DesignsApi(self._experiments, self._store, self._keys)
        router.include_router(designs.router())
        return router

    def create(self, plan: Plan) -> dict[str, Any]:
        """A draft; it splits nothing until started."""
        return self._experiments.create(plan).public()

    def all(self) -> dict[str, Any]:
        return {"experiments": [each.public() for each in self._experiments.all()]}

    def get(self, key: str) -> dict[str, Any]:
        """The experiment, its pinned units and all that was done to it."""
        found = self._experiments.get(key)
        changes = self._experiments.changes(key)
        return found.public() | {"pinned": dict(found.pinned), "changes": changes}

    def change(self, key: str, plan: Plan) -> dict[str, Any]:
        """Another plan for a draft; later only what moves nobody: wider coverage and targeting."""
        return self._experiments.change(key, plan).public()

    def start(self, key: str) -> dict[str, Any]:
        """A draft splits traffic; a paused experiment goes on where it was."""
        return self._experiments.start(key).public()

    def pause(self, key: str) -> dict[str, Any]:
        """Nobody is assigned; slots and arms are kept for `start`."""
        return self._experiments.pause(key).public()

    def ramp(self, key: str, wanted: Ramp) -> dict[str, Any]:
        """More units come in; nobody changes arms."""
        return self._experiments.ramp(key, wanted.coverage).public()

    def phase(self, key: str, wanted: Phase) -> dict[str, Any]:
        """The next version, with what is wanted changed: dealt anew and measured afresh."""
        return self._experiments.phase(key, wanted).public()

    def stop(self, key: str) -> dict[str, Any]:
        """Over; the report stays."""
        return self._experiments.stop(key).public()

    def pin(self, key: str, wanted: Pin) -> dict[str, Any]:
        """A unit that gets an arm without a draw, to look at it; it is not measured."""
        found = self._experiments.pin(key, wanted.unit, wanted.variant)
        return {"experiment": key, "pinned": dict(found.pinned)}

    def report(
        self,
        key: str,
        as_of: AwareDatetime | None = None,
        version: Annotated[int, Query(ge=1, le=2**31 - 1)] | None = None,
        segment: str | None = None,
        novelty: bool = False,
    ) -> dict[str, Any]:
        """Health, effects and decision from the facts received until `as_of`, of one version.

        `segment` adds the effects by part of the units, `novelty` those by day since exposure.
        """
        experiment = self._experiments.get(key, version)
        return asdict(
            report(self._store, experiment, as_of=as_of, segment=segment, novelty=novelty)
        )

    def layers(self) -> dict[str, Any]:
        return {"layers": [_layer(each) for each in self._experiments.layers()]}

    def save_layer(self, key: Annotated[Key, Path()], wanted: DescribedLayer) -> dict[str, Any]:
        """The layer's unit type, the layer around it, and the units it holds out."""
        held = wanted.holdout
        holdout = (
            Holdout(key, slots_of(held.share, "holdout.share"), held.checkpoint) if held else None
        )
        return _layer(self._experiments.save_layer(Layer(key, wanted.unit, wanted.within, holdout)))

    def assign(self, question: Question) -> dict[str, Any]:
        """What the unit would be served; pure and sticky, and no exposure is recorded."""
        bucketer, kept = Bucketer(), Unchanged(self._experiments.sticky)
        found = [
            bucketer.assign(spec, unit, question.attributes, sticky=kept if spec.sticky else None)
            for spec in self._experiments.running()
            if (unit := question.unit.id_for(spec))
        ]
        return {"assignments": [each._asdict() for each in found if each]}

    def metrics(self) -> dict[str, Any]:
        """What a plan and a report may name."""
        return {
            "metrics": [each.public() for each in METRICS.values()],
            "segments": [asdict(each) for each in SEGMENTS.values()],
        }


def _layer(layer: Layer) -> dict[str, Any]:
    held = layer.holdout
    holdout = held and {"share": held.slots / LAYER_SLOTS, "checkpoint": held.checkpoint}
    return {"key": layer.key, "unit": layer.unit, "within": layer.within, "holdout": holdout}
