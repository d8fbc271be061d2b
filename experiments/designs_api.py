"""HTTP: what other designs than a fixed split of units have found."""

from dataclasses import asdict, dataclass
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import AwareDatetime

from experiments.bandits import bandit_report, reweigh
from experiments.duels import JudgedBy, duel_report
from experiments.registry import Experiments
from experiments.stats.adaptive import Method
from experiments.switchback_report import switchback_report
from ingest.keys import Keys
from ingest.store import Store
from ingest.web import requires

_ONE = "/v1/experiments/{key}"


@dataclass(frozen=True)
class DesignsApi:
    """The routes, bound to what they need."""

    experiments: Experiments
    store: Store
    keys: Keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["experiments"])
        analyst = [Depends(requires(self.keys, "analyst"))]
        router.add_api_route("/v1/duels", self.duels, dependencies=analyst)
        router.add_api_route(f"{_ONE}/switchback", self.switchback, dependencies=analyst)
        router.add_api_route(f"{_ONE}/bandit", self.bandit, dependencies=analyst)
        router.add_api_route(
            f"{_ONE}/reweigh", self.reweigh, methods=["POST"], dependencies=analyst
        )
        return router

    def duels(
        self,
        as_of: AwareDatetime | None = None,
        judged_by: JudgedBy = "human",
        reference: str | None = None,
    ) -> dict[str, Any]:
        """Checkpoints in order of preference, from completions that raters saw side by side."""
        found = duel_report(self.store, as_of=as_of, judged_by=judged_by, reference=reference)
        return asdict(found)

    def switchback(self, key: str, as_of: AwareDatetime | None = None) -> dict[str, Any]:
        """Effects of a switchback, with periods as units."""
        experiment = self.experiments.get(key)
        return asdict(switchback_report(self.store, experiment, as_of=as_of))

    def bandit(
        self, key: str, as_of: AwareDatetime | None = None, method: Method = "bols"
    ) -> dict[str, Any]:
        """A bandit's batches, their shares, and effects that hold although the shares moved."""
        found = bandit_report(self.store, self.experiments, key, as_of=as_of, method=method)
        return asdict(found)

    def reweigh(self, key: str) -> dict[str, Any]:
        """The next batch of a bandit, with shares by what is known now; arms dealt before stay."""
        return reweigh(self.store, self.experiments, key).public()
