"""The server as a user starts and stops it."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.facts import fact
from thumbwheel.demo.process import ServerProcess, free_port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data", free_port())
    server.start()
    yield server
    server.stop()


def thumbwheel(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "thumbwheel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def post(server: ServerProcess, *events: object) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {server.key}"}
    answer = httpx.post(f"{server.url}/v1/events", json=events, headers=headers)
    answer.raise_for_status()
    return dict(answer.json())


def test_a_fresh_folder_gets_a_key_for_its_owner_alone(server: ServerProcess) -> None:
    assert stat.S_IMODE((server.data / "key").stat().st_mode) == 0o600
    printed = (server.data / "server.out").read_text()
    assert printed.count(server.key) == 2
    assert post(server, fact())["accepted"] == 1


def test_a_second_server_on_the_same_folder_says_who_has_it(server: ServerProcess) -> None:
    second = thumbwheel("up", "--data", str(server.data), "--port", str(free_port()))
    assert second.returncode == 1
    assert "is in use by another server (process " in second.stderr
    assert "--data" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_taken_port_is_named(server: ServerProcess, tmp_path: Path) -> None:
    second = thumbwheel("up", "--data", str(tmp_path / "other"), "--port", str(server.port))
    assert second.returncode == 1
    assert f"127.0.0.1:{server.port} is taken" in second.stderr


def test_asked_to_stop_it_finishes_and_exits_0_within_ten_seconds(server: ServerProcess) -> None:
    post(server, *(fact() for _ in range(500)))
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 10


def test_what_was_acknowledged_before_a_kill_is_there_after_the_restart(
    server: ServerProcess,
) -> None:
    events = [fact() for _ in range(50)]
    assert post(server, *events)["accepted"] == 50
    server.kill()
    server.start()
    assert post(server, *events)["duplicate"] == 50


def test_the_command_line_does_the_whole_job_of_an_operator(server: ServerProcess) -> None:
    door = ("--server", server.url, "--data", str(server.data))
    assert thumbwheel("doctor", "--data", str(server.data), "--server", server.url).returncode == 0
    made = thumbwheel("key", "create", "--scope", "ingest", "--label", "ed", *door)
    assert made.stdout.startswith("tw_")
    assert "ed" in thumbwheel("key", "list", *door).stdout
    add = ("checkpoint", "add", "m1", "--url", "http://127.0.0.1:9/v1", *door)
    assert thumbwheel(*add).returncode == 0
    assert thumbwheel(*add).returncode == 1
    assert thumbwheel("checkpoint", "alias", "m1", "champion", *door).returncode == 0
    assert "champion" in thumbwheel("checkpoint", "list", *door).stdout
    assert thumbwheel(*(part.replace("m1", "m2") for part in add)).returncode == 0
    variants = ("--variant", "a=m1", "--variant", "b=m2:2")
    assert thumbwheel("experiment", "create", "e1", *variants, *door).returncode == 0
    assert thumbwheel("experiment", "start", "e1", *door).stdout == "e1 is running.\n"
    assert "no difference is certain yet" in thumbwheel("report", "e1", *door).stdout
    report = json.loads(thumbwheel("report", "e1", "--json", *door).stdout)
    assert report["decision"]["verdict"] == "continue"
    wrong = thumbwheel("experiment", "create", "e2", *variants, "--goal", "joy", *door)
    assert wrong.returncode == 2
    assert "no metric 'joy'" in wrong.stderr


def test_without_a_server_or_a_key_the_command_says_what_to_do(tmp_path: Path) -> None:
    no_key = thumbwheel("report", "x", "--data", str(tmp_path))
    assert no_key.returncode == 1
    assert "set THUMBWHEEL_KEY" in no_key.stderr
    (tmp_path / "key").write_text("tw_x")
    no_server = thumbwheel(
        "report", "x", "--data", str(tmp_path), "--server", f"http://127.0.0.1:{free_port()}"
    )
    assert no_server.returncode == 1
    assert "thumbwheel up" in no_server.stderr


def test_the_schema_is_exported() -> None:
    schema = json.loads(thumbwheel("schema").stdout)
    assert schema["$id"] == "urn:thumbwheel:events:1.0"


@pytest.mark.parametrize(
    "room", [("ingest", "api"), ("ingest", "drain"), ("experiments",), ("serving",)]
)
def test_each_room_runs_alone_and_stops_when_asked(room: tuple[str, ...], tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "THUMBWHEEL_DATA": str(tmp_path), "THUMBWHEEL_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "-m", *room], env=environment)
    for _ in range(600):
        if room[-1] == "drain":
            if (tmp_path / "store").exists():
                break
        else:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/readyz").is_success:
                    break
        time.sleep(0.05)
    time.sleep(1 if room[-1] == "drain" else 0)
    process.terminate()
    assert process.wait(timeout=15) == 0
