"""HTTP: experiments, assignments, reports, metrics."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from experiments.assign import ExperimentSpec, assign
from experiments.metrics import METRICS
from experiments.registry import Experiments, Plan
from experiments.report import report
from ingest.keys import Keys
from ingest.store import Store
from ingest.web import requires

UnitId = Annotated[str, Field(min_length=1, max_length=800)]


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


class ExperimentsApi:
    """The routes of this room, bound to what they need."""

    def __init__(self, experiments: Experiments, store: Store, keys: Keys) -> None:
        self._experiments, self._store, self._keys = experiments, store, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["experiments"])
        analyst = [Depends(requires(self._keys, "analyst"))]
        serve = [Depends(requires(self._keys, "serve"))]
        one = "/v1/experiments/{key}"
        router.add_api_route(
            "/v1/experiments", self.create, methods=["POST"], status_code=201, dependencies=analyst
        )
        router.add_api_route("/v1/experiments", self.all, dependencies=analyst)
        router.add_api_route(one, self.get, dependencies=analyst)
        router.add_api_route(f"{one}/start", self.start, methods=["POST"], dependencies=analyst)
        router.add_api_route(f"{one}/stop", self.stop, methods=["POST"], dependencies=analyst)
        router.add_api_route(f"{one}/report", self.report, dependencies=analyst)
        router.add_api_route("/v1/assignments", self.assign, methods=["POST"], dependencies=serve)
        router.add_api_route("/v1/metrics", self.metrics, dependencies=analyst)
        return router

    def create(self, plan: Plan) -> dict[str, Any]:
        """A draft; it splits nothing until started."""
        return self._experiments.create(plan).public()

    def all(self) -> dict[str, Any]:
        return {"experiments": [each.public() for each in self._experiments.all()]}

    def get(self, key: str) -> dict[str, Any]:
        return self._experiments.get(key).public()

    def start(self, key: str) -> dict[str, Any]:
        return self._experiments.start(key).public()

    def stop(self, key: str) -> dict[str, Any]:
        return self._experiments.stop(key).public()

    def report(self, key: str, as_of: AwareDatetime | None = None) -> dict[str, Any]:
        """Health, effects and decision from the facts received until `as_of`."""
        return asdict(report(self._store, self._experiments.get(key), as_of=as_of))

    def assign(self, question: Question) -> dict[str, Any]:
        """What the unit would be served; pure and sticky, and no exposure is recorded."""
        found = [
            assign(spec, unit)
            for spec in self._experiments.running()
            if (unit := question.unit.id_for(spec))
        ]
        return {"assignments": [asdict(each) for each in found if each]}

    def metrics(self) -> dict[str, Any]:
        return {"metrics": [each.public() for each in METRICS.values()]}
