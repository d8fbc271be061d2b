"""Rounds of chaos: clients send, one thing goes wrong, and everything must be right again."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from ingest.store import Store
from tests.chaos.deployments import Embedded, Grown
from tests.chaos.faults import Fault
from tests.chaos.reading import Rows, audit, rows
from tests.chaos.traffic import Traffic

HEAL_S = 90
"""After a fault everything acknowledged must be queryable within this time."""


@dataclass
class Line:
    """Of one fault: what its rounds did."""

    rounds: int = 0
    acknowledged: int = 0
    repeated: int = 0
    replayed: int = 0
    lost: int = 0
    doubled: int = 0
    slowest_s: float = 0
    """From the end of the fault until everything that was sent is acknowledged and queryable."""


@dataclass
class Chaos:
    """One deployment under attack, and what was seen."""

    deployment: Embedded | Grown
    traffic: Traffic
    draw: Random
    lines: dict[str, Line] = field(default_factory=lambda: defaultdict(Line))
    problems: list[str] = field(default_factory=list)
    resident: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """MiB of each process after each round."""

    def round(self, number: int, fault: Fault) -> None:
        ledger, line = self.traffic.ledger, self.lines[fault.name]
        since, before = len(ledger.acknowledged), ledger.counts.copy()
        self.traffic.goes()
        time.sleep(self.draw.uniform(0.1, 0.3))
        try:
            fault.act(self.deployment, self.draw)
        except AssertionError as error:
            self._is_wrong(number, fault, str(error))
        healed = time.monotonic()
        for _ in range(HEAL_S):
            self._supervise(number, fault)
            if rested := self.traffic.rests(within_s=1):
                break
        if not rested:
            self._is_wrong(number, fault, f"a client has no answer after {HEAL_S} s")
        fresh = ledger.acknowledged[since:]
        for _ in range(HEAL_S):
            self._supervise(number, fault)
            found = audit(self.deployment.url, self.deployment.key, fresh, within_s=1)
            if not found.missing:
                break
        line.slowest_s = max(line.slowest_s, time.monotonic() - healed)
        line.rounds += 1
        line.acknowledged += len(fresh)
        line.repeated += ledger.counts["repeated"] - before["repeated"]
        line.replayed += ledger.counts["replayed"] - before["replayed"]
        line.lost += found.missing
        line.doubled += found.repeated
        if found.missing or found.repeated or not fresh:
            self._is_wrong(number, fault, f"{found} of {len(fresh)}")
        for member in self.deployment.members:
            self.resident[member.name].append(member.resident_mib())

    def _supervise(self, number: int, fault: Fault) -> None:
        for member in self.deployment.members:
            member.watch()
            while member.strange:
                self._is_wrong(number, fault, member.strange.pop())

    def _is_wrong(self, number: int, fault: Fault, said: str) -> None:
        self.problems.append(f"round {number}, {fault.name}: {said}")

    def end(self) -> Rows:
        """The traffic ends; every process stops as asked; what the store has then."""
        self.traffic.ends()
        for member in self.deployment.members:
            code = member.stop()
            if code != 0:
                self.problems.append(f"{member.name} ended with {code}: {member.words}")
        self.problems += self.traffic.ledger.wrong
        clickhouse = self.deployment.store_at_rest()
        if clickhouse.process is None:
            clickhouse.start()
        try:
            store = Store.open(clickhouse.dsn)
            found = rows(store, self.traffic.ledger.acknowledged)
            store.close()
        finally:
            clickhouse.stop()
        return found


@dataclass
class Findings:
    """Of all deployments of a run."""

    lines: dict[str, Line] = field(default_factory=lambda: defaultdict(Line))
    problems: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    strange: int = 0
    disordered: int = 0
    resident: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, chaos: Chaos, kept: Rows) -> None:
        for name, line in chaos.lines.items():
            mine = self.lines[name]
            mine.slowest_s = max(mine.slowest_s, line.slowest_s)
            for field_name in ("rounds", "acknowledged", "repeated", "replayed", "lost", "doubled"):
                more = getattr(mine, field_name) + getattr(line, field_name)
                setattr(mine, field_name, more)
        self.problems += chaos.problems
        self.lost += kept.lost
        self.doubled += kept.doubled
        self.strange += kept.strange
        self.disordered += kept.disordered
        for name, sizes in chaos.resident.items():
            self.resident[name] += sizes

    @property
    def rounds(self) -> int:
        return sum(line.rounds for line in self.lines.values())

    def table(self) -> Iterator[str]:
        yield (
            f"{'fault':<30} {'rounds':>6} {'acked':>8} {'repeated':>8} {'replayed':>8} "
            f"{'lost':>5} {'double':>6} {'slowest':>8}"
        )
        for name, line in sorted(self.lines.items()):
            yield (
                f"{name:<30} {line.rounds:>6} {line.acknowledged:>8,} {line.repeated:>8,} "
                f"{line.replayed:>8,} {line.lost:>5} {line.doubled:>6} {line.slowest_s:>6.1f} s"
            )
        yield (
            f"rows of the stores at the end: lost {self.lost}, double {self.doubled}, strange "
            f"{self.strange}, out of order {self.disordered}"
        )
        for name, sizes in self.resident.items():
            yield f"memory of {name}: {min(sizes):.0f} to {max(sizes):.0f} MiB"


def shuffled(faults: Sequence[Fault], rounds: int, draw: Random) -> list[Fault]:
    """Every fault as often as any other, in an order of the draw."""
    drawn: list[Fault] = []
    while len(drawn) < rounds:
        drawn += draw.sample(faults, len(faults))
    return drawn[:rounds]
