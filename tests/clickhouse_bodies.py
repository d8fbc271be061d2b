"""Bodies as ClickHouse's HTTP interface takes and gives them: chunked, compressed, form fields."""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from tempfile import NamedTemporaryFile

import lz4.frame
import zstandard

_ROWS = re.compile(rb"\s*(INSERT\s+INTO\s+[^\n]*?)\s*(FORMAT\s+\w+)[ \t]*\n", re.IGNORECASE)


def chunked(stream: BufferedIOBase) -> bytes:
    """The body that came in chunks. Raises: ConnectionError when it was cut short."""
    parts = []
    while True:
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the client left in the middle of its body")
        size = int(line.partition(b";")[0], 16)
        part = stream.read(size)
        if len(part) < size:
            raise ConnectionError("the client left in the middle of its body")
        parts.append(part)
        stream.readline()
        if size == 0:
            return b"".join(parts)


def unpack(body: bytes, encoding: str) -> bytes:
    """The body without its Content-Encoding; clients send one frame a block, one after another."""
    parts = []
    while body and encoding not in ("", "identity"):
        part, body = _one_frame(body, encoding)
        parts.append(part)
    return b"".join(parts) + body


def _one_frame(body: bytes, encoding: str) -> tuple[bytes, bytes]:
    """What the first frame holds, and what follows it."""
    if encoding == "lz4":
        frames = lz4.frame.LZ4FrameDecompressor()
        return frames.decompress(body), frames.unused_data or b""
    if encoding == "zstd":
        zstd = zstandard.ZstdDecompressor().decompressobj()
        return zstd.decompress(body), zstd.unused_data
    inflate = zlib.decompressobj(wbits=31 if encoding == "gzip" else 15)
    return inflate.decompress(body), inflate.unused_data


def pack(body: bytes, accepted: str) -> tuple[bytes, str]:
    """The body in the first encoding of the client's list that is known here, and which it is."""
    packers = {
        "lz4": lz4.frame.compress,
        "zstd": zstandard.ZstdCompressor().compress,
        "gzip": gzip.compress,
        "deflate": zlib.compress,
    }
    for name in (part.partition(";")[0].strip() for part in accepted.split(",")):
        if name in packers:
            return packers[name](body), name
    return body, ""


def form(body: bytes, boundary: str) -> dict[str, str]:
    """The fields of a multipart form."""
    fields = {}
    for part in body.split(b"--" + boundary.encode())[1:-1]:
        head, _, value = part.partition(b"\r\n\r\n")
        if found := re.search(rb'name="([^"]*)"', head):
            fields[found[1].decode()] = value.removesuffix(b"\r\n").decode()
    return fields


@contextmanager
def data_apart(sql: bytes) -> Iterator[bytes]:
    """The statement with the rows of an insert in a file: within it, an empty line would end them."""
    found = _ROWS.match(sql)
    if not found:
        yield sql
        return
    with NamedTemporaryFile() as file:
        file.write(sql[found.end() :])
        file.flush()
        yield found[1] + f" FROM INFILE '{file.name}' ".encode() + found[2]
