"""Where bytes or text hold a name as a JSON string."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import re2

_BLOCK = 4 << 20
_AFTER = r"\s*(?:[^:\s]|$)"
"""A colon would make it the name of a field."""

_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1  # any byte is a character: files hold more than text


@dataclass(frozen=True)
class Mentions:
    """The names, in every form in which JSON writers put them."""

    names: tuple[str, ...]

    @cached_property
    def pattern(self) -> str:
        """For RE2, which is also what the store matches with."""
        forms = sorted({form for name in self.names for form in _forms(name)})
        return f"(?:{'|'.join(re2.escape(form) for form in forms)}){_AFTER}"

    @cached_property
    def _longest(self) -> int:
        return max((len(form.encode()) for name in self.names for form in _forms(name)), default=0)

    @cached_property
    def _compiled(self) -> "re2._Regexp":
        return re2.compile(self.pattern.encode(), _BYTES)

    def in_text(self, text: str) -> bool:
        """It is one of the names, or holds one as a JSON string."""
        encoded = text.encode("utf-8", "surrogatepass")
        return text in self.names or self._compiled.search(encoded) is not None

    def count(self, stream: BinaryIO) -> tuple[int, int]:
        """(bytes read, how often they hold a name), in bounded memory."""
        size = hits = 0
        rest = b""
        while block := stream.read(_BLOCK):
            size += len(block)
            rest += block
            keep = min(len(rest), self._longest + 64)
            hits += self._starting_before(rest, len(rest) - keep)
            rest = rest[len(rest) - keep :]
        return size, hits + self._starting_before(rest, len(rest))

    def _starting_before(self, data: bytes, end: int) -> int:
        return sum(found.start() < end for found in self._compiled.finditer(data))


def _forms(name: str) -> Iterable[str]:
    """Quoted; letters outside ASCII as they are or escaped, with small digits or capitals."""
    escaped = json.dumps(name)
    first, *rest = escaped.split("\\u")
    capitals = [first, *(part[:4].upper() + part[4:] for part in rest)]
    return (json.dumps(name, ensure_ascii=False), escaped, "\\u".join(capitals))
