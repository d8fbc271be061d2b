"""SEARCH/REPLACE blocks of a model's answer, byte for byte."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_HEAD = re.compile(r"<{5,9} SEARCH\s*\Z")
_DIVIDER = re.compile(r"={5,9}\s*\Z")
_TAIL = re.compile(r">{5,9} REPLACE\s*\Z")
_FENCES = ("```", "<source>", "<code>", "<pre>", "<codename>", "<sourcecode>")
_LOOK_BACK = 3  # lines in which aider itself looks for the file's name


@dataclass(frozen=True)
class EditBlock:
    path: str
    """As the model wrote it; "" where the answer names no file."""
    before: str
    after: str
    """Exact text between the markers, each line with its end."""


@dataclass(frozen=True)
class Edits:
    blocks: tuple[EditBlock, ...]
    unfinished: int
    """Blocks that were opened and have no end."""

    def by_path(self) -> dict[str, tuple[EditBlock, ...]]:
        """Blocks of each file, files and blocks in the order of the answer."""
        found: dict[str, list[EditBlock]] = {}
        for block in self.blocks:
            found.setdefault(block.path, []).append(block)
        return {path: tuple(blocks) for path, blocks in found.items()}


def edits_in(answer: str) -> Edits:
    """All edit blocks of an answer, in order."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", answer)
    heads = [at for at, line in enumerate(lines) if _HEAD.match(line)]
    blocks: list[EditBlock] = []
    path = ""
    for head, limit in pairwise([*heads, len(lines)]):
        path = _named_before(lines, head) or path
        blocks.extend(_block(lines[head + 1 : limit], path))
    return Edits(tuple(blocks), len(heads) - len(blocks))


def _block(lines: list[str], path: str) -> Iterator[EditBlock]:
    divider = next((at for at, line in enumerate(lines) if _DIVIDER.match(line)), None)
    if divider is None:
        return
    for at in range(divider + 1, len(lines)):
        if _TAIL.match(lines[at]):
            yield EditBlock(path, "".join(lines[:divider]), "".join(lines[divider + 1 : at]))
            return


def _named_before(lines: list[str], head: int) -> str:
    """The file named right above the block, over an opening fence; as aider finds it."""
    for line in reversed(lines[max(0, head - _LOOK_BACK) : head]):
        bare = line.strip()
        if bare.startswith(_FENCES):
            continue
        name = bare.rstrip(":").lstrip("#").strip().strip("`*").strip()
        is_sentence = " " in name and "/" not in name and "." not in name.rsplit(" ", 1)[-1][:-1]
        return "" if is_sentence or name == "..." or name.startswith("</") else name
    return ""


def u16(text: str) -> int:
    """Length in UTF-16 code units, the editor's own."""
    return len(text) + sum(char > "\uffff" for char in text)


def hunk_of(block: EditBlock, name: str) -> dict[str, int | str]:
    """The block by wire names. Sizes leave out the lines that stay alike at its head and tail."""
    before, after = block.before.split("\n"), block.after.split("\n")
    head = _common(before, after)
    tail = _common(_rest(before, head), _rest(after, head))
    removed = before[head : len(before) - tail]
    added = after[head : len(after) - tail]
    return {
        "id": name,
        "lines_added": len(added),
        "lines_removed": len(removed),
        "u16_added": u16("\n".join(added)),
        "u16_removed": u16("\n".join(removed)),
        "before": block.before,
        "after": block.after,
    }


def _rest(lines: list[str], head: int) -> list[str]:
    """What follows the first `head` lines, last line first."""
    return lines[: head - 1 : -1] if head else lines[::-1]


def _common(left: list[str], right: list[str]) -> int:
    """How many lines are the same from the start on."""
    same = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        same += 1
    return same
