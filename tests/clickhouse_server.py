"""A server that speaks ClickHouse's HTTP interface over the engine in its process, and can fail.

For tests of what only HTTP can get wrong: `python -m tests.clickhouse_server --data D --port N`.
It is no ClickHouse server: sessions are ignored, answers are made whole before they are sent. POST
/control takes `{"mood", "times", "seconds"?}`: so many of the next requests fail in that way.
"""

import argparse
import base64
import json
import re
import secrets
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import parse_qsl, urlsplit

import chdb

from tests.clickhouse_bodies import chunked, data_apart, form, pack, unpack

Mood = Literal["away", "cut before", "cut after", "slow"]
"""`away`: 503. `cut before`: an insert's connection ends half-way. `cut after`: it is carried out,
and the connection ends without an answer. `slow`: the answer takes `seconds` more."""

_INSERT = re.compile(rb"\s*insert\s", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")
_TRANSPORT = frozenset(
    [
        "buffer_size",
        "client_protocol_version",
        "compress",
        "database",
        "decompress",
        "default_format",
        "http_headers_progress_interval_ms",
        "password",
        "query",
        "query_id",
        "quota_key",
        "role",
        "send_progress_in_http_headers",
        "session_check",
        "session_id",
        "session_timeout",
        "user",
        "wait_end_of_query",
    ]
)
_STATUS = {36: 400, 46: 404, 47: 404, 60: 404, 62: 400, 81: 404, 115: 404, 516: 403}
"""Of an error's code, as ClickHouse gives it; 500 for any other."""
_AWAY = "Code: 242. DB::Exception: Told to be away. (TABLE_IS_READ_ONLY)"


@dataclass
class Moods:
    """How the next requests fail."""

    _left: dict[Mood, int] = field(default_factory=dict)
    _seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def told(self, mood: str, times: int, seconds: float) -> None:
        with self._lock:
            if mood == "well":
                self._left.clear()
            for known in get_args(Mood):
                if mood == known:
                    self._left[known] = times
            self._seconds = seconds or self._seconds

    def takes(self, mood: Mood) -> bool:
        """This request fails in this way; counted."""
        with self._lock:
            left = self._left.get(mood, 0)
            self._left[mood] = max(0, left - 1)
            return left > 0

    def waits(self) -> None:
        if self.takes("slow"):
            time.sleep(self._seconds)


class Question(NamedTuple):
    """One request, read."""

    sql: bytes
    options: dict[str, str]

    @property
    def inserts(self) -> bool:
        return bool(_INSERT.match(self.sql))

    @property
    def settings(self) -> dict[str, str]:
        return {
            name: value
            for name, value in self.options.items()
            if name not in _TRANSPORT and not name.startswith("param_")
        }

    @property
    def parameters(self) -> dict[str, str]:
        return {
            name.removeprefix("param_"): value
            for name, value in self.options.items()
            if name.startswith("param_")
        }


class Engine:
    """The engine on one folder; each request has a connection, so that settings stay its own."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._kept: Any = chdb.connect(data)  # type: ignore[no-untyped-call]
        row = self._kept.query("SELECT version(), timezone()", "TabSeparated").bytes().decode()
        self.version, self.timezone = row.rstrip("\n").split("\t")

    def answer(self, question: Question) -> tuple[bytes, str]:
        """Body and its format, "" where the statement answers nothing. Raises: RuntimeError."""
        wanted = question.options.get("default_format", "TabSeparated")
        connection: Any = chdb.connect(self._data)  # type: ignore[no-untyped-call]
        with closing(connection):
            if database := question.options.get("database"):
                connection.query(f"USE {_quoted(database, '`')}", "TabSeparated")
            if question.settings:
                pairs = (f"{name} = {_quoted(v, chr(39))}" for name, v in question.settings.items())
                connection.query(f"SET {', '.join(pairs)}", "TabSeparated")
            with data_apart(question.sql) as sql:
                found = connection.query(sql, wanted, params=question.parameters)
            body = bytes(found.bytes() or b"")
        named = re.search(rb"\bFORMAT\s+(\w+)\s*;?\s*$", question.sql[-100:])
        shown = re.match(
            rb"[\s(]*(select|with|show|describe|exists|explain)\b", question.sql.lower()
        )
        return body, (named[1].decode() if named else wanted) if body or shown else ""

    def close(self) -> None:
        self._kept.close()


def _quoted(text: str, mark: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(mark, f"\\{mark}")
    return f"{mark}{escaped}{mark}"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, engine: Engine, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", port), Request)
        self.engine, self.moods = engine, Moods()
        self._secret = f"{user}:{password}"

    def admits(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._secret.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        if path == "/control":
            wanted = json.loads(self._body())
            self.server.moods.told(wanted["mood"], wanted["times"], wanted.get("seconds", 0))
            self._send(200, b"Ok.\n")
        elif self.server.moods.takes("away"):
            self.close_connection = True
            self._fail(_AWAY, status=503)
        elif path == "/ping":
            self._send(200, b"Ok.\n")
        else:
            self._carry_out()

    def _carry_out(self) -> None:
        # Clients stream the body of an insert, and only that.
        if self._streamed and self.server.moods.takes("cut before"):
            self.rfile.read(100)
            self._cut()
            return
        question = self._question()
        if not self.server.admits(self._given(question.options)):
            user = question.options.get("user", "default")
            self._fail(
                f"Code: 516. DB::Exception: {user}: Authentication failed: password is incorrect, "
                "or there is no user with such name. (AUTHENTICATION_FAILED)"
            )
            return
        self.server.moods.waits()
        try:
            body, form = self.server.engine.answer(question)
        except RuntimeError as error:
            self._fail(str(error))
            return
        if question.inserts and self.server.moods.takes("cut after"):
            self._cut()
            return
        self._answer(question, body, form)

    def _answer(self, question: Question, body: bytes, form: str) -> None:
        headers = {"X-ClickHouse-Timezone": self.server.engine.timezone}
        if form:
            headers["X-ClickHouse-Format"] = form
        if question.options.get("enable_http_compression") == "1":
            body, encoding = pack(body, self.headers.get("Accept-Encoding", ""))
            if encoding:
                headers["Content-Encoding"] = encoding
        self._send(200, body, headers)

    def _question(self) -> Question:
        options = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = unpack(self._body(), self.headers.get("Content-Encoding", ""))
        if self.headers.get_content_type() == "multipart/form-data":
            options |= form(body, str(self.headers.get_param("boundary")))
            body = b""
        parts = [part for part in (options.get("query", "").encode(), body) if part]
        return Question(b"\n".join(parts), options)

    @property
    def _streamed(self) -> bool:
        return self.headers.get("Transfer-Encoding", "").lower() == "chunked"

    def _body(self) -> bytes:
        if self._streamed:
            return chunked(self.rfile)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _given(self, options: dict[str, str]) -> str:
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            return base64.b64decode(value).decode()
        user = self.headers.get("X-ClickHouse-User") or options.get("user", "default")
        return f"{user}:{self.headers.get('X-ClickHouse-Key') or options.get('password', '')}"

    def _fail(self, message: str, *, status: int | None = None) -> None:
        found = _CODE.search(message)
        code = int(found[1]) if found else 0
        text = f"{message} (version {self.server.engine.version})\n".encode()
        headers = {"X-ClickHouse-Exception-Code": str(code)}
        self._send(status or _STATUS.get(code, 500), text, headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ((headers or {}) | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _cut(self) -> None:
        """The connection ends at once, by a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *_: object) -> None:
        """Nothing: what went wrong is in the answer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default="default")
    parser.add_argument("--password", default="")
    given = parser.parse_args()
    engine = Engine(given.data)
    server = Server(given.port, engine, given.user, given.password)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.05)
    server.server_close()
    engine.close()


if __name__ == "__main__":
    main()
