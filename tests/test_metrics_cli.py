"""An analyst's own metric: checked, served, planned with, and refused by name where it is wrong."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from thumbwheel.cli import main
from thumbwheel.demo.process import ServerProcess, free_port

MINE = """
format: 1
measures:
  slow_calls: {fact: tool.called, where: {duration_s: {above: 10}}}
metrics:
  slow_calls_per_edit:
    version: 1
    kind: ratio
    title: slow tool calls per edit
    definition: tool calls of more than 10 s ÷ edits proposed
    good: down
    window: 7d
    numerator: slow_calls
    denominator: edits
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mine.yaml").write_text(MINE)
    return folder


def test_files_are_checked_without_a_server(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", "--check", str(folder)], {}) == 0
    assert "slow_calls_per_edit" in (said := capsys.readouterr().out)
    assert "undo_rate" not in said
    (folder / "mine.yaml").write_text(MINE.replace("tool.called", "tool.caled"))
    assert main(["metrics", "--check", str(folder)], {}) == 2
    assert "mine.yaml: measures.slow_calls.fact: no fact 'tool.caled'" in capsys.readouterr().err


def test_a_server_started_with_the_folder_plans_with_its_metrics(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("THUMBWHEEL_METRICS", str(folder))
    server = ServerProcess(tmp_path / "data", free_port())
    server.start()
    try:
        arms = ("a", "b")
        plan = {
            "key": "e1",
            "variants": [{"key": each, "checkpoint": each} for each in arms],
            "metrics": {"goals": ["slow_calls_per_edit"]},
        }
        headers = {"Authorization": f"Bearer {server.key}"}
        for each in arms:
            httpx.post(
                f"{server.url}/v1/checkpoints",
                json={"id": each, "engine": {"kind": "openai", "url": "http://127.0.0.1:9"}},
                headers=headers,
            ).raise_for_status()
        made = httpx.post(f"{server.url}/v1/experiments", json=plan, headers=headers)
        assert made.status_code == 201, made.text
        environment = {"THUMBWHEEL_URL": server.url, "THUMBWHEEL_KEY": server.key}
        assert main(["metrics"], environment) == 0
        listed = capsys.readouterr().out
        assert "slow_calls_per_edit" in listed
        assert "undo_rate" in listed
    finally:
        server.stop()


def test_a_server_does_not_start_with_a_metric_it_cannot_read(folder: Path, tmp_path: Path) -> None:
    (folder / "mine.yaml").write_text(MINE.replace("kind: ratio", "kind: rato"))
    up = [sys.executable, "-m", "thumbwheel", "up", "--data", str(tmp_path / "data")]
    found = subprocess.run(
        [*up, "--port", str(free_port())],
        env={"THUMBWHEEL_METRICS": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode == 2
    assert "mine.yaml: metrics.slow_calls_per_edit" in found.stderr
    assert "Traceback" not in found.stderr
