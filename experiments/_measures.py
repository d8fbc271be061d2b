"""What a metric counts, as data: no SQL and nothing that came from outside unchecked."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["count", "conversion", "mean", "ratio", "quantile", "feedback"]
Each = Literal["fact", "target", "conversation"]
Take = Literal["first", "last", "max", "min", "sum"]
Score = Literal["net", "up", "down", "response"]


@dataclass(frozen=True)
class Where:
    """What one field must say; bounds are (number, whether the number itself is within)."""

    field: str
    words: tuple[str, ...] = ()
    flag: bool | None = None
    low: tuple[float, bool] | None = None
    high: tuple[float, bool] | None = None


@dataclass(frozen=True)
class Measure:
    """A number that each unit's facts of one kind add up to.

    Facts count where any one of the lists in `where` holds. Without `value` they are counted, with
    it its numbers are summed, or with `present` counted. `each`: whether every fact counts, or
    every target (edit, turn or completion) once, by the number that `take` chooses, or every
    conversation once, where its last such fact is within `where`.
    """

    fact: str
    where: tuple[tuple[Where, ...], ...] = ((),)
    value: str | None = None
    present: bool = False
    each: Each = "fact"
    take: Take = "last"


@dataclass(frozen=True)
class Term:
    """A product of measures of the same target, added or taken off."""

    sign: Literal[1, -1]
    factors: tuple[Measure, ...]


@dataclass(frozen=True)
class Cap:
    """The most a unit's numerator counts: a number, or a quantile of the units of all arms."""

    at: float | None = None
    quantile: float | None = None


@dataclass(frozen=True)
class Metric:
    """A ratio of two sums over a unit's facts, or a quantile of its facts' numbers.

    `numerator` and `denominator` say in words what is summed; `top` and `bottom` are those sums,
    and an empty `bottom` is the number of units. A quantile's events are those of `top`.
    """

    key: str
    title: str
    definition: str
    numerator: str
    denominator: str
    good: Literal["up", "down"] = "up"
    kind: Kind = "ratio"
    version: int = 1
    unit: str = ""
    window_s: int | None = None
    """Facts count until so long after a unit's first exposure; None is for ever."""
    minimum: int = 0
    """Units that an arm needs before its numbers should be shown."""
    cap: Cap | None = None
    at_least: int = 1
    quantile: float | None = None
    timeout: float | None = None
    score: Score | None = None
    top: tuple[Term, ...] = ()
    bottom: tuple[Term, ...] = ()

    def public(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Segment:
    """Units by what the last fact of a kind before their first exposure says in one field."""

    key: str
    title: str
    fact: str
    field: str
