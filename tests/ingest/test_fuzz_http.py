"""Bodies that lie about themselves, sent to the intake over a real socket."""

import gzip
import json
import re
import socket
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
import zstandard

from ingest.web import PROBLEM_JSON
from tests.facts import fact
from tests.running import Running

GIB = 1 << 30
UNPACKED = 2 * GIB
ALLOWED_MIB = 100


def post(running: Running, body: bytes, **headers: str) -> httpx.Response:
    """On a connection of its own: the server may end it before it has read all."""
    given = {"Content-Type": "application/json", **running.http.headers, "Connection": "close"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.Client(base_url=running.url, timeout=60) as http:
        return http.post("/v1/events", content=body, headers=given | named)


def batch(*ids: str) -> bytes:
    return json.dumps([fact(id=each) for each in ids]).encode()


def zstd(data: bytes, *, sized: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=sized).compress(data)


def frames_of_zeros(count: int) -> bytes:
    """One zstd frame of so many bytes that says nothing of its size."""
    frame = zstandard.ZstdCompressor().compressobj()
    block = bytes(1 << 20)
    return b"".join(frame.compress(block) for _ in range(count >> 20)) + frame.flush()


def gzip_of_zeros(count: int) -> bytes:
    """After a full flush the same input packs to the same bytes again."""
    deflate = zlib.compressobj(9, wbits=31)
    block = bytes(1 << 20)
    first = deflate.compress(block) + deflate.flush(zlib.Z_FULL_FLUSH)
    again = deflate.compress(block) + deflate.flush(zlib.Z_FULL_FLUSH)
    return first + again * ((count >> 20) - 1)


WHOLE = batch("w1", "w2")
REFUSED: dict[str, tuple[bytes, dict[str, str], int]] = {
    "half a gzip": (gzip.compress(WHOLE)[:-9], {"Content_Encoding": "gzip"}, 400),
    "gzip and more": (gzip.compress(WHOLE) + b"more", {"Content_Encoding": "gzip"}, 400),
    "two gzip members": (gzip.compress(WHOLE) * 2, {"Content_Encoding": "gzip"}, 400),
    "half a zstd": (zstd(WHOLE)[:-3], {"Content_Encoding": "zstd"}, 400),
    "half an unsized zstd": (zstd(WHOLE, sized=False)[:-3], {"Content_Encoding": "zstd"}, 400),
    "zstd and more": (zstd(WHOLE) + b"more", {"Content_Encoding": "zstd"}, 400),
    "two zstd frames": (zstd(WHOLE) + zstd(batch("w3")), {"Content_Encoding": "zstd"}, 400),
    "two unsized zstd frames": (zstd(WHOLE, sized=False) * 2, {"Content_Encoding": "zstd"}, 400),
    "plain as gzip": (WHOLE, {"Content_Encoding": "gzip"}, 400),
    "plain as zstd": (WHOLE, {"Content_Encoding": "zstd"}, 400),
    "nothing as gzip": (b"", {"Content_Encoding": "gzip"}, 400),
    "nothing as zstd": (b"", {"Content_Encoding": "zstd"}, 400),
    "gzip as plain": (gzip.compress(WHOLE), {}, 400),
    "gzip in gzip": (gzip.compress(gzip.compress(WHOLE)), {"Content_Encoding": "gzip"}, 400),
    "brotli": (WHOLE, {"Content_Encoding": "br"}, 415),
    "two encodings": (gzip.compress(WHOLE), {"Content_Encoding": "gzip, gzip"}, 415),
    "text": (WHOLE, {"Content_Type": "text/plain"}, 415),
    "UTF-16": (WHOLE.decode().encode("utf-16"), {}, 400),
    "UTF-16 without a mark": (WHOLE.decode().encode("utf-16-le"), {}, 400),
    "UTF-32": (WHOLE.decode().encode("utf-32"), {}, 400),
    "no UTF-8": (WHOLE.replace(b"w1", b"\xed\xa0\xbd"), {}, 400),
    "two marks": (b"\xef\xbb\xbf" * 2 + WHOLE, {}, 400),
    "nothing": (b"", {}, 400),
    "an object": (WHOLE[1:-1], {}, 400),
    "an array that does not end": (WHOLE[:-1], {}, 400),
    "two arrays": (WHOLE * 2, {}, 400),
    "a comma too many": (WHOLE[:-1] + b",]", {}, 400),
    "brackets that do not end": (b"[" * 200_000, {}, 400),
    "1,001 events": (b"[" + b"1," * 1_000 + b"1]", {}, 413),
    "21 MiB": (b"[" + b" " * (21 << 20) + b"]", {}, 413),
}


def test_what_is_no_batch_is_refused_as_documented_and_nothing_of_it_is_taken(
    running: Running,
) -> None:
    for name, (body, headers, status) in REFUSED.items():
        answer = post(running, body, **headers)
        assert (name, answer.status_code) == (name, status)
        assert answer.headers["content-type"] == PROBLEM_JSON
        assert answer.json().keys() >= {"type", "title", "status", "detail"}
        assert "turn.submitted" not in answer.text
    assert running.server.ingest.intake.counts["accepted"] == 0
    assert running.server.ingest.log.lag("store") == 0


def test_what_is_oddly_sent_but_whole_is_taken(running: Running) -> None:
    odd = {
        "a mark": (b"\xef\xbb\xbf" + batch("o1"), {}),
        "gzip": (gzip.compress(batch("o2")), {"Content_Encoding": "GZIP"}),
        "zstd": (zstd(batch("o3")), {"Content_Encoding": "zstd"}),
        "unsized zstd": (zstd(batch("o4"), sized=False), {"Content_Encoding": "zstd"}),
        "a charset": (batch("o5"), {"Content_Type": "application/json; charset=utf-8"}),
        "space": (b"\r\n\t " + batch("o6") + b"\n", {}),
        "1,000 events": (batch(*(f"m{number}" for number in range(1_000))), {}),
    }
    for name, (body, headers) in odd.items():
        answer = post(running, body, **headers)
        assert (name, answer.status_code) == (name, 200)
        assert answer.json()["rejected"] == 0
    assert running.server.ingest.intake.counts["accepted"] == 1_006


def talk(running: Running, head: str, pieces: Iterable[bytes], *, hang_up: bool = False) -> bytes:
    """What comes back until the server ends the connection, or the client says no more."""
    place = urlsplit(running.url)
    key = running.http.headers["authorization"]
    start = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nConnection: close\r\n"
    with socket.create_connection((place.hostname, place.port), timeout=30) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(f"{start}Content-Type: application/json\r\n{head}\r\n\r\n".encode())
        heard = b""
        with suppress(OSError):  # a server that has said no may have closed the line
            for piece in pieces:
                line.sendall(piece)
            if hang_up:
                line.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while heard_now := line.recv(1 << 16):
                heard += heard_now
        return heard


def status(answer: bytes) -> int | None:
    found = re.match(rb"HTTP/1\.1 (\d+)", answer)
    return int(found[1]) if found else None


def test_one_byte_at_a_time_is_the_same_batch(running: Running) -> None:
    body = batch("c1", "c2")
    pieces = [b"1\r\n%c\r\n" % byte for byte in body]
    answer = talk(running, "Transfer-Encoding: chunked", [*pieces, b"0\r\n\r\n"])
    assert status(answer) == 200
    assert b'"accepted":2' in answer
    running.until_stored()
    assert running.http.get("/v1/events/c2").json()["id"] == "c2"


def test_a_length_that_lies_takes_nothing_and_breaks_nothing(running: Running) -> None:
    body = batch("l1")
    lies = {
        "too long": (f"Content-Length: {len(body) + 10}", [body]),
        "too short": (f"Content-Length: {len(body) - 10}", [body]),
        "no number": ("Content-Length: many", [body]),
        "negative": ("Content-Length: -1", [body]),
        "two": (f"Content-Length: {len(body)}\r\nContent-Length: 5", [body]),
        "chunks that do not end": ("Transfer-Encoding: chunked", [b"5\r\n[1,2]\r\n"]),
        "a chunk that lies": ("Transfer-Encoding: chunked", [b"ff\r\n", body[:20]]),
        "a size that is none": ("Transfer-Encoding: chunked", [b"zz\r\n", body]),
    }
    for name, (head, pieces) in lies.items():
        assert status(talk(running, head, pieces, hang_up=True)) in {None, 400}, name
    assert running.server.ingest.intake.counts["accepted"] == 0
    assert post(running, body).json()["accepted"] == 1


@pytest.fixture
def peak_mib() -> "Peak":
    return Peak()


class Peak:
    """By how much this process, the server in it, grew at its largest since the last `forget`."""

    _RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")

    def __init__(self) -> None:
        if not self._RESET.exists():
            pytest.skip("the peak of a process can only be measured anew on Linux")
        self._before = 0

    def forget(self) -> None:
        self._RESET.write_text("5")
        self._before = self._kib("VmRSS")

    def __call__(self) -> int:
        return (self._kib("VmHWM") - self._before) >> 10

    def _kib(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+)", self._STATUS.read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])


def test_a_bomb_is_refused_without_unpacking_it(running: Running, peak_mib: Peak) -> None:
    bombs = {
        "gzip": (gzip_of_zeros(UNPACKED), 413),
        "zstd": (frames_of_zeros(UNPACKED), 413),
        "gzip in gzip": (gzip.compress(gzip_of_zeros(UNPACKED)), 400),
    }
    for name, (bomb, wanted) in bombs.items():
        assert len(bomb) < 4 << 20
        peak_mib.forget()
        answer = post(running, bomb, Content_Encoding=name[:4])
        assert (name, answer.status_code) == (name, wanted)
        assert peak_mib() < ALLOWED_MIB, name


def test_a_batch_of_millions_is_refused_before_it_is_read(running: Running, peak_mib: Peak) -> None:
    body = b"[" + b"1," * 2_000_000 + b"1]"
    packed = gzip.compress(body)
    peak_mib.forget()
    assert post(running, packed, Content_Encoding="gzip").status_code == 413
    assert peak_mib() < ALLOWED_MIB


ODD_IDS = (
    "a/b", "/", "//", "a/", "%2F", "a?b#c", "é", "😀", "\0", "\t\n\r", "'\"\\", "{x:String}", "\\N",
    "audit", " ", "x" * 800,
)  # fmt: skip


def test_an_event_is_shown_as_sent_whatever_its_id(running: Running) -> None:
    texts = {
        each: "{" + f'"data" : {{"a":1e400, "\\ud83d": "\\u0000é"}}, "id": {json.dumps(each)},'
        f'"source":"/s","specversion":"1.0" ,"type":"x.y"  }}'
        for each in ODD_IDS
    }
    answer = post(running, f"[{','.join(texts.values())}]".encode())
    assert answer.json()["accepted"] == len(ODD_IDS)
    running.until_stored()
    for each, text in texts.items():
        shown = running.http.get(f"/v1/events/{quote(each, safe='')}")
        assert (each, shown.status_code) == (each, 200)
        assert shown.content.startswith(text[:-1].encode() + b","), each
        added = json.loads(b"{" + shown.content[len(text.encode()) :])
        assert added.keys() == {"received_at", "sent_at", "clock", "position"}
    assert running.server.drain.dead == 0
