"""From metrics to the columns of one statement, every field, measure and sum once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from experiments import _scan_sql as sql
from experiments._fields import COLUMNS, FEEDBACK, STORED, facts, type_of
from experiments._measures import Measure, Term, Where

MICRO = 1_000_000
"""Numbers that are not whole are summed in millionths: no order of rows changes a digit of a sum."""

Phase = Literal["post", "NOT post"]
"""Since the first exposure, or before it."""

_ALWAYS = "completion.finished"
_MANY = "diff.committed"
_NO_NUMBER, _NO_TEXT = "CAST(NULL, 'Nullable(Float64)')", "toLowCardinality('')"
_EMPTY = {"number": _NO_NUMBER, "text": _NO_TEXT, "flag": "false"}
_TYPES = {"number": "Nullable(Float64)", "text": "LowCardinality(String)", "flag": "Bool"}
_RATING = {"name": "name", "score": "word.3"}
_TARGETS = (
    "arrayJoin(if(notEmpty(data.`diff.ids`), "
    "arrayMap(each -> sipHash64(concat('d', each)), data.`diff.ids`), [events.target]))"
)

_LARGEST, _LARGEST_WHOLE, _BOUND = "1e8", "1e9", "1000000000000000"
"""What one fact's number counts at most, in its own unit and whole; and a product, scaled."""
_HALF = "2251799813685248"
"""2**51, more than any number is once it is scaled."""


@dataclass
class Bound:
    """Values, by the names they are bound under."""

    values: dict[str, object] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def __call__(self, value: object, kind: str) -> str:
        name = self._names.setdefault(f"{kind} {value!r}", f"p{len(self._names)}")
        self.values[name] = value
        return "{" + name + ":" + kind + "}"


@dataclass
class Columns:
    """Expressions and the names they get, each once."""

    prefix: str
    names: dict[str, str] = field(default_factory=dict)

    def __call__(self, expression: str) -> str:
        return self.names.setdefault(expression, f"{self.prefix}{len(self.names)}")

    def listed(self) -> str:
        return listed(f"{expression} AS {name}" for expression, name in self.names.items())


def listed(columns: Iterable[str]) -> str:
    """More columns behind those of a statement."""
    return "".join(f",\n        {column}" for column in columns)


def scale_of(term: Term) -> int:
    """How many of a sum's units are one of the metric's."""
    scale = 1
    for each in term.factors:
        if each.value and not each.present and not facts()[each.fact][each.value].whole:
            scale *= MICRO
    return scale


