"""The row of a fact in the scan, narrow whatever is asked of it.

One bit says whether the fact counts for one measure, and kinds of facts share the columns of their
numbers. Wide rows would make the join and the sums three times slower.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments._fields import FEEDBACK, NUMBERS, STORED, facts, type_of
from experiments._measures import Measure, Where

MICRO = 1_000_000
"""Numbers that are not whole are summed in millionths: no order of rows changes a digit of a sum."""

WORD = 64
"""Bits of one column."""

_EMPTY = {"number": "NULL::Nullable(Float64)", "text": "toLowCardinality('')", "flag": "false"}
_TYPES = {"number": "Nullable(Float64)", "text": "LowCardinality(String)", "flag": "Bool"}
_RATING = {"name": "name", "score": "word.3"}
_PLACES = 4
"""Elements of the column `numbers`. Numbers that are not in it have columns behind these."""

_LARGEST, _LARGEST_WHOLE = 1e8, 1e9
"""Of a fact's number in its own unit, and of a whole one."""


@dataclass
class Bound:
    """Values, by the names they are bound under."""

    values: dict[str, object] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def __call__(self, value: object, kind: str) -> str:
        name = self._names.setdefault(f"{kind} {value!r}", f"p{len(self._names)}")
        self.values[name] = value
        return "{" + name + ":" + kind + "}"


class _Test(NamedTuple):
    """Whether a fact counts: each column says one of the words, and the rest holds."""

    among: tuple[tuple[str, tuple[str, ...]], ...]
    rest: tuple[str, ...]
    of_words: bool
    """Of raters, whose rows have columns of their own."""

    def allows(self, column: str, word: str | None) -> bool:
        """None is any word that no test names."""
        return all(word in words for name, words in self.among if name == column)


