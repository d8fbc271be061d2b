"""Who an experiment is for: conditions on attributes, as data, all of which must hold."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

Operator = Literal[
    "equals",
    "not_equals",
    "in",
    "not_in",
    "at_least",
    "below",
    "version_at_least",
    "version_below",
]
Text = Annotated[StrictStr, Field(max_length=200)]
Number = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
Scalar = StrictBool | Number | Text
Attributes = Mapping[str, Any]

# Twelve digits a number: longer ones are no version, and int() refuses them beyond 4,300.
_VERSION = re.compile(
    r"v?([0-9]{1,12}(?:\.[0-9]{1,12}){0,3})(?:-([0-9A-Za-z.-]{1,100}))?(?:\+[0-9A-Za-z.-]{0,100})?"
)
_IS_LIST = {"in", "not_in"}
_IS_VERSION = {"version_at_least", "version_below"}
_IS_NUMBER = {"at_least", "below"}
_OPPOSITE = {"not_equals", "not_in"}


class Condition(BaseModel):
    """One condition. An attribute that is missing meets none, not even `not_in`.

    Types count: true is not 1, and "1" is not 1. Versions compare by Semantic Versioning 2.0, so
    1.10 is above 1.9, and 2.0.0-rc.1 below 2.0.0; missing parts are 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    attribute: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]{0,63}$")]
    operator: Operator
    value: Scalar | Annotated[tuple[Scalar, ...], Field(min_length=1, max_length=1_000)]

    @model_validator(mode="after")
    def _value_fits(self) -> Self:
        if (self.operator in _IS_LIST) != isinstance(self.value, tuple):
            wanted = "a list" if self.operator in _IS_LIST else "one value"
            raise ValueError(f"value: {self.operator!r} needs {wanted}")
        if self.operator in _IS_NUMBER and _number(self.value) is None:
            raise ValueError(f"value: {self.operator!r} needs a number")
        if self.operator in _IS_VERSION and _version(self.value) is None:
            raise ValueError(f"value: {self.operator!r} needs a version, for instance '1.20.3'")
        return self

    def holds(self, value: Any) -> bool:  # noqa: ANN401 - any JSON
        """Whether an attribute that has this value meets the condition."""
        return self.test(value)

    @cached_property
    def test(self) -> Callable[[Any], bool]:
        """`holds`, compiled: a running experiment asks it for every request."""
        values = self.values
        match self.operator:
            case "equals" | "in":
                return lambda value: _is_scalar(value) and _kind(value) in values
            case "not_equals" | "not_in":
                return lambda value: _is_scalar(value) and _kind(value) not in values
        comparable = _version if self.operator in _IS_VERSION else _number
        bound, at_least = comparable(self.value), "at_least" in self.operator

        def compare(value: Any) -> bool:  # noqa: ANN401 - any JSON
            given = comparable(value)
            if given is None:
                return False
            return bool(given >= bound if at_least else given < bound)

        return compare

    @cached_property
    def values(self) -> frozenset[tuple[bool, Any]]:
        """What the attribute is compared with, each with its kind."""
        listed = self.value if isinstance(self.value, tuple) else (self.value,)
        return frozenset(_kind(each) for each in listed)

    def implies(self, other: "Condition") -> bool:
        """Whether everybody who meets this one is known to meet the other."""
        if self == other:
            return True
        if self.attribute != other.attribute:
            return False
        if self.operator in {"equals", "in"}:
            return all(other.holds(value) for _, value in self.values)
        if self.operator in _OPPOSITE and other.operator in _OPPOSITE:
            return self.values >= other.values
        if self.operator != other.operator:
            return False
        comparable = _version if self.operator in _IS_VERSION else _number
        mine, theirs = comparable(self.value), comparable(other.value)
        return bool(mine >= theirs if "at_least" in self.operator else mine <= theirs)


Targeting = Annotated[tuple[Condition, ...], Field(max_length=20)]


def targeted(conditions: Sequence[Condition], attributes: Attributes) -> bool:
    """All conditions hold; with none, everybody is targeted."""
    for each in conditions:
        if each.attribute not in attributes or not each.test(attributes[each.attribute]):
            return False
    return True


def loosens(old: Sequence[Condition], new: Sequence[Condition]) -> bool:
    """Whether everybody who meets the old conditions is sure to meet the new ones."""
    return all(any(mine.implies(wanted) for mine in old) for wanted in new)


def _kind(value: Any) -> tuple[bool, Any]:  # noqa: ANN401 - any JSON
    """Python holds true and 1 for equal; people do not."""
    return isinstance(value, bool), value


def _is_scalar(value: Any) -> bool:  # noqa: ANN401 - any JSON
    return isinstance(value, str | int | float)


def _number(value: Any) -> Any:  # noqa: ANN401 - any JSON
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@lru_cache(4096)
def _parsed(text: str) -> tuple[Any, ...] | None:
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    core = tuple(number for number, _ in zip_longest(numbers, range(4), fillvalue=0))
    if not found[2]:
        return (core, 1)
    # A number is below every word; a release (1) is above all of its candidates (0).
    parts = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in found[2].split("."))
    return (core, 0, parts)


def _version(value: Any) -> Any:  # noqa: ANN401 - any JSON
    return _parsed(value) if isinstance(value, str) else None
