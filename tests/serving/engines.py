"""A small OpenAI-compatible engine on a raw socket, which can also behave as badly as real ones."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Ending = Literal["whole", "cut", "stall", "endless"]


@dataclass(frozen=True)
class Script:
    """What the engine sends, piece by piece, and how it ends."""

    pieces: tuple[bytes, ...]
    kind: str = "text/event-stream"
    status: int = 200
    ending: Ending = "whole"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Engine:
    """Plays its script to whoever asks, once `gate` is open; remembers what it was asked."""

    script: Script
    url: str = ""
    received: list[Received] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    """Somebody hung up on a script that had not ended."""
    closing: threading.Event = field(default_factory=threading.Event)

    def rests(self) -> None:
        """As new."""
        self.script = Script((ANSWER,), kind="application/json")
        self.received.clear()
        self.asked.clear()
        self.left.clear()
        self.gate.set()

    def says(self, *pieces: bytes, **how: Any) -> None:
        self.script = Script(pieces, **how)

    def answers(self, value: Any, **how: Any) -> None:
        self.script = Script((json.dumps(value).encode(),), kind="application/json", **how)


@contextmanager
def an_engine() -> Iterator[Engine]:
    """On a free loopback port until the end of the block."""
    engine = Engine(Script(()))
    engine.rests()

    class Handler(_Handler):
        plays = engine

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    engine.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
    thread.start()
    try:
        yield engine
    finally:
        engine.closing.set()
        engine.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    plays: Engine

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.plays.received.append(Received(self.path, headers, body))
        self.plays.asked.set()
        script = self.plays.script
        self.plays.gate.wait(20)
        try:
            self._play(script)
        except OSError:
            self.plays.left.set()
            self.close_connection = True

    def _play(self, script: Script) -> None:
        self.send_response_only(script.status)
        for name, value in (("Content-Type", script.kind), *script.headers):
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in script.pieces:
            self._piece(piece)
        if script.ending == "whole":
            self.wfile.write(b"0\r\n\r\n")
        elif script.ending == "cut":
            self.close_connection = True
        else:
            self._go_on(script)

    def _go_on(self, script: Script) -> None:
        self.close_connection = True
        while not self.plays.closing.wait(0.01):
            if script.ending == "endless":
                self._piece(script.pieces[-1])
            elif _hung_up(self):
                raise ConnectionResetError

    def _piece(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read what came, not what was printed."""


def _hung_up(handler: BaseHTTPRequestHandler) -> bool:
    handler.connection.setblocking(False)
    try:
        return not handler.connection.recv(1)
    except BlockingIOError:
        return False


def event(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def delta(text: str | None = None, **more: Any) -> bytes:
    """A streamed piece; `more` goes beside the delta."""
    said = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": said, "finish_reason": None} | more
    return event({"id": "e1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
USAGE_CHUNK = event({"id": "e1", "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"
HELLO = (delta("Hel"), delta("lo"), delta(finish_reason="stop"))
ANSWER = json.dumps({
    "id": "e1", "object": "chat.completion", "model": "engine-model", "usage": USAGE,
    "choices": [{
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"},
    }],
}, indent=1).encode()  # fmt: skip
