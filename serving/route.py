"""Which checkpoint answers: a pure function of the request, the running experiments and aliases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.assign import Assignment, Bucketer, ExperimentSpec
from experiments.sticky import StickyStore
from ingest.errors import NotFound
from serving.checkpoints import CHAMPION, ROUTE


@dataclass(frozen=True)
class Caller:
    """Who asks, as the editor's headers say; "" where they say nothing."""

    user: str = ""
    organization: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What experiments may be targeted at."""


@dataclass(frozen=True)
class Exposure:
    """What an assignment turned into: the unit it was made for, and the experiment's version."""

    assignment: Assignment
    unit_type: Literal["user", "organization"]
    unit: str


@dataclass(frozen=True)
class Choice:
    """`exposure` is set exactly when an experiment chose the checkpoint."""

    checkpoint: str
    reason: Literal["randomised", "pinned", "fallback", "holdout", "default"]
    route: str
    exposure: Exposure | None = None


def choose(
    model: str,
    caller: Caller,
    *,
    running: Sequence[ExperimentSpec],
    aliases: Mapping[str, str],
    sticky: StickyStore | None = None,
) -> Choice:
    """The first running experiment that has the caller decides; a checkpoint id or alias pins.

    Arms of sticky experiments are kept in `sticky`.

    Raises: Unavailable if that does not answer; NotFound when the route has neither an experiment for the caller nor a champion.
    """
    if model != ROUTE:
        return Choice(aliases.get(model, model), "pinned", model)
    for spec in running:
        unit = caller.user if spec.unit == "user" else caller.organization
        if not unit:
            continue
        kept = sticky if spec.sticky else None
        assignment = Bucketer().assign(spec, unit, caller.attributes, sticky=kept)
        if assignment:
            exposure = Exposure(assignment, spec.unit, unit)
            return Choice(assignment.checkpoint, assignment.reason, ROUTE, exposure)
    if CHAMPION not in aliases:
        raise NotFound(
            "no checkpoint serves the route 'agent'; register one with `thumbwheel checkpoint add` "
            "and `thumbwheel checkpoint alias ID champion`"
        )
    return Choice(aliases[CHAMPION], "default", ROUTE)
