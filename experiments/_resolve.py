"""From names and measures in a file to sums of products, with every fact and field checked."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import NoReturn

from experiments._fields import FEEDBACK, Field, facts
from experiments._measures import Measure, Term, Where
from experiments.definitions import (
    Bounds,
    Condition,
    Conditions,
    FactMeasure,
    Measured,
    ProductMeasure,
    SumMeasure,
)
from ingest.errors import BadInput

_MOST_TERMS = 32
_TARGETS = ("diff.id", "completion.id", "turn.id")
_CONVERSATION = "gen_ai.conversation.id"
# Committed names several edits; its column is a list.
_MANY = "diff.committed"

Terms = tuple[Term, ...]


class Resolver:
    """Knows the named measures. Its errors are BadInput naming file and field."""

    def __init__(self, measures: Mapping[str, Measured]) -> None:
        self._measures = measures

    def terms(self, measured: Measured, at: str, trail: tuple[str, ...] = ()) -> Terms:
        """What is summed per unit. `trail` are the names on the way here."""
        if isinstance(measured, str):
            return self._named(measured, at, trail)
        if isinstance(measured, FactMeasure):
            return (Term(1, (measure_of(measured, at),)),)
        if isinstance(measured, ProductMeasure):
            return self._product(measured, at, trail)
        return self._sum(measured, at, trail)

    def _named(self, name: str, at: str, trail: tuple[str, ...]) -> Terms:
        if name in trail:
            _refuse(at, f"a cycle: {' uses '.join((*trail[trail.index(name) :], name))}")
        if name not in self._measures:
            _refuse(at, f"no measure {name!r}; there are {', '.join(sorted(self._measures))}")
        return self.terms(self._measures[name], at, (*trail, name))

    def _sum(self, measured: SumMeasure, at: str, trail: tuple[str, ...]) -> Terms:
        found: list[Term] = []
        for number, each in enumerate(measured.plus):
            found += self.terms(each, f"{at}.plus.{number}", trail)
            _bound(found, at)
        for number, each in enumerate(measured.minus):
            taken = self.terms(each, f"{at}.minus.{number}", trail)
            found += (Term(-1 if term.sign == 1 else 1, term.factors) for term in taken)
            _bound(found, at)
        return tuple(found)

    def _product(self, measured: ProductMeasure, at: str, trail: tuple[str, ...]) -> Terms:
        factors = [
            self.terms(each, f"{at}.times.{number}", trail)
            for number, each in enumerate(measured.times)
        ]
        found: list[Term] = []
        for terms in product(*factors):
            measures = tuple(measure for term in terms for measure in term.factors)
            if any(measure.each != "target" for measure in measures):
                _refuse(f"{at}.times", "only measures with `each: target` can be multiplied")
            negative = sum(term.sign == -1 for term in terms) % 2
            found.append(Term(-1 if negative else 1, measures))
            _bound(found, at)
        return tuple(found)


def _bound(terms: list[Term], at: str) -> None:
    if len(terms) > _MOST_TERMS or any(len(term.factors) > 3 for term in terms):
        _refuse(at, f"more than {_MOST_TERMS} terms, or than 3 factors in one")


def measure_of(measured: FactMeasure, at: str) -> Measure:
    """The measure, if its fact and fields exist and fit. Raises: BadInput."""
    fields = fields_of(measured.fact, f"{at}.fact")
    _check_each(measured, fields, at)
    if measured.value is not None:
        field = _known(fields, measured.value, measured.fact, f"{at}.value")
        if field.kind != "number":
            _refuse(f"{at}.value", f"{field.name} of {measured.fact} is no number")
    elif measured.take:
        _refuse(f"{at}.take", "chooses among values; say which `value`")
    lists = measured.where if isinstance(measured.where, list) else [measured.where]
    return Measure(
        fact=measured.fact,
        where=tuple(_conditions(each, fields, measured.fact, f"{at}.where") for each in lists),
        value=measured.value,
        each=measured.each,
        take=measured.take or "last",
    )


def fields_of(fact: str, at: str) -> Mapping[str, Field]:
    """Of a kind of fact. Raises: BadInput naming the kinds there are."""
    if fact not in facts():
        _refuse(at, f"no fact {fact!r}; there are {', '.join(sorted(facts()))}")
    return facts()[fact]


def with_value(measure: Measure) -> Measure:
    """The number of facts, or targets, that have the value."""
    return replace(measure, present=True)


def _check_each(measured: FactMeasure, fields: Mapping[str, Field], at: str) -> None:
    if measured.fact == FEEDBACK:
        if measured.each != "fact":
            _refuse(f"{at}.each", "each rater's word on each target counts once: leave it out")
    elif measured.fact != _MANY and not any(name in fields for name in _TARGETS):
        _refuse(f"{at}.fact", f"{measured.fact} names no completion, turn or edit to hang on")
    if measured.each == "conversation":
        if _CONVERSATION not in fields:
            _refuse(f"{at}.each", f"{measured.fact} names no conversation")
        if measured.value is not None:
            _refuse(f"{at}.value", "conversations are counted: leave it out")
    if measured.each != "target" and measured.take:
        _refuse(f"{at}.take", "only a target has values to choose among: say `each: target`")


def _conditions(
    conditions: Conditions, fields: Mapping[str, Field], fact: str, at: str
) -> tuple[Where, ...]:
    return tuple(
        _where(_known(fields, name, fact, f"{at}.{name}"), condition, f"{at}.{name}")
        for name, condition in conditions.items()
    )


def _known(fields: Mapping[str, Field], name: str, fact: str, at: str) -> Field:
    if name not in fields:
        _refuse(at, f"{fact} has no field of that name to count; it has {', '.join(fields)}")
    return fields[name]


_FITS: dict[str, tuple[type, ...]] = {
    "flag": (bool,),
    "number": (int, float, Bounds),
    "text": (str, list),
}


def _where(field: Field, condition: Condition, at: str) -> Where:
    is_flag = isinstance(condition, bool)  # which Python takes for a number, too
    if is_flag != (field.kind == "flag") or not isinstance(condition, _FITS[field.kind]):
        _refuse(at, f"{field.name} is a {field.kind}")
    if isinstance(condition, bool):
        return Where(field.name, flag=condition)
    if isinstance(condition, Bounds):
        return _bounds(field, condition, at)
    if isinstance(condition, int | float):
        return Where(field.name, low=(condition, True), high=(condition, True))
    words = (condition,) if isinstance(condition, str) else tuple(condition)
    if field.words and (wrong := [word for word in words if word not in field.words]):
        _refuse(at, f"{wrong[0]!r} is not said; it can be {', '.join(field.words)}")
    # A fact that leaves the field out means its default.
    return Where(field.name, words=(*words, "") if field.default in words else words)


def _bounds(field: Field, bounds: Bounds, at: str) -> Where:
    lows, highs = (bounds.min, bounds.above), (bounds.max, bounds.below)
    if None not in lows or None not in highs:
        _refuse(at, "give one of min and above, and one of max and below")
    low, high = (
        next(((n, within) for n, within in zip(pair, (True, False), strict=True) if n is not None), None)
        for pair in (lows, highs)
    )  # fmt: skip
    if low is None and high is None:
        _refuse(at, "give min, above, max or below")
    return Where(field.name, low=low, high=high)


def _refuse(at: str, why: str) -> NoReturn:
    raise BadInput.of(at, why)
