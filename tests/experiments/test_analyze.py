"""Experiments in files: real ones with published answers, and small ones counted by hand."""

import os
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from experiments.analyze import Analysis, Question, analyze
from experiments.tables import DataTable
from ingest.errors import BadInput


@pytest.fixture(scope="session")
def cookie_cats() -> Path:
    folder = os.environ.get("THUMBWHEEL_TEST_DATA")
    if folder is None:
        pytest.skip("set THUMBWHEEL_TEST_DATA to a folder with cookie_cats.csv.gz")
    return Path(folder) / "cookie_cats.csv.gz"


GATES = Question("userid", "version", ("retention_1", "retention_7"))


def test_a_public_experiment_has_its_published_rates_and_interval(cookie_cats: Path) -> None:
    found = analyze(DataTable.read(cookie_cats), GATES)
    day_1, day_7 = found.metrics
    assert [f"{each.estimate:.4f}" for each in day_1.arms] == ["0.4482", "0.4423"]
    assert [f"{each.estimate:.4f}" for each in day_7.arms] == ["0.1902", "0.1820"]
    rows = np.genfromtxt(cookie_cats, delimiter=",", dtype=str, skip_header=1)
    arms = [
        DescrStatsW((rows[rows[:, 1] == arm, 4] == "TRUE").astype(float))
        for arm in ("gate_40", "gate_30")
    ]
    low, high = CompareMeans(*arms).tconfint_diff(usevar="unequal")
    (day_7_difference,) = day_7.differences
    assert day_7_difference.absolute.estimate == pytest.approx(-0.00820, abs=5e-6)
    assert day_7_difference.absolute.ci == pytest.approx((low, high), rel=1e-9)
    assert day_7.is_share


def test_its_uneven_split_is_shown_and_stops_nothing(cookie_cats: Path) -> None:
    split = analyze(DataTable.read(cookie_cats), GATES).split
    assert split.units == {"gate_30": 44_700, "gate_40": 45_489}
    assert split.srm.p_value == pytest.approx(0.0086, abs=5e-5)
    assert not split.alarm
    assert split.meaning.startswith("possible mismatch (p = 0.0086)")
    assert "Shown, not blocking" in split.meaning


def answers(tmp_path: Path, text: str, *metrics: str, **changes: object) -> Analysis:
    path = tmp_path / "table.csv"
    path.write_text(text)
    question = {"unit": "user", "arm": "arm", "metrics": metrics} | changes
    return analyze(DataTable.read(path), Question(**question))  # type: ignore[arg-type]


TURNS = """user,arm,kept,lines
a,x,1,10
a,x,0,30
b,x,1,10
c,y,1,20
c,y,1,20
d,y,0,40
d,y,,40
e,x,1,5
e,y,1,5
,x,1,5
f,,1,5
"""


def test_rows_of_one_unit_belong_together_and_a_unit_of_two_arms_counts_in_none(
    tmp_path: Path,
) -> None:
    found = answers(tmp_path, TURNS, "kept", "kept/lines")
    assert found.split.units == {"x": 2, "y": 2}
    assert (found.split.excluded_units, found.split.incomplete_rows) == (1, 2)
    kept, per_line = found.metrics
    assert [arm.estimate for arm in kept.arms] == pytest.approx([2 / 3, 2 / 3])
    assert kept.left_out_rows == 1
    assert [arm.estimate for arm in per_line.arms] == pytest.approx([2 / 50, 2 / 80])
    assert not per_line.is_share


def test_several_comparisons_carry_holms_p_and_one_does_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [f"u{n},{'xyz'[n % 3]},{rng.normal():.6f}" for n in range(300)]
    text = "user,arm,value\n" + "\n".join(rows)
    first, second = answers(tmp_path, text, "value").metrics[0].differences
    p = sorted([first.absolute.p_value or 0, second.absolute.p_value or 0])
    assert sorted([first.adjusted_p or 0, second.adjusted_p or 0]) == pytest.approx(
        [min(1, 2 * p[0]), max(min(1, 2 * p[0]), p[1])]
    )
    two = "\n".join(row for row in text.splitlines() if ",z," not in row)
    assert answers(tmp_path, two, "value").metrics[0].differences[0].adjusted_p is None


def test_the_planned_weights_and_the_control_are_the_analysts(tmp_path: Path) -> None:
    text = "user,arm,value\n" + "\n".join(f"u{n},{'x' if n % 4 else 'y'},{n}" for n in range(400))
    found = answers(tmp_path, text, "value", control="y", weights={"x": 3, "y": 1})
    assert (found.control, found.split.srm.p_value) == ("y", 1.0)
    assert answers(tmp_path, text, "value").split.alarm


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"unit": "who"}, r"unit: column 'who' is not there; the file has 'user', 'arm'"),
        ({"arm": "kept", "control": "maybe"}, r"control: no arm 'maybe'; there are 0, 1"),
        ({"metrics": ("arm",)}, r"metric: column 'arm' holds string; a metric needs numbers"),
        ({"metrics": ("kept/",)}, r"metric: 'kept/' names no denominator"),
        ({"weights": {"z": 1}}, r"weights: no arm 'z'; there are x, y"),
        ({"alpha": 1.5}, r"alpha: must be in \(0, 1\), not 1.5"),
    ],
)
def test_a_question_that_does_not_fit_the_table_is_told_why(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    asked = {"metrics": ("kept",)} | changes
    metrics = asked.pop("metrics")
    with pytest.raises(BadInput, match=named):
        answers(tmp_path, TURNS, *metrics, **asked)  # type: ignore[misc]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00binary", b"a,b\n1\n"])
def test_what_is_no_table_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"file: .*odd\.csv"):
        DataTable.read(path)
    with pytest.raises(BadInput, match="cannot be read"):
        DataTable.read(tmp_path / "nothing.csv")


def test_few_units_are_read_by_a_variance_that_is_right_for_few(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [
        f"u{unit},{'xy'[unit % 2]},{rng.integers(2)}" for unit in range(20) for _ in range(1 + unit)
    ]
    (found,) = answers(tmp_path, "user,arm,kept\n" + "\n".join(rows), "kept").metrics
    effect = found.differences[0].absolute
    assert effect.method == "CR2"
    assert effect.df is not None
    assert effect.df < 18


def test_a_quantile_is_of_rows_and_its_clusters_are_units(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = rng.lognormal(size=8_000)
    rows = [f"u{n % 400},{'xy'[n % 2]},{value:.9f}" for n, value in enumerate(values)]
    (found,) = answers(tmp_path, "user,arm,ms\n" + "\n".join(rows), "p95:ms").metrics
    assert [arm.estimate for arm in found.arms] == pytest.approx(
        [np.quantile(values[0::2], 0.95), np.quantile(values[1::2], 0.95)], rel=1e-6
    )
    assert [arm.units for arm in found.arms] == [200, 200]
    assert found.differences[0].absolute.method == "clustered quantile"
