"""`thumbwheel import` as a user types it."""

import gzip
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from thumbwheel.demo.process import ServerProcess, free_port

SAMPLE = (files("ingest.importers") / "sample" / "aider-history.md").read_bytes()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("import") / "data", free_port())
    server.start()
    yield server
    server.stop()


def run(
    server: ServerProcess, kind: str, *files: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    options = [part for name, value in more.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "thumbwheel", "import", kind, *map(str, files), *options]
    door = ["--server", server.url, "--data", str(server.data)]
    return subprocess.run(
        [*command, *door], capture_output=True, text=True, timeout=120, check=False
    )


def accepted(server: ServerProcess) -> int:
    """Events taken since the server started."""
    text = httpx.get(f"{server.url}/metrics").text
    lines = [line for line in text.splitlines() if 'status="accepted"' in line]
    return int(float(lines[0].split()[1])) if lines else 0


def test_a_history_comes_in_once_however_often_and_however_packed(
    server: ServerProcess, tmp_path: Path
) -> None:
    plain, gz, xz = (tmp_path / name for name in ("h.md", "h.gz", "h.xz"))
    plain.write_bytes(SAMPLE)
    gz.write_bytes(gzip.compress(SAMPLE))
    xz.write_bytes(lzma.compress(SAMPLE))
    first = run(server, "aider", plain, consent="code", user="ann")
    assert first.returncode == 0, first.stderr
    assert "262 facts taken, 0 known already, 0 refused" in first.stdout
    again = run(server, "aider", gz, xz, consent="code", user="ann")
    assert again.stdout.count("0 facts taken, 262 known already, 0 refused") == 2


_BAD = {
    "empty": b"",
    "binary": bytes(range(256)) * 40,
    "prose": b"Dear diary,\n\nno history here.\n",
    "half a line": SAMPLE[:-20],
    "half an archive": gzip.compress(SAMPLE)[:-500],
    "half an xz": lzma.compress(SAMPLE)[:-500],
    "in the middle of an edit": SAMPLE[: SAMPLE.index(b"=======")],
}


@pytest.mark.parametrize("name", _BAD)
def test_a_file_that_is_no_whole_history_stops_everything_before_anything_is_sent(
    server: ServerProcess, tmp_path: Path, name: str
) -> None:
    before = accepted(server)
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_bytes(SAMPLE.replace(b"2024-", b"2021-"))
    bad.write_bytes(_BAD[name])
    refused = run(server, "aider", good, bad, consent="training", user="bob")
    assert refused.returncode == 2, refused.stdout
    assert "bad.md" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert accepted(server) == before


def test_two_hundred_megabytes_are_refused_soon_with_what_to_do(
    server: ServerProcess, tmp_path: Path
) -> None:
    huge = tmp_path / "huge.md"
    with huge.open("wb") as file:
        while file.tell() < 200 << 20:
            file.write(SAMPLE)
    refused = run(server, "aider", huge)
    assert refused.returncode == 2
    assert "64 MiB" in refused.stderr
    assert "split" in refused.stderr


def test_a_dry_run_counts_and_sends_nothing(server: ServerProcess, tmp_path: Path) -> None:
    before = accepted(server)
    path = tmp_path / "h.md"
    path.write_bytes(SAMPLE.replace(b"2024-", b"2022-"))
    command = [sys.executable, "-m", "thumbwheel", "import", "aider", str(path), "--dry-run"]
    dry = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert dry.returncode == 0
    assert "Nothing was sent" in dry.stdout
    assert accepted(server) == before


def test_trajectories_come_in_too(server: ServerProcess) -> None:
    folder = os.environ.get("THUMBWHEEL_TEST_DATA")
    if not folder:
        if os.environ.get("CI") == "true":
            pytest.fail("THUMBWHEEL_TEST_DATA is not set")
        pytest.skip("set THUMBWHEEL_TEST_DATA to a folder with mini-swe-agent-*.traj.json")
    done = run(server, "mini-swe-agent", *sorted(Path(folder).glob("mini-swe-agent-*.json")))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("facts taken, 0 known already, 0 refused") == 2
