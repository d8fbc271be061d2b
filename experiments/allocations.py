"""How a plan deals its arms: to units once, to periods of time, or by weights that follow the facts."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from experiments.metrics import METRICS, metric
from ingest.errors import BadInput

if TYPE_CHECKING:
    from experiments.plans import Plan

LEAST_PERIOD_S = 60
"""Answers that were asked for in one period must not mostly end in the next."""

_LEAST_AT_FLOOR = 10
"""Units an arm at its floor should get of a batch: fewer have no variance to speak of."""


class Fixed(BaseModel):
    """A unit keeps the arm it was dealt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["fixed"] = "fixed"

    def check(self, plan: "Plan") -> None:
        """Every plan can be dealt so."""


class InPeriods(BaseModel):
    """A switchback: everybody has the arm of the period, and every period is dealt one anew."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["switchback"]
    period_s: Annotated[int, Field(ge=LEAST_PERIOD_S, le=14 * 86_400)]
    wash_in_s: Annotated[int, Field(ge=0)] = 0
    """What starts this early in a period is not measured: queues still drain, caches fill."""
    carryover: Annotated[int, Field(ge=0, le=5)] = 0
    """How many periods later an arm is still felt."""

    def check(self, plan: "Plan") -> None:
        """Raises: BadInput naming the field of the plan that does not go with periods."""
        if self.wash_in_s >= self.period_s:
            fix = f"must be shorter than a period of {self.period_s} s, or nothing is measured"
            raise BadInput.of("allocation.wash_in_s", fix)
        if len(plan.variants) != 2 or not all(each.weight for each in plan.variants):
            raise BadInput.of("variants", "a switchback compares two, both with weight")
        if plan.sticky:
            raise BadInput.of("sticky", "everybody changes arms in a switchback; leave it out")
        _check_hashing(plan, "a switchback")
        for key in (*plan.metrics.goals, *(each.metric for each in plan.metrics.guardrails)):
            found = METRICS[key]
            if found.quantile is not None or not found.bottom or found.cap or found.window_s:
                fix = "a period has a mean or a ratio, without window and cap; choose one of those"
                raise BadInput.of("metrics", f"{key!r} is a {found.kind} of users: {fix}")


class Adaptive(BaseModel):
    """A bandit: from batch to batch of new units more of them get what did well."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["bandit"]
    metric: str
    floor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The least share of an arm."""
    policy: Literal["thompson", "top-two"] = "thompson"
    batch_units: Annotated[int, Field(ge=100, le=10_000_000)] = 500
    """New units that a batch needs before weights may move again."""

    def check(self, plan: "Plan") -> None:
        """Raises: BadInput naming the field."""
        arms = len(plan.variants)
        if metric(self.metric, "allocation.metric").quantile is not None:
            fix = "is a quantile; a bandit needs a mean or a ratio over units"
            raise BadInput.of("allocation.metric", f"{self.metric!r} {fix}")
        if self.floor * arms >= 1:
            fix = f"{arms} arms with {self.floor:g} each leave nothing to move; the most is below "
            raise BadInput.of("allocation.floor", f"{fix}{1 / arms:.3g}")
        if self.floor * arms < 0.1:
            fix = "answers from a bandit hold with a floor of a tenth of an even share or more"
            raise BadInput.of("allocation.floor", f"{fix}: {1 / arms / 10:.3g}")
        if self.floor * self.batch_units < _LEAST_AT_FLOOR:
            fix = (
                f"an arm at the floor gets fewer than {_LEAST_AT_FLOOR} units of a batch; raise it"
            )
            raise BadInput.of("allocation.batch_units", fix)
        total = sum(each.weight for each in plan.variants)
        if any(each.weight < (self.floor - 1e-5) * total for each in plan.variants):
            raise BadInput.of("variants", f"a weight is below the floor of {self.floor:g}")
        _check_hashing(plan, "a bandit")


Allocation = Annotated[Fixed | InPeriods | Adaptive, Field(discriminator="kind")]


def _check_hashing(plan: "Plan", kind: str) -> None:
    if plan.hashing.algorithm != "murmur3-32":
        raise BadInput.of("hashing.algorithm", f"{kind} needs our own, murmur3-32; leave it out")
