"""The test server of `clickhouse_server` in a process of its own, which can be told to fail."""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.clickhouse_server import Mood

_ROOT = Path(__file__).parent.parent
USER, PASSWORD = "thumb", "open-sesame"


@dataclass
class ClickHouse:
    """A server on `data`, which keeps what it has through a stop, a kill and a start."""

    data: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def dsn(self) -> str:
        return f"clickhouse://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.clickhouse_server", "--data", str(self.data)]
        command += ["--port", str(self.port), "--user", USER, "--password", PASSWORD]
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, cwd=_ROOT)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, self._output.read_text()[-2000:]
            assert time.monotonic() < deadline, "the ClickHouse server does not answer"
            time.sleep(0.05)

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(sent)
            self.process.wait(timeout=30)
            self.process = None

    def fails(self, mood: Mood, *, times: int = 1, seconds: float = 0) -> None:
        """So many of the next requests fail in this way."""
        self._told(mood, times, seconds)

    def is_well(self) -> None:
        """No request fails any more."""
        self._told("well", 0, 0)

    def _told(self, mood: str, times: int, seconds: float) -> None:
        wanted = {"mood": mood, "times": times, "seconds": seconds}
        httpx.post(f"http://127.0.0.1:{self.port}/control", json=wanted).raise_for_status()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/ping", timeout=5).is_success
        except httpx.TransportError:
            return False

    @property
    def _output(self) -> Path:
        return self.data.with_suffix(".out")
