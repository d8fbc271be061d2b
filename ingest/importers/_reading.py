"""From a file to its text: bounded, decompressed, decoded, or an error that says what to do."""

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ingest.errors import BadInput

MAX_BYTES = 64 << 20
_CHUNK = 1 << 20
_XZ_MEMORY = 128 << 20  # xz -9 needs 65 MiB; a header may ask for 4 GiB

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


class NotAHistory(BadInput):
    """The file can be read and is no history of the named tool."""


@dataclass(frozen=True)
class SourceText:
    path: Path
    text: str
    """Line ends are \\n, also where the tool wrote \\r\\n on Windows; no byte-order mark."""
    sha256: str
    """Of the decompressed bytes, before anything else was done to them."""


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def read_text(path: Path, *, max_bytes: int = MAX_BYTES) -> SourceText:
    """The whole text of a plain, gzip or xz file; told apart by their first bytes, not by name.

    At most `max_bytes` and one chunk are ever held, whatever a compressed file would grow to.
    """
    data = _read(path, max_bytes)
    if not data.strip():
        raise NotAHistory(f"{path}: the file is empty; there is nothing to import")
    for magic, what in _FOREIGN.items():
        if data.startswith(magic):
            raise BadInput(f"{path}: is {what}; give the plain UTF-8 file, or a .gz or .xz of it")
    return SourceText(path, _decode(path, data), hashlib.sha256(data).hexdigest())


def _read(path: Path, max_bytes: int) -> bytes:
    kept = bytearray()
    try:
        if path.is_dir():
            raise BadInput(f"{path}: is a folder; name the history file inside it")
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: is a device or pipe; name a file")
        with path.open("rb") as file:
            for chunk in _chunks(file):
                kept += chunk
                if len(kept) > max_bytes:
                    raise BadInput(_too_large(path, max_bytes))
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(
            f"{path}: the compressed file is damaged or cut off ({error}); copy it again in full"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadInput(f"{path}: cannot be read ({error}); check its permissions") from error
    return bytes(kept)


def _too_large(path: Path, max_bytes: int) -> str:
    return (
        f"{path}: holds more than the limit of {max_bytes >> 20} MiB (decompressed); split"
        " an aider history at session headers (lines '# aider chat started at …') and import the"
        " pieces in order"
    )


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    first = file.read(_CHUNK)
    if not first.startswith((_GZIP, _XZ)):
        while first:
            yield first
            first = file.read(_CHUNK)
        return
    yield from _decompressed(first, file)


def _decompressed(held: bytes, file: BinaryIO) -> Iterator[bytes]:
    """The bytes of all members of a gzip or xz file, a chunk at a time."""
    magic = _GZIP if held.startswith(_GZIP) else _XZ
    while held.startswith(magic):
        decoder = _decoder(magic)
        while not decoder.eof:
            out = decoder.decompress(held, _CHUNK)
            yield out
            # zlib hands back what it did not use when its output was full; lzma keeps it inside.
            held = getattr(decoder, "unconsumed_tail", b"")
            if not held and len(out) < _CHUNK and not decoder.eof:
                held = file.read(_CHUNK)
                if not held:
                    raise EOFError("it ends in the middle")
        held = decoder.unused_data.lstrip(b"\0") or file.read(_CHUNK).lstrip(b"\0")
    if held:
        raise EOFError("other bytes follow the compressed ones")


def _decoder(magic: bytes) -> _Decoder:
    if magic == _XZ:
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    return zlib.decompressobj(wbits=31)


def _decode(path: Path, data: bytes) -> str:
    if b"\0" in data:
        raise BadInput(f"{path}: is binary (it holds NUL bytes); name the history file itself")
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}: is not UTF-8 at line {line}, byte {error.start}; it is binary, or was saved"
            " in another encoding: convert it to UTF-8 first"
        ) from error
    if text.count("\r\n") == text.count("\n"):
        return text.replace("\r\n", "\n")
    return text
