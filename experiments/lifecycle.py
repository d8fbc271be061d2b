"""What an experiment may become: draft → running ⇄ paused → stopped, in phases.

While it is measured, a change may let units in and move nobody. Whatever would move units between
arms, or throw some out, begins a new phase: a new version with a new salt, measured afresh.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, ValidationError

from experiments.allocations import Allocation
from experiments.layers import LAYER_SLOTS, allocate, slots_of
from experiments.plans import (
    Experiment,
    Goals,
    Key,
    Plan,
    PlannedVariant,
    Share,
    Status,
    Strict,
    check_plan,
)
from experiments.targeting import Targeting, loosens
from ingest.errors import BadInput, Conflict, FieldError

HOLDS_SLOTS: tuple[Status, ...] = ("running", "paused")

_REDEALS = "would deal everybody anew"
_CHOSEN_BEFORE = "was chosen before any result was seen, and errors are counted by it"
_FOR_LIFE = "holds for the life of an experiment; create another one"
_WHY: Mapping[str, str] = {
    "variants": _REDEALS,
    "metrics": _CHOSEN_BEFORE,
    "reading": _CHOSEN_BEFORE,
    "alpha": _CHOSEN_BEFORE,
    "planned_units": _CHOSEN_BEFORE,
    "segments": _CHOSEN_BEFORE,
    "allocation": _REDEALS,
}
"""Why a field cannot change within a phase; those not listed cannot change at all."""


class Ramp(Strict):
    coverage: Share


class Phase(Strict):
    """What differs from the phase before; what is left out stays."""

    variants: Annotated[tuple[PlannedVariant, ...], Field(min_length=2, max_length=20)] | None = (
        None
    )
    coverage: Share | None = None
    ramp_to: Share | None = None
    targeting: Targeting | None = None
    segments: Annotated[tuple[Key, ...], Field(max_length=10)] | None = None
    metrics: Goals | None = None
    reading: str | None = None
    alpha: float | None = None
    planned_units: int | None = None
    allocation: Allocation | None = None
    exclude_earlier: bool = False
    """Units of earlier phases stay out, so that nothing carries over; needs a sticky plan."""


def start(experiment: Experiment, others: Sequence[Experiment], at: str) -> Experiment:
    """Running: a draft in slots of its own, a paused one in those it had.

    Raises: Conflict where it runs already, has stopped, or its layer has no room.
    """
    key = experiment.plan.key
    if experiment.status == "paused":
        return replace(experiment, status="running")
    if experiment.status == "running":
        raise Conflict(
            f"{key!r} is running; to deal anew, {_phase(key)}, or create a new experiment"
        )
    if experiment.status == "stopped":
        raise Conflict(f"{key!r} is stopped; {_phase(key)}, or create a new experiment")
    slots, room_end = _place(experiment.plan, others)
    return replace(
        experiment,
        status="running",
        slots=slots,
        room_end=room_end,
        started_at=at,
        phase_started_at=at,
        run_version=experiment.version,
    )


def pause(experiment: Experiment) -> Experiment:
    """Nobody is assigned until `start`; slots and arms are kept. Raises: Conflict."""
    _must_be(experiment, "paused", "running")
    return replace(experiment, status="paused")


def stop(experiment: Experiment, at: str) -> Experiment:
    """Over; its slots are free, its report stays. Raises: Conflict."""
    _must_be(experiment, "stopped", *HOLDS_SLOTS)
    return replace(experiment, status="stopped", stopped_at=at)


def ramp(experiment: Experiment, coverage: float, others: Sequence[Experiment]) -> Experiment:
    """More units are in, and every unit keeps its arm.

    Raises: Conflict for less coverage, or where other experiments own the slots beyond.
    """
    key, plan = experiment.plan.key, experiment.plan
    if experiment.status == "draft":
        raise Conflict(f"{key!r} is a draft; change its plan with PUT /v1/experiments/{key}")
    _must_be(experiment, "ramped", *HOLDS_SLOTS)
    wider = {"coverage": coverage, "ramp_to": plan.ramp_to and max(plan.ramp_to, coverage)}
    return _widened(experiment, plan.model_copy(update=wider), others)


def change(experiment: Experiment, plan: Plan, others: Sequence[Experiment]) -> Experiment:
    """The experiment with another plan: of a draft any; later only wider coverage and targeting.

    Raises: BadInput, Conflict naming every field that must stay and what to do instead.
    """
    if plan.key != experiment.plan.key:
        raise BadInput.of("key", f"is {experiment.plan.key!r} in the path")
    check_plan(plan)
    if experiment.status == "draft":
        return replace(experiment, plan=plan)
    _must_be(experiment, "changed", *HOLDS_SLOTS)
    key, old = plan.key, experiment.plan
    names = [name for name in Plan.model_fields if getattr(plan, name) != getattr(old, name)]
    errors = [
        FieldError(name, f"{_WHY[name]}; {_phase(key)}" if name in _WHY else _FOR_LIFE)
        for name in names
        if name not in {"coverage", "ramp_to", "targeting"}
    ]
    if not loosens(old.targeting, plan.targeting):
        why = "is tighter: units would drop out while they are measured"
        errors.append(FieldError("targeting", f"{why}; {_phase(key)} with the new targeting"))
    if errors:
        raise Conflict("; ".join(f"{e.field} {e.detail}" for e in errors), errors=tuple(errors))
    return _widened(experiment, plan, others)


def phase(
    experiment: Experiment, wanted: Phase, others: Sequence[Experiment], at: str
) -> Experiment:
    """Running in its next version, dealt anew, with what is wanted changed.

    Raises: BadInput, Conflict for a draft, or where its layer has no room.
    """
    key = experiment.plan.key
    if experiment.status == "draft":
        raise Conflict(f"{key!r} is a draft; change its plan with PUT /v1/experiments/{key}")
    if wanted.exclude_earlier and not experiment.plan.sticky:
        fix = "who was in is remembered for plans with `sticky` only; create another experiment"
        raise BadInput.of("exclude_earlier", fix)
    plan = _replanned(experiment.plan, wanted)
    slots, room_end = _place(plan, others)
    version = experiment.version + 1
    return replace(
        experiment,
        plan=plan,
        status="running",
        version=version,
        slots=slots,
        room_end=room_end,
        phase_started_at=at,
        stopped_at=None,
        run_version=version,
        min_version=version if wanted.exclude_earlier else experiment.min_version,
    )


def reweigh(experiment: Experiment, shares: Mapping[str, float], version: int) -> Experiment:
    """The batch after that of `version`: its new units get arms by these shares, the others keep
    theirs. Raises: Conflict if it does not run, or that batch is over already.
    """
    key, plan = experiment.plan.key, experiment.plan
    _must_be(experiment, "reweighed", "running")
    if experiment.version != version:
        raise Conflict(f"{key!r} was changed meanwhile; ask again")
    variants = tuple(
        # Millionths, in whole numbers: the share that is dealt is the one that is recorded.
        each.model_copy(update={"weight": round(shares[each.key] * 1_000_000)})
        for each in plan.variants
    )
    plan = plan.model_copy(update={"variants": variants})
    return replace(experiment, plan=plan, version=version + 1)


def _widened(experiment: Experiment, plan: Plan, others: Sequence[Experiment]) -> Experiment:
    """With the plan's coverage and room, where units only come in."""
    key, (begin, end) = plan.key, experiment.slots
    wanted, room_end = begin + slots_of(plan.coverage), begin + slots_of(plan.room)
    if wanted < end:
        less = f"{plan.coverage:g} is below {experiment.plan.coverage:g}"
        fix = f"pause {key!r}, or {_phase(key)} with less coverage"
        raise _refused("coverage", f"{less}: units would drop out while they are measured; {fix}")
    near = [each for each in others if _meets(each.reserved, (begin, room_end))]
    if near or room_end > LAYER_SLOTS:
        names = " and ".join(repr(each.plan.key) for each in near) or "the end of the layer"
        fix = f"stop what is in the way, or {_phase(key)}, which takes other slots if there are any"
        raise _refused("coverage", f"no room for {plan.room:g} before {names}; {fix}")
    return replace(experiment, plan=plan, slots=(begin, wanted), room_end=room_end)


