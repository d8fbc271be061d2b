"""The two commands of the README, and the loop under attack."""

import subprocess
import sys
from pathlib import Path

from tests.journeys.killing import traffic_with_kills


def test_the_demo_turns_the_whole_loop_and_loses_nothing(tmp_path: Path) -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "thumbwheel", "demo", "--developers", "16", "--seed", "3"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert demo.returncode == 0, demo.stderr
    said = demo.stdout
    assert "lost: 0   duplicated: 0" in said
    assert "Imported a real developer's history with aider: 12 sessions" in said
    assert "SIMULATED developers" in said
    assert "thumbs_net: estimated" in said
    assert "desirable" in said
    assert "Where to look next:" in said
    rows = (tmp_path / ".thumbwheel-demo" / "export" / "kto" / "data.jsonl").read_text()
    assert '"label": false' in rows
    assert '"simulated": true' in rows


def test_killed_twice_in_mid_traffic_nothing_is_lost_doubled_or_miscounted(tmp_path: Path) -> None:
    outcome = traffic_with_kills(tmp_path, developers=40, kills=2, seed=11)
    assert outcome.kills >= 1
    assert outcome.retries > 0
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.disturbed == outcome.undisturbed
