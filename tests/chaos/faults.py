"""What is done to a deployment while clients send. Each is over, and what died started, at its end."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

import httpx

from tests.chaos.deployments import DAY_S, NEARLY_FULL_BYTES, Embedded, Grown
from tests.chaos.members import ROOT, Member
from tests.clickhouse_server import Mood
from tests.ingest.brokers import free_port
from tests.parts import no_part_can_be_committed

_STOP_S = 10
_FILE_BYTES = (70_000, 200_000)
"""Beyond these the log cannot be written, but the smallest files of the engine can: chDB 4.4 takes a
part for whole although its file of marks, 24 bytes, could not be written."""


class Fault(NamedTuple):
    name: str
    act: Callable[..., None]
    """Of the deployment and the draw. Raises: AssertionError when a process ends in a wrong way."""


def nothing(_: Embedded | Grown, draw: Random) -> None:
    """Only the clients' own repeats and shuffled replays."""
    time.sleep(draw.uniform(0.3, 0.8))


def _kills(pick: Callable[[Any, Random], Sequence[Member]]) -> Callable[..., None]:
    def act(deployment: Embedded | Grown, draw: Random) -> None:
        members = pick(deployment, draw)
        for member in members:
            member.kill()
        time.sleep(draw.choice([0, draw.uniform(0, 0.5)]))
        for member in members:
            member.start()

    return act


def _dies_while_it_starts(deployment: Embedded, draw: Random) -> None:
    deployment.server.kill()
    deployment.server.launch()
    time.sleep(draw.uniform(0, 3))
    deployment.server.kill()
    deployment.server.start()


def _stops(pick: Callable[[Any, Random], Member]) -> Callable[..., None]:
    def act(deployment: Embedded | Grown, draw: Random) -> None:
        member = pick(deployment, draw)
        began = time.monotonic()
        code = member.stop()
        took_s = time.monotonic() - began
        member.start()
        assert code == 0, f"{member.name} ended with {code}: {member.words}"
        assert took_s < _STOP_S, f"{member.name} took {took_s:.1f} s to stop"

    return act


def _freezes(pick: Callable[[Any, Random], Member]) -> Callable[..., None]:
    def act(deployment: Embedded | Grown, draw: Random) -> None:
        member = pick(deployment, draw)
        member.freeze()
        time.sleep(draw.uniform(0.3, 3))
        member.thaw()

    return act


def _clock_jumps(deployment: Embedded, draw: Random) -> None:
    """It stays there until it jumps again."""
    assert deployment.clock is not None
    deployment.clock.stands_at(draw.choice([-DAY_S, 0, DAY_S]))
    time.sleep(draw.uniform(0.3, 0.8))


def _disk_full(deployment: Embedded, draw: Random) -> None:
    # A disk fills more slowly than an insert writes.
    deployment.fill_disk(left=NEARLY_FULL_BYTES)
    time.sleep(0.5)
    deployment.fill_disk()
    time.sleep(draw.uniform(0.5, 1.5))
    deployment.free_disk()


def _writes_fail(deployment: Embedded, draw: Random) -> None:
    deployment.server.may_write(draw.choice(_FILE_BYTES))
    time.sleep(draw.uniform(0.5, 1.5))
    deployment.server.may_write()


def _dies_on_a_full_disk(deployment: Embedded, draw: Random) -> None:
    deployment.server.may_write(draw.choice(_FILE_BYTES))
    time.sleep(draw.uniform(0.1, 0.5))
    deployment.server.kill()
    deployment.server.start()


def _no_part_is_committed(deployment: Embedded, draw: Random, *, then_dies: bool) -> None:
    with no_part_can_be_committed(draw.choice(deployment.tables())):
        time.sleep(draw.uniform(0.5, 1.5))
        if then_dies:
            deployment.server.kill()
    if then_dies:
        deployment.server.start()


