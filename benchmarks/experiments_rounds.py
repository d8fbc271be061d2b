"""Rounds that take turns, and the table of what they took."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROUNDS = 5

Round = Callable[[], float]
"""One round of a work; its seconds of processor time."""


@dataclass(frozen=True)
class Line:
    """One work of ours beside a rival's."""

    work: str
    rival: str
    ours: Sequence[float]
    theirs: Sequence[float]
    bar: float
    """How many times as fast it has to be."""

    @property
    def ratio(self) -> float:
        return median(self.theirs) / median(self.ours)

    def __str__(self) -> str:
        holds = "holds" if self.ratio >= self.bar else "MISSED"
        return (
            f"  {self.work:34}{_taken(self.ours)}   {self.rival:32}{_taken(self.theirs)}"
            f"{self.ratio:8.1f} ×   bar {self.bar:g} × {holds}"
        )


def _taken(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1e3:9.2f} ms (p95 {np.quantile(seconds, 0.95) * 1e3:9.2f})"


def header() -> str:
    packages = ("numpy", "scipy", "growthbook", "tea-tasting", "chdb-core")
    versions = ", ".join(f"{each} {version(each)}" for each in packages)
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{versions}\n{load()}; processor time, one warm-up and {ROUNDS} rounds in turns"
    )


def load() -> str:
    return "load " + " ".join(f"{each:.1f}" for each in os.getloadavg())


def measured(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def in_turns(rounds: Mapping[str, Round]) -> dict[str, list[float]]:
    """What each round took; a busy machine slows all alike, and the first of each is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in rounds}
    for number in range(ROUNDS + 1):
        for name, once in rounds.items():
            seconds = once()
            if number:
                taken[name].append(seconds)
    return taken


class Peer:
    """A script that the Python of another environment runs, a line in and a line out."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.version: str = self._read()["version"]

    def answers(self) -> Any:  # noqa: ANN401 - each script has its own
        return self._ask("answers")["answers"]

    def once(self) -> float:
        return float(self._ask("round")["seconds"])

    def _ask(self, what: str) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the peer ended; its words are above"
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def peer(python: Path, script: str, given: object) -> Iterator[Peer]:
    """A script of this folder, told what to work on in its first line."""
    process = subprocess.Popen(
        [python, Path(__file__).with_name(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        yield Peer(process)
    finally:
        process.kill()
        process.wait()