@dataclass
class Row:
    """Its columns, made as they are asked for."""

    bound: Bound
    facts: set[str] = field(default_factory=set)
    """The kinds that were asked for."""
    has_conversations: bool = False
    _tests: list[_Test] = field(default_factory=list)
    _numbers: dict[int, dict[str, str]] = field(default_factory=dict)
    """By place: the names of the numbers there, by kind of fact."""

    def within(self, measure: Measure) -> int:
        """The bit that says whether a fact is one of the measure's."""
        fact = measure.fact
        self.facts.add(fact)
        among: list[tuple[str, tuple[str, ...]]] = []
        rest: list[str] = []
        if fact != FEEDBACK:
            among.append(("type", (type_of(fact),)))
        if len(measure.where) == 1:
            for where in measure.where[0]:
                read = self._read(fact, where.field)
                if where.words and fact != FEEDBACK:
                    among.append((read, where.words))
                else:
                    rest.append(self._holds(read, where))
        elif all(measure.where):
            rest.append(" OR ".join(self._all(fact, each) for each in measure.where))
        if measure.value is not None:
            # No measurement is larger, and no sum of such can run over.
            most = self.bound(
                _LARGEST_WHOLE if _whole(fact, measure.value) else _LARGEST, "Float64"
            )
            rest.append(f"ifNull(abs({self._read(fact, measure.value)}) <= {most}, 0)")
        test = _Test(tuple(among), tuple(rest), fact == FEEDBACK)
        if test not in self._tests:
            self._tests.append(test)
        return self._tests.index(test)

    def number(self, fact: str, name: str) -> str:
        """The column of a fact's number as an integer, which holds other numbers for other facts."""
        stored = ("score",) if fact == FEEDBACK else NUMBERS.get(fact, ())
        if name in stored:
            place = stored.index(name)
        else:
            place = _PLACES
            while self._numbers.get(place, {}).get(fact, name) != name:
                place += 1
        self._numbers.setdefault(place, {})[fact] = name
        return f"n{place}"

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
    def words(self) -> range:
        """Of the columns of bits."""
        return range(1 + (len(self._tests) - 1) // WORD)

    def of_facts(self) -> Iterator[str]:
        """The columns of a row from the table of facts."""
        for word in self.words:
            yield f"{self._bits(self._tests[word * WORD :][:WORD])} AS bits{word}"
        for place, named in sorted(self._numbers.items()):
            mine = {fact: name for fact, name in named.items() if fact != FEEDBACK}
            number = self._placed(place, mine) if place < _PLACES else self._chosen(mine)
            yield f"{number if mine else 'toInt64(0)'} AS n{place}"
        if self.has_conversations:
            yield "if(conversation = '', 0, cityHash64(conversation)) AS talk"

    def of_words(self) -> Iterator[str]:
        """The columns of a row that is a rater's word."""
        for word in self.words:
            tests = self._tests[word * WORD :][:WORD]
            yield f"{_shifted(tests, of_words=True)} AS bits{word}"
        for place, named in sorted(self._numbers.items()):
            number = self._integer(FEEDBACK, "score") if FEEDBACK in named else "toInt64(0)"
            yield f"{number} AS n{place}"
        if self.has_conversations:
            yield "0 AS talk"

    def _bits(self, tests: Sequence[_Test]) -> str:
        """Texts come from small dictionaries: one look-up for all bits is faster than many tests."""
        bits = _shifted(tests, of_words=False)
        for column in dict.fromkeys(name for test in tests for name, _ in test.among):
            named = (words for test in tests for name, words in test.among if name == column)
            words = sorted({word for each in named for word in each})
            masks = [_mask(tests, column, word) for word in words]
            lists = f"{self.bound(words, 'Array(String)')}, {self.bound(masks, 'Array(UInt64)')}"
            others = self.bound(_mask(tests, column, None), "UInt64")
            bits = f"bitAnd(transform({column}, {lists}, {others}), {bits})"
        return bits

    def _placed(self, place: int, mine: Mapping[str, str]) -> str:
        read = f"numbers.{place + 1}"
        finer = sorted(type_of(fact) for fact, name in mine.items() if not _whole(fact, name))
        if not finer:
            return _finite(read)
        types = self.bound(finer, "Array(String)")
        scales = self.bound([float(MICRO)] * len(finer), "Array(Float64)")
        mixed = f"transform(type, {types}, {scales}, toFloat64(1))"
        return _finite(f"round({read} * {mixed if len(finer) < len(mine) else MICRO})")

    def _chosen(self, mine: Mapping[str, str]) -> str:
        each = (f"{self._is(fact)}, {self._integer(fact, name)}, " for fact, name in mine.items())
        return f"multiIf({''.join(each)}toInt64(0))"

    def _integer(self, fact: str, name: str) -> str:
        read = f"assumeNotNull({self._read(fact, name)})"
        return _finite(read if _whole(fact, name) else f"round({read} * {MICRO})")

    def _is(self, fact: str) -> str:
        return f"type = {self.bound(type_of(fact), 'String')}"

    def _all(self, fact: str, wheres: Iterable[Where]) -> str:
        return " AND ".join(self._holds(self._read(fact, each.field), each) for each in wheres)

    def _holds(self, column: str, where: Where) -> str:
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


def _shifted(tests: Sequence[_Test], *, of_words: bool) -> str:
    """The bits of tests of that kind whose rest holds."""
    free, bits = 0, ""
    for place, test in enumerate(tests):
        if test.of_words != of_words:
            continue
        if test.rest:
            bits += f" + bitShiftLeft(toUInt64(({') AND ('.join(test.rest)})), {place})"
        else:
            free |= 1 << place
    return f"toUInt64({free}){bits}"


def _mask(tests: Sequence[_Test], column: str, word: str | None) -> int:
    return sum(1 << place for place, test in enumerate(tests) if test.allows(column, word))


def _whole(fact: str, name: str) -> bool:
    return facts()[fact][name].whole


def _finite(number: str) -> str:
    """As an integer, for which the engine refuses what is not finite."""
    return f"toInt64(ifNotFinite({number}, 0))"
