"""What happened in one block, read from aider's messages in their order."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ingest.importers._aider_sessions import Block, Part

CommitKind = Literal["edit", "lint", "dirty", "command"]

COMMIT = re.compile(r"Commit ([0-9a-f]{7,40}) (.*)", re.DOTALL)
_APPLIED = re.compile(r"Applied edit to (.+)", re.DOTALL)
_COMMITTING = re.compile(r"Committing .* before applying edits\.")
_MODEL = re.compile(r"(?:Main model|Models?): (\S+) with ")
_TOKENS = "Tokens: "
_COST = " Cost: $"
# Lengths are bounded: an endless number must not cost quadratic time.
_AMOUNT = re.compile(r"([0-9][0-9.,]{0,20})([kM]?) (sent|received|cache write|cache hit)")
_PRICE = re.compile(r"[0-9.,]{1,20}")
_REMOVED = re.compile(r"Removed: ([0-9a-f]{7,40})\b")
_FAILURE = re.compile(
    r"Unexpected error:|Traceback \(most recent|(?:\w+: )?litellm\.\w|Retrying in |Model \S+ has hit a"
)
_ASKED = re.compile(r"Attempt to fix (?:lint|test) errors\?")
_AGREED = re.compile(r"Attempt to fix (?:lint|test) errors\?.* y", re.IGNORECASE)
_NO_FIT = "The LLM did not conform to the edit format."
_LINT = "# Fix any errors below"
_STOPS = ("Only 3 reflections allowed", "^C", "Unexpected error:")
_THOUSANDS = {"": 1, "k": 1_000, "M": 1_000_000}


@dataclass(frozen=True)
class Tokens:
    sent: int | None
    received: int | None
    cache_written: int | None
    cache_read: int | None
    cost_usd: float | None
    rounded: bool

    def fields(self) -> dict[str, int | float | bool | None]:
        """By wire names."""
        return {
            "gen_ai.usage.input_tokens": self.sent,
            "gen_ai.usage.output_tokens": self.received,
            "gen_ai.usage.cache_read.input_tokens": self.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": self.cache_written,
            "cost_usd": self.cost_usd,
            "tokens_rounded": True if self.rounded else None,
        }


@dataclass(frozen=True)
class Answer:
    part: Part
    tokens: Tokens | None


@dataclass(frozen=True)
class Check:
    """What aider found in an answer's work, and would send back to the model."""

    name: Literal["lint", "test", "edit"]
    output: str
    failed: bool


@dataclass(frozen=True)
class Applied:
    path: str
    line: int


@dataclass(frozen=True)
class Committed:
    sha: str
    message: str
    kind: CommitKind


@dataclass(frozen=True)
class Switched:
    model: str


Step = Answer | Check | Applied | Committed | Switched


@dataclass
class _Reading:
    """Where the walk through a block's messages stands."""

    command: str
    answered: bool = False
    applied: bool = False
    committed: bool = False
    dirty: bool = False
    check: Literal["lint", "test", "edit"] | None = None
    output: list[str] = field(default_factory=list)

    def kind(self) -> CommitKind:
        if self.dirty:
            return "dirty"
        if self.applied:
            return "edit"
        if self.command in {"commit", "lint"}:
            return "command" if self.command == "commit" else "lint"
        return "lint" if self.committed else "dirty"


def steps_of(block: Block) -> list[Step]:
    """The steps of a block; messages that say nothing about answers or edits make none."""
    reading = _Reading(block.command.name if block.command else "")
    steps: list[Step] = []
    for at, part in enumerate(block.parts):
        if part.kind == "answer":
            steps += _closed(reading, failed=True)
            reading.answered, reading.applied, reading.committed = True, False, False
            steps.append(Answer(part, _tokens_after(block.parts, at)))
        elif part.kind == "message":
            steps += _read(reading, part)
    return steps + list(_closed(reading, failed=reading.check != "test"))


