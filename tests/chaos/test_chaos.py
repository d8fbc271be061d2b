"""`make chaos`: what was acknowledged is there, once and in order, whatever goes wrong."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.chaos.deployments import Embedded, Grown
from tests.chaos.faults import EMBEDDED, GROWN, Fault, embedded_faults
from tests.chaos.rounds import Chaos, Findings, shuffled
from tests.chaos.traffic import Traffic

_PER_DEPLOYMENT = 25
_GROWTH = 1.5
_SPARE_MIB = 150


def play(
    deployment: Embedded | Grown, faults: list[Fault], *, seed: int, prefix: str, findings: Findings
) -> None:
    """One deployment, started, attacked and ended."""
    draw = Random(f"{seed}/{prefix}")
    with ExitStack() as stack:
        stack.callback(deployment.end)
        deployment.start()
        traffic = Traffic(deployment.url, deployment.key, prefix=prefix, seed=seed)
        stack.callback(traffic.ends)
        chaos = Chaos(deployment, traffic, draw)
        for number, fault in enumerate(faults):
            chaos.round(number, fault)
        findings.add(chaos, chaos.end())


def assert_right(findings: Findings, say: Callable[[str], None]) -> None:
    for line in findings.table():
        say(line)
    assert not findings.problems, "\n".join(findings.problems)
    kept = (findings.lost, findings.doubled, findings.strange, findings.disordered)
    assert kept == (0, 0, 0, 0), "lost, doubled, strange, out of order"
    for name, sizes in findings.resident.items():
        first = max(sizes[:5])
        assert max(sizes) < first * _GROWTH + _SPARE_MIB, f"{name}: {sizes}"


def test_seven_faults_in_a_row_lose_nothing_double_nothing_and_keep_the_order(
    tmp_path: Path, seed: int
) -> None:
    named = {
        "kill -9 before a commit", "no part is committed", "writes fail", "frozen",
        "clock jumps a day", "second server", "SIGTERM",
    }  # fmt: skip
    deployment = Embedded.on(tmp_path / "d", own_disk=False)
    faults = [fault for fault in embedded_faults(deployment) if fault.name in named]
    findings = Findings()
    play(deployment, faults, seed=seed, prefix=f"short-{seed}", findings=findings)
    assert_right(findings, print)


@pytest.mark.slow
def test_two_hundred_rounds_of_chaos_in_one_process(
    tmp_path: Path, seed: int, given_rounds: int | None
) -> None:
    rounds, findings = given_rounds or 200, Findings()
    order = shuffled(EMBEDDED, rounds, Random(seed))
    for group in range(0, rounds, _PER_DEPLOYMENT):
        # The first have a small disk of their own, if this user may make one.
        deployment = Embedded.on(tmp_path / f"d{group}", own_disk=group % 2 == 0)
        possible = embedded_faults(deployment)
        faults = [
            fault if fault in possible else possible[0]
            for fault in order[group : group + _PER_DEPLOYMENT]
        ]
        prefix = f"embedded-{seed}-{group}"
        play(deployment, faults, seed=seed, prefix=prefix, findings=findings)
    print(f"\nchaos in one process, seed {seed}, {findings.rounds} rounds")
    assert_right(findings, print)
    assert findings.rounds == rounds


@pytest.mark.slow
def test_forty_rounds_of_chaos_on_kafka_and_a_clickhouse_server(
    tmp_path: Path, seed: int, given_rounds: int | None
) -> None:
    home = os.environ.get("KAFKA_HOME")
    if home is None:
        pytest.skip("KAFKA_HOME names no folder with Apache Kafka and its `broker` script")
    findings, rounds = Findings(), min(given_rounds or 40, 40)
    faults = shuffled(GROWN, rounds, Random(seed))
    deployment = Grown.on(tmp_path / "grown", Path(home))
    play(deployment, faults, seed=seed, prefix=f"grown-{seed}", findings=findings)
    print(f"\nchaos on Kafka and a ClickHouse server, seed {seed}, {findings.rounds} rounds")
    assert_right(findings, print)