def _second_server(deployment: Embedded, draw: Random) -> None:
    time.sleep(draw.uniform(0, 0.2))
    command = [sys.executable, "-m", "thumbwheel", "up", "--data", str(deployment.data)]
    second = subprocess.run(
        [*command, "--port", str(free_port())],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 1, second.stderr
    assert "is in use by another server (process " in second.stderr, second.stderr
    assert "Traceback" not in second.stderr, second.stderr


def _requests_break_off(deployment: Embedded, draw: Random) -> None:
    """Many clients leave in the middle of their own requests; those of others go on."""
    host, port = "127.0.0.1", httpx.URL(deployment.url).port
    head = (
        f"POST /v1/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {deployment.key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    ).encode()
    for _ in range(draw.randint(5, 40)):
        with socket.create_connection((host, port)) as client:
            client.sendall(head + bytes(draw.randint(0, 100_000)))


def _server(deployment: Embedded, _: Random) -> Member:
    return deployment.server


EMBEDDED = (
    Fault("none but replays", nothing),
    Fault("kill -9", _kills(lambda deployment, _: [deployment.server])),
    Fault("kill -9 while it starts", _dies_while_it_starts),
    Fault("SIGTERM", _stops(_server)),
    Fault("frozen", _freezes(_server)),
    Fault("clock jumps a day", _clock_jumps),
    Fault("disk full", _disk_full),
    Fault("writes fail", _writes_fail),
    Fault("writes fail, then kill -9", _dies_on_a_full_disk),
    Fault("no part is committed", partial(_no_part_is_committed, then_dies=False)),
    Fault("kill -9 before a commit", partial(_no_part_is_committed, then_dies=True)),
    Fault("second server", _second_server),
    Fault("requests break off", _requests_break_off),
)


def _a_drain(deployment: Grown, draw: Random) -> Member:
    return draw.choice(deployment.drains)


def _broker_goes(sent: signal.Signals) -> Callable[..., None]:
    def act(deployment: Grown, draw: Random) -> None:
        deployment.broker.stop(sent)
        time.sleep(draw.uniform(0, 1))
        deployment.broker.start()

    return act


def _broker_freezes(deployment: Grown, draw: Random) -> None:
    assert deployment.broker.process is not None
    deployment.broker.process.send_signal(signal.SIGSTOP)
    time.sleep(draw.uniform(0.5, 3))
    deployment.broker.process.send_signal(signal.SIGCONT)


def _store_goes(sent: signal.Signals) -> Callable[..., None]:
    def act(deployment: Grown, draw: Random) -> None:
        deployment.clickhouse.stop(sent)
        time.sleep(draw.uniform(0.5, 4))
        deployment.clickhouse.start()

    return act


def _store_fails(mood: Mood) -> Callable[..., None]:
    def act(deployment: Grown, draw: Random) -> None:
        times, seconds = (1000, 0.0) if mood != "slow" else (20, draw.uniform(0.5, 2))
        deployment.clickhouse.fails(mood, times=times, seconds=seconds)
        time.sleep(draw.uniform(0.5, 3))
        deployment.clickhouse.is_well()

    return act


GROWN = (
    Fault("none but replays", nothing),
    Fault("kill -9 of the api", _kills(lambda deployment, _: [deployment.api])),
    Fault("kill -9 of a drain", _kills(lambda deployment, draw: [_a_drain(deployment, draw)])),
    Fault("kill -9 of both drains", _kills(lambda deployment, _: deployment.drains)),
    Fault("kill -9 of the broker", _broker_goes(signal.SIGKILL)),
    Fault("kill -9 of the store", _store_goes(signal.SIGKILL)),
    Fault("SIGTERM of the api", _stops(lambda deployment, _: deployment.api)),
    Fault("SIGTERM of a drain", _stops(_a_drain)),
    Fault("SIGTERM of the broker", _broker_goes(signal.SIGTERM)),
    Fault("SIGTERM of the store", _store_goes(signal.SIGTERM)),
    Fault("api frozen", _freezes(lambda deployment, _: deployment.api)),
    Fault("drain frozen", _freezes(_a_drain)),
    Fault("broker frozen", _broker_freezes),
    Fault("store says 503", _store_fails("away")),
    Fault("inserts cut half-way", _store_fails("cut before")),
    Fault("inserts cut before the answer", _store_fails("cut after")),
    Fault("store slow", _store_fails("slow")),
)


def embedded_faults(deployment: Embedded) -> list[Fault]:
    """Those that this machine can play."""
    missing = {"disk full": not deployment.own_disk, "clock jumps a day": deployment.clock is None}
    return [fault for fault in EMBEDDED if not missing.get(fault.name)]
