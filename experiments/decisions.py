"""HTTP: decisions as they were made, made again, and overridden."""

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import AwareDatetime

from experiments.plans import Strict
from experiments.records import Decisions, Override
from experiments.registry import Experiments
from ingest.keys import Keys
from ingest.web import Asker, requires

_ALL = "/v1/experiments/{key}/decisions"
_ONE = f"{_ALL}/{{id}}"


class Wanted(Strict):
    as_of: AwareDatetime | None = None


@dataclass(frozen=True)
class DecisionsApi:
    experiments: Experiments
    decisions: Decisions
    keys: Keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["experiments"])
        analyst = [Depends(requires(self.keys, "analyst"))]
        router.add_api_route(
            _ALL, self.make, methods=["POST"], status_code=201, dependencies=analyst
        )
        router.add_api_route(_ALL, self.all, dependencies=analyst)
        router.add_api_route(f"{_ONE}/again", self.again, dependencies=analyst)
        router.add_api_route(
            f"{_ONE}/override", self.override, methods=["POST"], dependencies=analyst
        )
        return router

    def make(self, key: str, wanted: Wanted) -> dict[str, Any]:
        """The decision as of that time (now), stored with all it was made from."""
        return self.decisions.make(self.experiments.get(key), wanted.as_of).public()

    def all(self, key: str) -> dict[str, Any]:
        """What was decided and when, oldest first."""
        self.experiments.get(key)
        return {"decisions": [each.public() for each in self.decisions.all(key)]}

    def again(self, key: str, id: str) -> dict[str, Any]:
        """The decision made anew from what is stored today, and whether it is the same."""
        version = self.decisions.get(key, id).version
        return self.decisions.make_again(self.experiments.get(key, version), id)

    def override(self, key: str, id: str, wanted: Override, asker: Asker) -> dict[str, Any]:
        """What people decided instead; the automatic verdict stays beside it."""
        return self.decisions.override(key, id, wanted, by=asker.key_id).public()
