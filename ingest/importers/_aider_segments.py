r"""An aider history cut into its pieces: every character belongs to exactly one segment.

The format (aider's `io.py`, `append_chat_history`):

- header   `\n# aider chat started at YYYY-MM-DD HH:MM:SS\n\n`
- prompt   `\n` and the developer's lines, each as `#### ` + line + two spaces
- message  `> ` + text + two spaces, aider speaking. Text of several lines carries `> ` only on its
           first and the two spaces only on its last line.
- answer   `\n` + the model's text, stripped, + `\n\n`

The two spaces tell aider's own marks from `#### ` headings and `> ` quotes inside an answer.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["header", "prompt", "message", "blank", "text"]

HEADER = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*\Z")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SEARCH = re.compile(r"<{5,9} SEARCH\s*\Z")
_REPLACE = re.compile(r">{5,9} REPLACE\s*\Z")
_CLOSING = ("> Tokens: ", "> ^C")
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Segment:
    kind: Kind
    line: int
    """Of its first line, from 1."""
    start: int
    """Offset of its first character."""
    text: str


@dataclass(frozen=True)
class Segments:
    items: tuple[Segment, ...]
    trimmed: bool
    """True where no prompt has its two spaces (an editor took them, or a hand wrote the file), so
    that the marks alone had to do.
    """


def segments(text: str) -> Segments:
    """The history in pieces whose texts, joined, are `text`. Takes time linear in its length."""
    lines = _LINE.findall(text)
    marked = [line for line in lines if line.startswith("#### ")]
    trimmed = bool(marked) and not any(_is_spaced(line, "####") for line in marked)
    scan = _Trimmed(lines) if trimmed else _Scan(lines)
    found: list[Segment] = []
    at = offset = 0
    while at < len(lines):
        kind, end = scan.next(at)
        piece = "".join(lines[at:end])
        found.append(Segment(kind, at + 1, offset, piece))
        at, offset = end, offset + len(piece)
    return Segments(tuple(found), trimmed)


def _is_spaced(line: str, mark: str) -> bool:
    return line.startswith(f"{mark} ") and line.endswith("  \n")


class _Scan:
    """Where each segment ends, given what stood before it."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.inside = _inside_edits(lines)
        self.aider_speaks = True
        """No blank line has come since aider's last mark: a new line is still aider's."""
        self.after_header = False

    def next(self, at: int) -> tuple[Kind, int]:
        kind, end = self._next(at)
        self.aider_speaks = kind not in {"text", "blank"} or (
            kind == "blank" and self.after_header and self.aider_speaks
        )
        self.after_header = kind == "header" or (kind == "blank" and self.after_header)
        return kind, end

    def _next(self, at: int) -> tuple[Kind, int]:
        line = self.lines[at]
        if HEADER.match(line):
            return "header", at + 1
        if not line.strip():
            return "blank", at + 1
        if self._is_prompt(at):
            return "prompt", self._while_prompt(at)
        if self._is_message(at):
            return "message", at + 1
        if self.aider_speaks and line.startswith("> "):
            return "message", self._message_end(at)
        return "text", self._text_end(at)

    def _is_prompt(self, at: int) -> bool:
        return _is_spaced(self.lines[at], "####")

    def _is_message(self, at: int) -> bool:
        return _is_spaced(self.lines[at], ">")

    def _while_prompt(self, at: int) -> int:
        while at < len(self.lines) and self._is_prompt(at):
            at += 1
        return at

    def _text_end(self, at: int) -> int:
        """An answer runs to aider's next mark; aider writes a blank line between the two."""
        at += 1
        while at < len(self.lines) and not HEADER.match(self.lines[at]):
            after_blank = not self.lines[at - 1].strip() and at not in self.inside
            if after_blank and (self._is_prompt(at) or self._is_message(at)):
                break
            at += 1
        return at

    def _message_end(self, at: int) -> int:
        """Several lines in one message: to two spaces that are followed by a mark or a blank.

        Output may itself hold lines that end in two spaces, so those alone do not end it.
        """
        last = at
        while last < len(self.lines):
            if self.lines[last].endswith("  \n") and self._is_boundary(last + 1):
                return last + 1
            if last > at and self._is_wall(last):
                return last
            last += 1
        return last

    def _is_wall(self, at: int) -> bool:
        is_prompt = self._is_prompt(at) and not self.lines[at - 1].strip()
        return is_prompt or HEADER.match(self.lines[at]) is not None

    def _is_boundary(self, at: int) -> bool:
        if at >= len(self.lines) or not self.lines[at].strip():
            return True
        line = self.lines[at]
        if self._is_message(at) or self._is_wall(at) or self._is_prompt(at):
            return True
        # aider strips what it quotes, so `>   x` is a line of the output (pytest marks so).
        return line.startswith("> ") and not line.startswith(">  ")


class _Trimmed(_Scan):
    """For files without any trailing spaces: marks count outside code fences and edit blocks."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.inside = self.inside | _inside_fences(lines)

    def _is_prompt(self, at: int) -> bool:
        return self.lines[at].startswith("#### ") and at not in self.inside

    def _is_message(self, at: int) -> bool:
        line = self.lines[at]
        return (line.startswith("> ") or line.rstrip() == ">") and at not in self.inside


def _inside_edits(lines: list[str]) -> frozenset[int]:
    """Indices of lines inside edit blocks that are complete; a broken-off one shields nothing."""
    inside: set[int] = set()
    opened: int | None = None
    for at, line in enumerate(lines):
        if _SEARCH.match(line):
            opened = at
        elif line.startswith(_CLOSING) or HEADER.match(line):
            opened = None
        elif opened is not None and _REPLACE.match(line):
            inside.update(range(opened, at + 1))
            opened = None
    return frozenset(inside)


def _inside_fences(lines: list[str]) -> frozenset[int]:
    inside: set[int] = set()
    opened: int | None = None
    for at, line in enumerate(lines):
        if HEADER.match(line):
            opened = None
        elif line.startswith(_FENCE):
            if opened is None:
                opened = at
            else:
                inside.update(range(opened, at + 1))
                opened = None
    return frozenset(inside)
