"""Secrets in facts: replaced by a typed placeholder where they are content, refused in names."""

import math
import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import re2

from ingest._literals import NAME_PATHS, Edit, Literal, edited, literals
from ingest._secret_rules import (
    CLUE,
    EMPTY_FORM,
    GUESSED,
    OPTIONS,
    PLACEHOLDER,
    SURE,
    TELLING,
    Form,
)
from ingest.wire import Raw, read_one

_SHORTEST = 8
_LONGEST_PLACE = 80
_SPREAD = 0.8
"""Least share of the entropy that a guessed secret of up to 14 characters could have; longer ones
need 3 bits a character. Counters and repetitions have less."""
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)")
"""What stands for one character in a string literal."""


class Found(NamedTuple):
    start: int
    end: int
    rule: str


class _Rule(NamedTuple):
    id: str
    words: tuple[bytes, ...]
    pattern: "re2._Regexp"
    guessed: bool
    plain: bool


def _compiled(pattern: str) -> "re2._Regexp":
    return re2.compile(pattern.encode(), OPTIONS)


def _rule(form: Form, *, guessed: bool) -> _Rule:
    words = tuple(word.encode() for word in form.words.split())
    return _Rule(form.id, words, _compiled(form.pattern), guessed, form.plain)


_RULES = [_rule(form, guessed=False) for form in SURE] + [
    _rule(form, guessed=True) for form in GUESSED
]
_CLUE, _PLACEHOLDER, _EMPTY_FORM, _TELLING = map(
    _compiled, (CLUE, PLACEHOLDER, EMPTY_FORM, TELLING)
)


@dataclass
class Secrets:
    """Takes secrets out of facts. Safe to call from many threads."""

    counts: Counter[str] = field(default_factory=Counter, init=False)
    """Secrets by rule since the process started, replaced or refused."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self, batch: Sequence[Raw]) -> Sequence[Raw]:
        """The same facts in order, each byte as sent but for the secrets.

        In `data` a secret becomes `[REDACTED:<rule>]`. In an attribute, or in a name that joins
        facts, it becomes a `problem` that says where and which rule, never what.
        """
        # Most batches hold none, and one search of many facts costs less than many searches.
        if not _CLUE.search("\n".join([raw.text for raw in batch]).encode()):
            return batch
        return [self._refine(raw) if _CLUE.search(raw.text.encode()) else raw for raw in batch]

    def _refine(self, raw: Raw) -> Raw:
        edits: list[Edit] = []
        rules: Counter[str] = Counter()
        problem = None
        for literal, spans in _hits(raw.text):
            rules.update(span.rule for span in spans)
            if literal.path[:1] != ("data",) or literal.path in NAME_PATHS:
                problem = problem or _refusal(literal, spans[0].rule)
            edits += _edits(raw.text, literal, spans)
        with self._lock:
            self.counts.update(rules)
        if problem:
            return Raw(raw.text, raw.value, problem, plain=raw.plain)
        return read_one(edited(raw.text, edits).encode()) if edits else raw


def _refusal(literal: Literal, rule: str) -> str:
    where = ".".join(literal.path)[:_LONGEST_PLACE] or "event"
    part = "a name in it" if literal.is_name else "it"
    return f"{where}: {part} looks like a secret ({rule}); send a name that is none, and revoke it"


def _hits(text: str) -> Iterator[tuple[Literal, list[Found]]]:
    """String literals that hold secrets, with where in the decoded value."""
    name = ""
    for literal in literals(text):
        if literal.is_name:
            name = literal.value
        if len(literal.value) < _SHORTEST:
            continue
        value, before = _bytes(literal.value), b""
        if not literal.is_name and _is_telling(name):
            before, value = _bytes(f'{name} = "'), value + b'"'
        spans = [
            Found(max(span.start - len(before), 0), span.end - len(before), span.rule)
            for span in find(before + value)
            if span.end > len(before)
        ]
        if spans:
            yield literal, spans


def _bytes(text: str) -> bytes:
    """One byte a character, so that places are the same in both; all that matters is ASCII."""
    return text.encode("latin-1", "replace")


@lru_cache(maxsize=4096)
def _is_telling(name: str) -> bool:
    return bool(_TELLING.search(_bytes(name)))


def find(text: bytes) -> list[Found]:
    """Secrets in the bytes of a decoded string, in order and apart; the surer rule names an overlap."""
    if not _CLUE.search(text):
        return []
    lower = text.lower()
    found = sorted(
        (*match.span(1), order)
        for order, rule in enumerate(_RULES)
        if any(word in lower for word in rule.words)
        for match in rule.pattern.finditer(text)
        if _is_secret(match.group(1), rule)
    )
    merged: list[tuple[int, int, int]] = []
    for start, end, order in found:
        if merged and start < merged[-1][1]:
            first, last, best = merged[-1]
            merged[-1] = (first, max(last, end), min(best, order))
        else:
            merged.append((start, end, order))
    return [Found(start, end, _RULES[order].id) for start, end, order in merged]


def _is_secret(text: bytes, rule: _Rule) -> bool:
    head = text[:256]
    if not rule.guessed:
        return len(set(head)) > 7 and not _EMPTY_FORM.search(head)
    if not rule.plain:
        digits = sum(48 <= byte <= 57 for byte in head)
        if not 0 < digits < len(head):
            return False
        if _entropy(head) < min(3.0, _SPREAD * math.log2(len(head))):
            return False
    return not _PLACEHOLDER.search(head)


def _entropy(text: bytes) -> float:
    """Shannon's, in bits a character."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


def _edits(text: str, literal: Literal, spans: Sequence[Found]) -> list[Edit]:
    """The spans of the decoded value, as edits of the text that encodes it."""
    decoded, encoded = [0], [literal.start + 1]
    for escape in _ESCAPE.finditer(text, literal.start + 1, literal.end - 1):
        decoded.append(decoded[-1] + escape.start() - encoded[-1] + 1)
        encoded.append(escape.end())

    def place(at: int) -> int:
        near = bisect_right(decoded, at) - 1
        return encoded[near] + at - decoded[near]

    return [Edit(place(span.start), place(span.end), f"[REDACTED:{span.rule}]") for span in spans]