@dataclass
class Plan:
    """The columns from facts to units, made as they are asked for."""

    bound: Bound = field(default_factory=Bound)
    _fields: dict[tuple[str, str], str] = field(default_factory=dict)
    _targets: Columns = field(default_factory=lambda: Columns("m"))
    _units: Columns = field(default_factory=lambda: Columns("t"))
    _facts: set[str] = field(default_factory=lambda: {_ALWAYS})

    def total(self, term: Term, window_s: int | None, phase: Phase) -> str:
        """The column of what a unit's facts of the phase add up to."""
        if term.factors[0].each == "conversation":
            (measure,) = term.factors
            column = self._targets(self._conversation(measure, window_s))
            last = f"maxMapIf([{column}.1], [{column}.2], {column}.2 > 0 AND {phase}).2"
            return self._units(f"toInt64(arrayCount(code -> code % 2 = 1, {last}))")
        first, *others = (self._targets(self._measure(each, window_s)) for each in term.factors)
        number = first
        if others:
            product = " * ".join((f"toInt128({first})", *others))
            number = f"toInt64(greatest(least({product}, {_BOUND}), -{_BOUND}))"
        return self._units(f"sumIf({number}, {phase})")

    def events(self, term: Term, window_s: int | None) -> str:
        """The column of all numbers of a unit since its first exposure."""
        (measure,) = term.factors
        number = self._number(measure.fact, measure.value or "")
        numbers = f"groupArrayIf({number}, {self._counts(measure, window_s)})"
        column = self._targets(numbers)
        return self._units(f"groupArrayArrayIf({column}, post)")

    def stored(self, fact: str, name: str) -> str:
        """The field of a fact, as it is read from the table of facts."""
        if name in STORED:
            return f"data.`{name}`"
        if name in COLUMNS:
            return name
        kind = facts()[fact][name].kind
        path = f"body, 'data', {self.bound(name, 'String')}"
        # Without the `if` the text of every fact would be parsed.
        return f"if({self._is(fact)}, JSONExtract({path}, '{_TYPES[kind]}'), {_EMPTY[kind]})"

    def sums(self) -> str:
        """The levels of targets and of units. Ask for every column before."""
        target = _TARGETS if _MANY in self._facts else "events.target"
        scripted = self._of(_ALWAYS, f"{self._is(_ALWAYS)} AND data.simulated", "false")
        fields = self._fields.items()
        scan = sql.FACTS.format(
            target=target,
            columns=listed(f"{read} AS {name}" for (read, _), name in fields),
        )
        if FEEDBACK in self._facts:
            scan += sql.WORDS.format(
                columns=listed(f"{said} AS {name}" for (_, said), name in fields)
            )
        self.bound.values["types"] = sorted(type_of(each) for each in self._facts - {FEEDBACK})
        return sql.SUMS.format(
            acted=f"max({scripted})",
            measures=self._targets.listed(),
            terms=self._units.listed(),
            facts=scan,
        )

    def _measure(self, measure: Measure, window_s: int | None) -> str:
        """One number per target."""
        once = measure.each == "target"
        counts = self._counts(measure, window_s)
        if measure.value is None or measure.present:
            return f"toInt64({'max' if once else 'countIf'}({counts}))"
        number = self._number(measure.fact, measure.value)
        if not once or measure.take == "sum":
            return f"sumIf({number}, {counts})"
        if measure.take in {"max", "min"}:
            return f"{measure.take}If({number}, {counts})"
        # Time first, then the number: facts of one microsecond have an order too.
        dated = f"toInt128(at) * {_HALF} * 2 + {_HALF} + {number}"
        chosen = f"{'min' if measure.take == 'first' else 'max'}If({dated}, {counts})"
        return f"if(max({counts}), toInt64({chosen} % ({_HALF} * 2)) - {_HALF}, 0)"

    def _conversation(self, measure: Measure, window_s: int | None) -> str:
        """(conversation, twice the time of its fact, and one more where the fact is within)."""
        name = self._field("if(conversation = '', 0, cityHash64(conversation))", "toUInt64(0)")
        known = f"{self._counts(Measure(measure.fact), window_s)} AND {name} != 0"
        return f"(maxIf({name}, {known}), maxIf(at * 2 + {self._within(measure)}, {known}))"

    def _counts(self, measure: Measure, window_s: int | None) -> str:
        """The columns that say whether a fact counts."""
        within = self._within(measure)
        if window_s is None:
            return within
        age = f"greatest(at, served) - first < {self.bound(window_s * MICRO, 'Int64')}"
        return f"{within} AND (NOT mine OR {age})"

    def _within(self, measure: Measure) -> str:
        """The column that says whether a fact is one of the measure's."""
        tests = [self._is(measure.fact)]
        if all(measure.where):
            tests.append(" OR ".join(self._all(measure.fact, each) for each in measure.where))
        if measure.value is not None:
            tests.append(f"isNotNull({self._read(measure.fact, measure.value)})")
        return self._of(measure.fact, "(" + ") AND (".join(tests) + ")", "toUInt8(0)")

    def _number(self, fact: str, name: str) -> str:
        """The column of a fact's number as an integer."""
        whole = facts()[fact][name].whole
        most = _LARGEST_WHOLE if whole else _LARGEST
        bounded = f"greatest(least({self._read(fact, name)}, {most}), -{most})"
        scaled = bounded if whole else f"round({bounded} * {MICRO})"
        return self._of(fact, f"ifNull(toInt64({scaled}), 0)", "toInt64(0)")

    def _is(self, fact: str) -> str:
        self._facts.add(fact)
        return "true" if fact == FEEDBACK else f"type = {self.bound(type_of(fact), 'String')}"

    def _all(self, fact: str, wheres: Iterable[Where]) -> str:
        return " AND ".join(self._test(self._read(fact, each.field), each) for each in wheres)

    def _test(self, column: str, where: Where) -> str:
        if where.words:
            return f"{column} IN {self.bound(list(where.words), 'Array(String)')}"
        if where.flag is not None:
            return column if where.flag else f"NOT {column}"
        bounds = [
            f"ifNull({column} {sign}{'=' if end[1] else ''} {self.bound(end[0], 'Float64')}, 0)"
            for sign, end in ((">", where.low), ("<", where.high))
            if end
        ]
        return " AND ".join(bounds)

    def _read(self, fact: str, name: str) -> str:
        if fact == FEEDBACK:
            return _RATING[name]
        return self.stored(fact, name)

    def _of(self, fact: str, expression: str, otherwise: str) -> str:
        """A column of facts of one kind, which are either rows of the table or words of raters."""
        if fact == FEEDBACK:
            return self._field(otherwise, expression)
        return self._field(expression, otherwise)

    def _field(self, read: str, said: str) -> str:
        """A column of the scan: how it is read from the table, and from the words of raters."""
        return self._fields.setdefault((read, said), f"f{len(self._fields)}")