def _replanned(plan: Plan, wanted: Phase) -> Plan:
    changes = wanted.model_dump(exclude_none=True, exclude={"exclude_earlier"})
    if "coverage" in changes and "ramp_to" not in changes:
        changes["ramp_to"] = None
    try:
        replanned = Plan.model_validate(plan.model_dump() | changes)
    except ValidationError as error:
        raise _bad_fields(error.errors()) from error
    check_plan(replanned)
    return replanned


def _bad_fields(errors: Sequence[Mapping[str, Any]]) -> BadInput:
    found = tuple(FieldError(".".join(map(str, each["loc"])), each["msg"]) for each in errors)
    return BadInput("; ".join(f"{e.field}: {e.detail}" for e in found), errors=found)


def _place(plan: Plan, others: Sequence[Experiment]) -> tuple[tuple[int, int], int]:
    """The slots to serve, and the end of those to keep."""
    room = allocate([each.reserved for each in others], plan.room)
    if room is None:
        names = ", ".join(repr(each.plan.key) for each in others)
        raise Conflict(
            f"layer {plan.layer!r} has no room for coverage {plan.room:g} beside {names}; stop "
            "one, or create this experiment with a smaller coverage or in another layer"
        )
    return (room[0], room[0] + slots_of(plan.coverage)), room[1]


def _meets(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _must_be(experiment: Experiment, become: str, *allowed: Status) -> None:
    if experiment.status not in allowed:
        raise Conflict(
            f"{experiment.plan.key!r} is {experiment.status}; only a {' or '.join(allowed)} "
            f"experiment can be {become}"
        )


def _phase(key: str) -> str:
    return f"begin a new phase with POST /v1/experiments/{key}/phase"


def _refused(field: str, detail: str) -> Conflict:
    return Conflict(f"{field}: {detail}", errors=(FieldError(field, detail),))
