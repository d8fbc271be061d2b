"""A file of one JSON object a line, read a piece at a time, twice: to check it, then to send it."""

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.errors import BadInput, Unreadable
from ingest.events import CONSENT_LEVELS, Consent
from ingest.importers._reading import _FOREIGN, NotAHistory, _chunks
from ingest.wire import Raw, read_one

MAX_LINE_BYTES = 20 << 20


@dataclass(frozen=True)
class Line:
    number: int
    """From 1, blank lines counted."""
    raw: Raw

    @property
    def fields(self) -> dict[str, Any]:
        value: dict[str, Any] = self.raw.value or {}
        return value


@dataclass
class Lines:
    """At most one line and one chunk of the file are held at a time.

    A pass may raise BadInput naming the file, the line, and what to do; NotAHistory for a file
    that is empty or holds something else than JSON objects.
    """

    path: Path
    max_line_bytes: int = MAX_LINE_BYTES
    sha256: str = field(default="", init=False)
    """Of the decompressed bytes, once a pass is through."""

    def __iter__(self) -> Iterator[Line]:
        digest = hashlib.sha256()
        found = False
        for number, line in enumerate(self._split(digest), start=1):
            if number == 1:
                self._refuse_foreign(line)
            if line.strip(b" \t\r\n"):
                found = True
                yield Line(number, self._read(number, line))
        if not found:
            raise NotAHistory(f"{self.path}: the file is empty; there is nothing to import")
        self.sha256 = digest.hexdigest()

    def _read(self, number: int, line: bytes) -> Raw:
        try:
            return read_one(line)
        except Unreadable as error:
            raise NotAHistory(
                f"{self.path}: line {number} is no JSON object ({error.detail}); each line must"
                " hold one event; if the file was cut, copy it again in full"
            ) from error

    def _refuse_foreign(self, start: bytes) -> None:
        for magic, what in _FOREIGN.items():
            if start.startswith(magic):
                raise BadInput(
                    f"{self.path}: is {what}; give the plain UTF-8 file, or a .gz or .xz of it"
                )

    def _split(self, digest: Any) -> Iterator[bytes]:  # noqa: ANN401 - hashlib names no type
        rest = bytearray()
        number = 1
        for chunk in self._bytes():
            digest.update(chunk)
            *whole, last = chunk.split(b"\n")
            for part in whole:
                yield bytes(rest + part)
                rest.clear()
                number += 1
            rest += last
            if len(rest) > self.max_line_bytes:
                raise BadInput(
                    f"{self.path}: line {number} is longer than {self.max_line_bytes >> 20} MiB;"
                    " give a file with one event a line"
                )
        if rest:
            yield bytes(rest)

    def _bytes(self) -> Iterator[bytes]:
        path = self.path
        try:
            if path.is_dir():
                raise BadInput(f"{path}: is a folder; name the files inside it")
            if path.exists() and not path.is_file():
                raise BadInput(f"{path}: is a device or pipe; name a file")
            with path.open("rb") as file:
                yield from _chunks(file)
        except FileNotFoundError as error:
            raise BadInput(f"{path}: there is no such file; check the name") from error
        except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
            raise BadInput(
                f"{path}: the compressed file is damaged or cut off ({error}); copy it again in"
                " full"
            ) from error
        except (OSError, ValueError) as error:
            raise BadInput(f"{path}: cannot be read ({error}); check its permissions") from error


def checked(consent: Consent) -> Consent:
    """The level itself. Raises: BadInput where there is no such level."""
    if consent not in CONSENT_LEVELS:
        raise BadInput.of("consent", f"{consent!r} is none of {', '.join(CONSENT_LEVELS)}")
    return consent