def _read(reading: _Reading, part: Part) -> Iterator[Step]:
    said = part.text
    if _ASKED.match(said):
        yield from _closed(reading, failed=True)
    elif commit := COMMIT.match(said):
        yield from _closed(reading, failed=reading.check != "test")
        kind = reading.kind()
        yield Committed(commit[1], commit[2], kind)
        if kind != "dirty":
            reading.applied, reading.committed = False, True
        reading.dirty = False
    elif applied := _APPLIED.match(said):
        yield from _closed(reading, failed=True)
        reading.applied, reading.dirty = True, False
        yield Applied(applied[1], part.line)
    elif _COMMITTING.match(said):
        reading.dirty = True
    elif model := _MODEL.match(said):
        yield Switched(model[1])
    else:
        yield from _checked(reading, part)


def _checked(reading: _Reading, part: Part) -> Iterator[Step]:
    """Collects the output of aider's own checks after an answer."""
    if part.text.startswith(_STOPS):
        yield from _closed(reading, failed=True)
    elif reading.check is not None:
        if reading.check != "test":
            reading.output.append(part.text)
        # A test's output is printed once whole and once line by line; the whole one is kept.
    elif reading.answered and part.text == _NO_FIT:
        reading.check = "edit"
    elif reading.answered and part.text.startswith(_LINT):
        reading.check = "lint"
        reading.output.append(part.text)
    elif reading.answered and (reading.applied or reading.committed) and "\n" in part.text:
        reading.check = "test"
        reading.output.append(part.text)


def _closed(reading: _Reading, *, failed: bool) -> Iterator[Check]:
    if reading.check is not None:
        output = reading.output
        if reading.check == "edit" and output and output[0].startswith("https://"):
            del output[0]  # the link is for the developer; the model is sent what follows
        yield Check(reading.check, "\n".join(output).strip("\n"), failed)
    reading.check = None
    reading.output = []


def _tokens_after(parts: tuple[Part, ...], at: int) -> Tokens | None:
    """The count of tokens between an answer and the next."""
    for part in parts[at + 1 :]:
        if part.kind == "answer":
            return None
        if part.text.startswith(_TOKENS):
            return tokens_in(part.text)
    return None


def tokens_in(said: str) -> Tokens | None:
    """The numbers of a `Tokens: …` line; thousands written as 5.2k are marked as rounded."""
    counted, _, cost = said.partition(_COST)
    found = _AMOUNT.findall(counted)
    amounts = {what: _amount(number, unit) for number, unit, what in found}
    if not amounts:
        return None
    price = _PRICE.match(cost)
    return Tokens(
        sent=amounts.get("sent"),
        received=amounts.get("received"),
        cache_written=amounts.get("cache write"),
        cache_read=amounts.get("cache hit"),
        cost_usd=_number(price[0]) if price else None,
        rounded=any(unit for _, unit, _ in found),
    )


def _amount(number: str, unit: str) -> int | None:
    value = _number(number)
    return None if value is None else round(value * _THOUSANDS[unit])


def _number(written: str) -> float | None:
    try:
        return float(written.replace(",", "").rstrip("."))
    except ValueError:
        return None


def removed_by(block: Block) -> str | None:
    """Hash of the commit that an /undo took back, or None where it took none back."""
    found = (_REMOVED.match(part.text) for part in block.parts if part.kind == "message")
    return next((match[1] for match in found if match), None)


def outcome_of(block: Block) -> Literal["ok", "error", "cancelled"] | None:
    """How a turn ended; None where the history shows no answer and no reason.

    aider prints the count of tokens once an answer is complete, so a ^C or an exception counts
    only where no such line follows the last answer.
    """
    complete = interrupted = failed = False
    for part in block.parts:
        if part.kind == "answer":
            complete = False
        elif part.text.startswith(_TOKENS):
            complete, interrupted, failed = True, False, False
        elif _AGREED.match(part.text):
            complete = False
        elif not complete:
            interrupted = interrupted or part.text.startswith("^C")
            failed = failed or _FAILURE.match(part.text) is not None
    if complete:
        return "ok"
    if failed and not interrupted:
        return "error"
    if interrupted:
        return "cancelled"
    return "ok" if block.is_answered else None
