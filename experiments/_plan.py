"""From metrics to the columns of one statement, every field, measure and sum once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from experiments import _scan_sql as sql
from experiments._fields import FEEDBACK, NUMBERS, STORED, facts, type_of
from experiments._measures import Measure, Term, Where

MICRO = 1_000_000
"""Numbers that are not whole are summed in millionths: no order of rows changes a digit of a sum."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Phase = Literal["post", "NOT post"]
"""Since the first exposure, or before it."""

_ALWAYS = "completion.finished"
_MANY = "diff.committed"
_EMPTY = {"number": "NULL::Nullable(Float64)", "text": "toLowCardinality('')", "flag": "false"}
_TYPES = {"number": "Nullable(Float64)", "text": "LowCardinality(String)", "flag": "Bool"}
_RATING = {"name": "name", "score": "word.3"}
_TARGETS = (
    "arrayJoin(if(notEmpty(data.`diff.ids`), "
    "arrayMap(each -> sipHash64(concat('d', each)), data.`diff.ids`), [events.target]))"
)

_LARGEST, _LARGEST_WHOLE, _BOUND = 1e8, 1e9, 10**15
"""Of a fact's number in its own unit, of a whole one, and of a product of scaled ones."""
_WORD = 64
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


def micros(at: datetime) -> int:
    """Since 1970, as the statement tells time."""
    return (at - _EPOCH) // timedelta(microseconds=1)


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
    """The columns from facts to units, made as they are asked for.

    A row of the scan is narrow, whatever is asked: one bit says whether the fact counts for one
    measure, and kinds of facts share the columns of their numbers. Wide rows would make the join
    and the sums three times slower.
    """

    bound: Bound = field(default_factory=Bound)
    _bits: list[tuple[str, str]] = field(default_factory=list)
    _numbers: dict[str, list[str]] = field(default_factory=dict)
    _targets: Columns = field(default_factory=lambda: Columns("m"))
    _owners: Columns = field(default_factory=lambda: Columns("o"))
    _units: Columns = field(default_factory=lambda: Columns("t"))
    _by_target: set[int] = field(default_factory=set)
    """Bits of facts that count together with others of their target."""
    _facts: set[str] = field(default_factory=lambda: {_ALWAYS})
    _has_conversations: bool = False

    def total(self, term: Term, window_s: int | None, phase: Phase) -> str:
        """The column of what a unit's facts of the phase add up to."""
        if len(term.factors) > 1 or term.factors[0].each != "fact":
            self._by_target |= {self._within(each) for each in term.factors}
        if term.factors[0].each == "conversation":
            (measure,) = term.factors
            column = self._targets(self._conversation(measure, window_s))
            last = f"maxMapIf([{column}.1], [{column}.2], {column}.2 > 0).2"
            total = self._owners(f"toInt64(arrayCount(code -> code % 2 = 1, {last}))")
            return self._units(f"sumIf({total}, {phase})")
        number, *others = (self._measure(each, window_s) for each in term.factors)
        if others:
            product = " * ".join((f"toInt128({number})", *others))
            number = f"toInt64(greatest(least({product}, {_BOUND}), -{_BOUND}))"
        return self._units(f"sumIf({self._owners(f'sum({number})')}, {phase})")

    def events(self, term: Term, window_s: int | None) -> str:
        """The column of all numbers of a unit since its first exposure."""
        (measure,) = term.factors
        number = self._number(measure.fact, measure.value or "")
        column = self._targets(f"groupArrayIf({number}, {self._counts(measure, window_s)})")
        return self._units(f"groupArrayArrayIf({self._owners(f'groupArrayArray({column})')}, post)")

    def stored(self, fact: str, name: str) -> str:
        """The field of a fact, as it is read from the table of facts."""
        if name in (numbers := NUMBERS.get(fact, ())):
            return f"numbers.{numbers.index(name) + 1}"
        if name in STORED:
            return f"data.`{name}`"
        kind = facts()[fact][name].kind
        path = f"body, 'data', {self.bound(name, 'String')}"
        # Without the `if` the text of every fact would be parsed.
        return f"if({self._is(fact)}, JSONExtract({path}, '{_TYPES[kind]}'), {_EMPTY[kind]})"

    @property
    def has_edits(self) -> bool:
        """Whether anything that is asked for hangs on an edit, as a rater's word may."""
        return any(each == FEEDBACK or each.startswith("diff.") for each in self._facts)

    def levels(self, *before: str, unit: str = "") -> str:
        """The statement up to its units, after what says who met what, and what is whose.

        Ask for every column before. `unit` is the column of a fact that names one.
        """
        edits = sql.EDITS.format(earliest=sql.EARLIEST) if self.has_edits else ""
        parts = {"unit": unit, "edits": edits, "earliest": sql.EARLIEST}
        named = (each.format(**parts) for each in (sql.DOUBLED, *before))
        return "WITH" + ",".join((*named, self.sums()))

    def sums(self) -> str:
        """The levels of targets, owners and units. Ask for every column before."""
        scripted = self._bit(_ALWAYS, f"{self._is(_ALWAYS)} AND data.simulated")
        target = _TARGETS if _MANY in self._facts else "events.target"
        scan = sql.FACTS.format(target=target, columns=listed(self._of_facts()))
        if FEEDBACK in self._facts:
            scan += sql.WORDS.format(columns=listed(self._of_words()))
        self.bound.values["types"] = sorted(type_of(each) for each in self._facts - {FEEDBACK})
        words = range(1 + (len(self._bits) - 1) // _WORD)
        return sql.SUMS.format(
            bits=listed(f"groupBitOr(bits{word}) AS any{word}" for word in words),
            acted=_once(scripted),
            measures=self._targets.listed(),
            totals=self._owners.listed(),
            by_target=self._is_by_target(),
            terms=self._units.listed(),
            facts=scan,
        )

    def _measure(self, measure: Measure, window_s: int | None) -> str:
        """One number per target."""
        once = measure.each == "target"
        bit, counts = self._within(measure), self._counts(measure, window_s)
        if measure.value is None or measure.present:
            if once and window_s is None:
                return f"toInt64({_once(bit)})"
            return self._targets(f"toInt64({'max' if once else 'countIf'}({counts}))")
        number = self._number(measure.fact, measure.value)
        if not once or measure.take == "sum":
            return self._targets(f"sumIf({number}, {counts})")
        if measure.take in {"max", "min"}:
            return self._targets(f"{measure.take}If({number}, {counts})")
        # Time first, then the number: facts of one microsecond have an order too.
        dated = f"toInt128(at) * {_HALF} * 2 + {_HALF} + {number}"
        chosen = f"{'min' if measure.take == 'first' else 'max'}If({dated}, {counts})"
        return self._targets(f"if(max({counts}), toInt64({chosen} % ({_HALF} * 2)) - {_HALF}, 0)")

    def _conversation(self, measure: Measure, window_s: int | None) -> str:
        """(conversation, twice the time of its fact, and one more where the fact is within)."""
        self._has_conversations = True
        self._by_target.add(self._within(Measure(measure.fact)))
        known = f"{self._counts(Measure(measure.fact), window_s)} AND talk != 0"
        code = f"at * 2 + {_is_set(self._within(measure))}"
        return f"(maxIf(talk, {known}), maxIf({code}, {known}))"

    def _is_by_target(self) -> str:
        """Whether a fact counts together with others of its target."""
        return " OR ".join(_is_set(bit) for bit in sorted(self._by_target)) or "false"

    def _counts(self, measure: Measure, window_s: int | None) -> str:
        """Whether a fact counts."""
        within = _is_set(self._within(measure))
        if window_s is None:
            return within
        age = f"greatest(at, served) - first < {self.bound(window_s * MICRO, 'Int64')}"
        return f"{within} AND (NOT bitTest(owner, 0) OR {age})"

    def _within(self, measure: Measure) -> int:
        """The bit that says whether a fact is one of the measure's."""
        tests = [self._is(measure.fact)]
        if all(measure.where):
            tests.append(" OR ".join(self._all(measure.fact, each) for each in measure.where))
        if measure.value is not None:
            # No measurement is larger, and no sum of such can run over.
            most = self.bound(self._most(measure.fact, measure.value), "Float64")
            tests.append(f"ifNull(abs({self._read(measure.fact, measure.value)}) <= {most}, 0)")
        return self._bit(measure.fact, "(" + ") AND (".join(tests) + ")")

    def _bit(self, fact: str, test: str) -> int:
        pair = ("0", test) if fact == FEEDBACK else (test, "0")
        if pair not in self._bits:
            self._bits.append(pair)
        return self._bits.index(pair)

    def _number(self, fact: str, name: str) -> str:
        """The column of a fact's number as an integer, which holds other numbers for other facts."""
        read = f"assumeNotNull({self._read(fact, name)})"
        scaled = read if facts()[fact][name].whole else f"round({read} * {MICRO})"
        numbers = self._numbers.setdefault(fact, [])
        finite = f"toInt64(ifNotFinite({scaled}, 0))"
        if finite not in numbers:
            numbers.append(finite)
        return f"n{numbers.index(finite)}"

    def _of_facts(self) -> Iterator[str]:
        yield from self._packed([read for read, _ in self._bits])
        for place in range(max(map(len, self._numbers.values()), default=0)):
            choices = "".join(
                f"{self._is(fact)}, {numbers[place]}, "
                for fact, numbers in self._numbers.items()
                if fact != FEEDBACK and place < len(numbers)
            )
            yield f"multiIf({choices}false, 0, 0) AS n{place}"
        if self._has_conversations:
            yield "if(conversation = '', 0, cityHash64(conversation)) AS talk"

    def _of_words(self) -> Iterator[str]:
        yield from self._packed([said for _, said in self._bits])
        mine = self._numbers.get(FEEDBACK, [])
        for place in range(max(map(len, self._numbers.values()), default=0)):
            yield f"{mine[place] if place < len(mine) else 'toInt64(0)'} AS n{place}"
        if self._has_conversations:
            yield "0 AS talk"

    @staticmethod
    def _packed(tests: Sequence[str]) -> Iterator[str]:
        for word, start in enumerate(range(0, len(tests), _WORD)):
            bits = (
                f"bitShiftLeft(toUInt64({test}), {place})"
                for place, test in enumerate(tests[start : start + _WORD])
                if test != "0"
            )
            yield f"{' + '.join(bits) or 'toUInt64(0)'} AS bits{word}"

    @staticmethod
    def _most(fact: str, name: str) -> float:
        return _LARGEST_WHOLE if facts()[fact][name].whole else _LARGEST

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
        return _RATING[name] if fact == FEEDBACK else self.stored(fact, name)


def _is_set(bit: int) -> str:
    """Of a fact."""
    return f"bitTest(bits{bit // _WORD}, {bit % _WORD})"


def _once(bit: int) -> str:
    """Of any fact of a target."""
    return f"bitTest(any{bit // _WORD}, {bit % _WORD})"
