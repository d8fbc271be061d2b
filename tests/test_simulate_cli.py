"""`thumbwheel simulate`, as a shell runs it."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from thumbwheel.cli import main

COMMON = ["--unit", "user", "--looks", "5", "--replicates", "300"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    random = np.random.default_rng(1)
    user = np.repeat(np.arange(1500), 1 + random.poisson(3, 1500))
    rows = {
        "user": user,
        "kept": random.random(len(user)) < 0.3,
        "ms": random.gamma(2, 300, len(user)),
    }
    path = tmp_path / "turns.csv"
    pyarrow.csv.write_csv(pa.table(rows), path)
    return str(path)


def test_the_page_says_simulated_first_and_warns_of_daily_looks(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", file, "--metric", "kept", *COMMON], {}) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("SIMULATED: 300 experiments with the units of turns.csv, each once")
    assert "1,500 units; arms of 750 v 750" in shown
    assert shown.count("as promised") == 4
    assert "fixed, 5 looks" in shown
    assert "WARNING:" in shown
    assert "80% from" in shown


def test_the_same_command_prints_the_same_page(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = []
    for seed in ("4", "4", "5"):
        main(["simulate", file, "--metric", "ms", "--seed", seed, "--json", *COMMON], {})
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
    assert pages[0] != pages[2]


def test_json_says_simulated_and_has_every_metric(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--metric", "kept", "--metric", "ms/kept", "--weight", "9", "--weight", "1"]
    assert main(["simulate", file, *words, "--units", "3000", "--json", *COMMON], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["simulated"] is True
    assert [each["metric"] for each in found["metrics"]] == ["kept", "ms/kept"]
    assert all(each["simulated"] for each in found["metrics"])
    assert found["metrics"][0]["arms"] == [2700, 300]
    assert found["design"]["seed"] == 0


def test_what_cannot_be_played_is_wrong_usage(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["--metric", "nothing"], "'nothing' is not there"),
        (["--metric", "kept", "--arms", "1"], "arms"),
        (["--metric", "kept", "--effect", "0"], "effect"),
    ):
        assert main(["simulate", file, *words, *COMMON], {}) == 2
        assert said in capsys.readouterr().err
