"""From metrics to the columns of one statement, every field, measure and sum once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from experiments import _scan_sql as sql
from experiments._fields import FEEDBACK, facts, type_of
from experiments._measures import Measure, Term, Where
from experiments._row import MICRO, WORD, Bound, Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Phase = Literal["post", "NOT post"]
"""Since the first exposure, or before it."""

_SCRIPTED = Measure("completion.finished", where=((Where("simulated", flag=True),),))
_MANY = "diff.committed"
_TARGETS = (
    "arrayJoin(if(notEmpty(data.`diff.ids`), "
    "arrayMap(each -> sipHash64(concat('d', each)), data.`diff.ids`), [events.target]))"
)

_BOUND = 10**15
"""Of a product of scaled numbers."""
_HALF = "2251799813685248"
"""2**51, more than any number is once it is scaled."""


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
    """The columns from facts to units, made as they are asked for."""

    bound: Bound = field(default_factory=Bound)
    row: Row = field(init=False)
    _targets: Columns = field(default_factory=lambda: Columns("m"))
    _owners: Columns = field(default_factory=lambda: Columns("o"))
    _units: Columns = field(default_factory=lambda: Columns("t"))
    _by_target: set[int] = field(default_factory=set)
    """Bits of facts that count together with others of their target."""

    def __post_init__(self) -> None:
        self.row = Row(self.bound)

    def total(self, term: Term, window_s: int | None, phase: Phase) -> str:
        """The column of what a unit's facts of the phase add up to."""
        if len(term.factors) > 1 or term.factors[0].each != "fact":
            self._by_target |= {self.row.within(each) for each in term.factors}
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
        number = self.row.number(measure.fact, measure.value or "")
        column = self._targets(f"groupArrayIf({number}, {self._counts(measure, window_s)})")
        return self._units(f"groupArrayArrayIf({self._owners(f'groupArrayArray({column})')}, post)")

    @property
    def has_edits(self) -> bool:
        """Whether anything that is asked for hangs on an edit, as a rater's word may."""
        return any(each == FEEDBACK or each.startswith("diff.") for each in self.row.facts)

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
        scripted = self.row.within(_SCRIPTED)
        target = _TARGETS if _MANY in self.row.facts else "events.target"
        scan = sql.FACTS.format(target=target, columns=listed(self.row.of_facts()))
        if FEEDBACK in self.row.facts:
            scan += sql.WORDS.format(columns=listed(self.row.of_words()))
        self.bound.values["types"] = sorted(type_of(each) for each in self.row.facts - {FEEDBACK})
        return sql.SUMS.format(
            bits=listed(f"groupBitOr(bits{word}) AS any{word}" for word in self.row.words),
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
        bit, counts = self.row.within(measure), self._counts(measure, window_s)
        if measure.value is None or measure.present:
            if once and window_s is None:
                return f"toInt64({_once(bit)})"
            return self._targets(f"toInt64({'max' if once else 'countIf'}({counts}))")
        number = self.row.number(measure.fact, measure.value)
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
        self.row.has_conversations = True
        self._by_target.add(self.row.within(Measure(measure.fact)))
        known = f"{self._counts(Measure(measure.fact), window_s)} AND talk != 0"
        code = f"at * 2 + {_is_set(self.row.within(measure))}"
        return f"(maxIf(talk, {known}), maxIf({code}, {known}))"

    def _is_by_target(self) -> str:
        """Whether a fact counts together with others of its target."""
        return " OR ".join(_is_set(bit) for bit in sorted(self._by_target)) or "false"

    def _counts(self, measure: Measure, window_s: int | None) -> str:
        """Whether a fact counts."""
        within = _is_set(self.row.within(measure))
        if window_s is None:
            return within
        age = f"greatest(at, served) - first < {self.bound(window_s * MICRO, 'Int64')}"
        return f"{within} AND (NOT bitTest(owner, 0) OR {age})"


def _is_set(bit: int) -> str:
    """Of a fact."""
    return f"bitTest(bits{bit // WORD}, {bit % WORD})"


def _once(bit: int) -> str:
    """Of any fact of a target."""
    return f"bitTest(any{bit // WORD}, {bit % WORD})"
