"""`thumbwheel analyze` as an analyst sees it."""

import json
from pathlib import Path

import pytest

from thumbwheel.cli import main

ROWS = "user,arm,kept\n" + "\n".join(
    f"u{n},{'ab'[n % 2]},{'true' if n % 10 < 3 + n % 2 else 'false'}" for n in range(1_000)
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "experiment.csv"
    path.write_text(ROWS)
    return str(path)


def test_the_page_says_split_rates_points_and_lift(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", table, "--unit", "user", "--arm", "arm", "--metric", "kept"]) == 0
    said = capsys.readouterr().out
    assert "1,000 units in 1,000 rows: a 500 v b 500" in said
    assert "split, planned 1:1: as planned (p = 1)" in said
    assert "points" in said
    assert "control" in said
    assert "40.00%" in said


def test_the_json_holds_what_the_page_says(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["analyze", table, "--unit", "user", "--arm", "arm", "--metric", "kept", "--json"]
    assert main(asked) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["split"]["units"] == {"a": 500, "b": 500}
    assert said["metrics"][0]["differences"][0]["absolute"]["n_treatment"] == 500


def test_a_wrong_question_exits_with_2_and_says_the_fix(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["analyze", table, "--unit", "user", "--arm", "arm", "--metric", "lines"]
    assert main(asked) == 2
    assert (
        "column 'lines' is not there; the file has 'user', 'arm', 'kept'" in capsys.readouterr().err
    )
    assert main([*asked[:-1], "kept", "--weight", "a:1"]) == 2
