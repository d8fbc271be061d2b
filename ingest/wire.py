"""The bytes of a batch, cut into facts without changing one of them."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import JSONDecodeError
from typing import Any

from ingest.errors import Unreadable

_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MAX_DIGITS = 4300
"""Python's own bound on turning text into integers; longer ones are read as floats."""


@dataclass(frozen=True, slots=True)
class Raw:
    """One JSON value of a batch: its own text, what it decodes to, and what is odd about it."""

    text: str
    value: Any
    problem: str | None = None

    @property
    def clean(self) -> Any:  # noqa: ANN401 - any JSON
        """The value with lone surrogates replaced by U+FFFD, so that every engine can read it."""
        return _clean(self.value) if _SURROGATE.search(self.text) else self.value


def split_batch(body: bytes) -> list[Raw]:
    """The elements of a JSON array, each with the text it was sent as.

    Raises: Unreadable when the bytes are not UTF-8 or not one JSON array.
    """
    text = _text(body)
    return list(_elements(text, _start(text, "[")))


def read_one(body: bytes) -> Raw:
    """One JSON object with the text it was sent as. Raises: Unreadable."""
    text = _text(body)
    raw, end = _decode(text, _start(text, "{"))
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
    while True:
        raw, at = _decode(text, at)
        yield raw
        at = _skip(text, at)
        if text.startswith("]", at):
            _expect_end(text, at + 1)
            return
        if not text.startswith(",", at):
            raise Unreadable(f"expected ',' or ']' at character {at}")
        at = _skip(text, at + 1)


def _decode(text: str, at: int) -> tuple[Raw, int]:
    odd: list[str] = []
    decoder = json.JSONDecoder(parse_constant=odd.append)
    try:
        value, end = decoder.raw_decode(text, at)
    except JSONDecodeError as error:
        raise Unreadable(f"{error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise Unreadable(f"nested too deeply at character {at}") from error
    except ValueError:
        decoder = json.JSONDecoder(parse_constant=odd.append, parse_int=_number)
        value, end = decoder.raw_decode(text, at)
    problem = f"{odd[0]} is not JSON; leave the field out" if odd else None
    return Raw(text[at:end], value, problem), end


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


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
    return value
