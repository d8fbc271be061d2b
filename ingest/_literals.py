"""The string literals of a JSON text, each with its place in the text and its path in the value."""

import re
from collections.abc import Iterable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

_MARK = re.compile(r'["{}\[\]]')
_COLON = re.compile(r"[ \t\n\r]*:")
_DEPTH = 4
"""How many names of a path are kept: the names that mean something to us lie higher."""


_NAMES = (
    "gen_ai.conversation.id", "turn.id", "parent_turn.id", "completion.id", "diff.id", "diff.ids",
    "file.id", "gen_ai.tool.call.id", "gen_ai.response.id", "supersedes", "rater", "assignment",
    "experiment", "variant", "unit", "assigned", "received", "checkpoint",
)  # fmt: skip
NAME_PATHS = frozenset(
    {("data", name) for name in _NAMES} | {("data", "target", "id"), ("data", "hunks", "id")}
)
"""Where the `data` of a fact holds names by which facts are joined."""


class Literal(NamedTuple):
    """`text[start:end]` is the literal with its quotes, `value` what it decodes to."""

    start: int
    end: int
    value: str
    path: tuple[str, ...]
    """Names from the top, without the places in lists; of a name, those of the object it is in."""
    is_name: bool


class Edit(NamedTuple):
    """`text[start:end]` becomes `text` of the edit."""

    start: int
    end: int
    text: str


def string_at(text: str, at: int) -> tuple[str, int]:
    """The string whose opening quote is at `at`, and where its literal ends."""
    value, end = scanstring(text, at + 1, True)
    return value, end


def literals(text: str) -> Iterator[Literal]:
    """Every string literal of a text that Python's `json` has read, names included, in order."""
    outer: list[tuple[str, ...]] = []  # the path of each open object or list
    path: tuple[str, ...] = ()
    mark = _MARK.search(text)
    while mark:
        at, end = mark.start(), mark.end()
        if text[at] == '"':
            value, end = string_at(text, at)
            colon = _COLON.match(text, end)
            if colon:
                yield Literal(at, end, value, outer[-1], is_name=True)
                path, end = (*outer[-1], value)[:_DEPTH], colon.end()
            else:
                yield Literal(at, end, value, path, is_name=False)
        elif text[at] in "{[":
            outer.append(path)
        else:
            outer.pop()
            path = outer[-1] if outer else ()
        mark = _MARK.search(text, end)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with its edits, given in order and apart; everything else is as it was."""
    parts: list[str] = []
    at = 0
    for edit in edits:
        parts += text[at : edit.start], edit.text
        at = edit.end
    return "".join([*parts, text[at:]])
