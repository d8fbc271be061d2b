"""The bytes of a batch, cut into facts without changing one of them."""

import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from json.decoder import JSONDecodeError
from math import copysign, isinf
from typing import Any

from ingest.errors import TooLarge, Unreadable

MAX_DEPTH = 100
"""Levels of nesting in one event; engines stop reading at a thousand."""

_SPACE = re.compile(r"[ \t\n\r]*")
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]+|[\]}]+', re.DOTALL)
_MAX_DIGITS = 4300
"""Python's own bound on turning text into integers; longer ones are read as floats."""


class Raw:
    """One JSON value of a batch: its own text, what it decodes to, and what is odd about it."""

    __slots__ = ("_clean", "plain", "problem", "text", "value")

    def __init__(
        self,
        text: str,
        value: Any,  # noqa: ANN401 - any JSON
        problem: str | None = None,
        *,
        plain: bool = True,
    ) -> None:
        self.text = text
        self.value = value
        self.problem = problem
        """Why it cannot be a fact, for whoever sent it."""
        self.plain = plain
        """Every engine reads the text as this value: see `clean`."""
        self._clean: Any = value if plain else _clean(value)

    @property
    def clean(self) -> Any:  # noqa: ANN401 - any JSON
        """The value as every engine can read it.

        Lone surrogates are U+FFFD, of names that appear twice the last one stands, and numbers
        beyond what a double holds are the largest double.
        """
        return self._clean


def split_batch(body: bytes, *, most: int | None = None) -> list[Raw]:
    """The elements of a JSON array, each with the text it was sent as.

    Raises: Unreadable when the bytes are not UTF-8 or not one JSON array; TooLarge as soon as there
        are more than `most`.
    """
    text = _text(body)
    elements = _elements(text, _start(text, "["))
    found = list(islice(elements, most))
    if most is not None and next(elements, None) is not None:
        raise TooLarge(f"more than {most} events; send at most {most} a request")
    return found


def read_one(body: bytes) -> Raw:
    """One JSON object with the text it was sent as. Raises: Unreadable."""
    text = _text(body)
    raw, end = _Reader().read(text, _start(text, "{"))
    _expect_end(text, end)
    return raw


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"byte {error.start} is not UTF-8; send JSON in UTF-8") from error


def _start(text: str, opening: str) -> int:
    at = _skip(text, 0)
    if not text.startswith(opening, at):
        shape = "an array of events" if opening == "[" else "one JSON object"
        raise Unreadable(f"expected {shape}, got {text[at : at + 1]!r} at character {at}")
    return at


def _elements(text: str, at: int) -> Iterator[Raw]:
    at = _skip(text, at + 1)
    if text.startswith("]", at):
        _expect_end(text, at + 1)
        return
    read = _Reader().read
    while True:
        raw, at = read(text, at)
        yield raw
        if not text.startswith(",", at):
            at = _skip(text, at)
        if text.startswith("]", at):
            _expect_end(text, at + 1)
            return
        if not text.startswith(",", at):
            raise Unreadable(f"expected ',' or ']' at character {at}")
        at = _skip(text, at + 1)


class _Reader:
    """Reads one value after the other, and notes what only the text itself can tell of it."""

    def __init__(self) -> None:
        self._decode = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._int,
            parse_float=self._float,
            parse_constant=self._constant,
        ).raw_decode
        self._odd = False
        self._not_json = ""
        self._twice: str | None = None
        """The name that appears twice in the object read last: in the end, the outermost."""

    def read(self, text: str, at: int) -> tuple[Raw, int]:
        self._odd, self._not_json, self._twice = False, "", None
        try:
            value, end = self._decode(text, at)
        except JSONDecodeError as error:
            raise Unreadable(f"{error.msg} at character {error.pos}") from error
        except RecursionError:
            end = _end_of(text, at)
            return Raw(text[at:end], None, _TOO_DEEP), end
        own = text[at:end]
        problem = None
        if own.count("[") + own.count("{") > MAX_DEPTH and _depth(own) > MAX_DEPTH:
            return Raw(own, None, _TOO_DEEP), end
        if self._not_json:
            problem = f"{self._not_json} is not JSON; leave the field out"
        elif self._twice is not None:
            problem = f"{self._twice[:80]!r} appears twice; send each attribute once"
        plain = not self._odd and "\\ud" not in own and "\\uD" not in own
        return Raw(own, value, problem, plain=plain), end

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        self._twice = None
        if len(found) != len(pairs):
            self._odd = True
            names = [name for name, _ in pairs]
            self._twice = next(name for name in names if names.count(name) > 1)
        return found

    def _int(self, digits: str) -> int | float:
        return int(digits) if len(digits) <= _MAX_DIGITS else self._float(digits)

    def _float(self, digits: str) -> float:
        number = float(digits)
        if isinf(number):
            self._odd = True
        return number

    def _constant(self, name: str) -> None:
        self._not_json = name


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels; send a flatter event"


def _end_of(text: str, at: int) -> int:
    """Where the value that opens at `at` ends. Raises: Unreadable when it does not."""
    depth = 0
    for token in _BRACKETS.finditer(text, at):
        step = _step(token[0])
        if depth + step <= 0 and step < 0:
            return token.start() + depth
        depth += step
    raise Unreadable(f"the value at character {at} does not end")


def _depth(text: str) -> int:
    depth = deepest = 0
    for token in _BRACKETS.finditer(text):
        depth += _step(token[0])
        deepest = max(deepest, depth)
    return deepest


def _step(token: str) -> int:
    if token[0] in "[{":
        return len(token)
    return -len(token) if token[0] in "]}" else 0


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _expect_end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise Unreadable(f"more text after the end of the JSON at character {at}")


def _clean(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    if isinstance(value, float) and isinf(value):
        return copysign(sys.float_info.max, value)
    return value
