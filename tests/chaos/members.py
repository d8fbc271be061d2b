"""The processes of a deployment. Each can be killed, stopped, frozen, and started again."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).parent.parent.parent
_START_S = 90
_STOP_S = 30


@dataclass
class Member:
    """A process of the product, as an operator runs it: `python -m …`."""

    name: str
    command: Sequence[str]
    output: Path
    url: str = ""
    """Where it is asked whether it is ready; one without doors is ready when it runs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    wanted: bool = field(default=False, init=False)
    restarts: int = field(default=0, init=False)
    """How often it ended by itself, in good order, and its supervisor started it again."""
    strange: list[str] = field(default_factory=list, init=False)
    """How it ended by itself otherwise."""

    def launch(self) -> None:
        """It runs; it may not be ready yet."""
        self.wanted = True
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.command],
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=os.environ | self.environment,
            )

    def start(self) -> None:
        self.launch()
        self.until_ready()

    def until_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while self.url and not self._answers():
            assert self.runs, f"{self.name} ended: {self.words}"
            assert time.monotonic() < deadline, f"{self.name} is not ready: {self.words}"
            time.sleep(0.05)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def words(self) -> str:
        """The last it said."""
        return self.output.read_text(errors="replace")[-2000:] if self.output.exists() else ""

    def watch(self) -> None:
        """What a supervisor does: start it again when it ended although nobody asked it to.

        A start that finds no log or no store may end with 1 and its reason.
        """
        if self.wanted and self.process is not None and self.process.poll() is not None:
            if self.process.returncode == 1 and "Traceback" not in self.words:
                self.restarts += 1
            else:
                self.strange.append(
                    f"{self.name} ended with {self.process.returncode}: {self.words}"
                )
            self.launch()

    def kill(self) -> None:
        self.wanted = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int | None:
        """SIGTERM; the exit code, None when it had to be killed."""
        self.wanted = False
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            return self.process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def may_write(self, size: int = resource.RLIM_INFINITY) -> None:
        """No byte beyond that offset of any file: the write fails, as on a disk that is full."""
        if self.process is not None:
            resource.prlimit(
                self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)
            )

    def resident_mib(self) -> float:
        """Memory it has in use; 0 when it does not run."""
        if not self.runs or self.process is None:
            return 0
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        found = [int(line.split()[1]) for line in lines if line.startswith("VmRSS")]
        return found[0] / 1024 if found else 0

    def _send(self, sent: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(sent)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).is_success
        except httpx.TransportError:
            return False
