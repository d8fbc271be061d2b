"""A `thumbwheel up` in a process of its own, which may be killed and started again."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from ingest.errors import Unavailable

_START_S = 60


@dataclass
class ServerProcess:
    """The server on `data`, as a user starts it. Its output goes to `<data>/server.out`."""

    data: Path
    port: int
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.data / "key").read_text().strip()

    def start(self) -> None:
        """Ready to serve. Raises: Unavailable with the last line the server said."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "thumbwheel", "up", "--data", str(self.data)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, our own arguments
                [*command, "--port", str(self.port)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._output.read_text(errors="replace").strip().splitlines()
                raise Unavailable(f"the server did not start: {said[-1] if said else 'no word'}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once, by kill -9, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int | None:
        if self._process is None:
            return None
        process, self._process = self._process, None
        if process.poll() is None:
            os.kill(process.pid, how)
        return process.wait(timeout=30)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).is_success
        except httpx.TransportError:
            return False

    @property
    def _output(self) -> Path:
        return self.data / "server.out"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
