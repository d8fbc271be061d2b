"""The metrics there are, and those a user adds."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from experiments import metrics
from experiments._fields import NUMBERS, STORED, facts, type_of
from experiments.library import load
from ingest.errors import BadInput
from ingest.store import Store

READY = {
    "acceptance", "kept_ratio_15m", "kept_ratio_commit", "undo_rate", "thumbs_net",
    "thumbs_response", "time_to_first_token", "time_to_first_token_p95", "tokens_per_kept_line",
    "cost_per_kept_line", "tool_error_rate", "rephrase_rate", "session_abandonment", "error_rate",
}  # fmt: skip

MINE = """
format: 1
measures:
  slow_calls: {fact: tool.called, where: {duration_s: {above: 10}}}
metrics:
  slow_calls_per_edit:
    version: 3
    kind: ratio
    title: slow tool calls per edit
    definition: tool calls of more than 10 s ÷ edits proposed
    good: down
    window: 7d
    minimum: 200
    cap: {quantile: 0.99}
    numerator: slow_calls
    denominator: edits
"""


def test_the_ready_metrics_say_what_they_are_and_which_way_is_good() -> None:
    assert set(metrics.METRICS) >= READY
    for each in load().metrics.values():
        assert each.title
        assert each.definition
        assert each.numerator
        assert each.denominator
        assert each.public()["key"] == each.key
    assert metrics.METRICS["undo_rate"].good == "down"
    assert metrics.METRICS["thumbs_net"].numerator == "up - down"


def test_a_folder_adds_metrics_that_use_the_ready_measures(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text(MINE)
    found = load(tmp_path).metrics["slow_calls_per_edit"]
    assert (found.version, found.window_s, found.minimum) == (3, 7 * 86_400, 200)
    assert (found.numerator, found.denominator) == ("slow calls", "edits")
    assert found.bottom == metrics.METRICS["undo_rate"].bottom


def test_a_bad_folder_changes_nothing_and_a_good_one_is_there_at_once(tmp_path: Path) -> None:
    before = dict(metrics.METRICS)
    (tmp_path / "mine.yaml").write_text(MINE.replace("fact: tool.called", "fact: tool"))
    with pytest.raises(BadInput):
        metrics.use_folder(tmp_path)
    assert dict(metrics.METRICS) == before


def test_an_unknown_metric_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadInput, match="undo_rate") as caught:
        metrics.metric("no such", "metrics.goals")
    assert caught.value.errors[0].field == "metrics.goals"


def test_the_columns_of_the_store_are_those_that_are_read(store: Store) -> None:
    rows = store.rows(
        "SELECT type FROM system.columns WHERE database = currentDatabase() AND table = 'events' "
        "AND name = 'data'"
    )
    (names,) = ({part.split()[0].strip("`,") for part in row["type"].split("\n")} for row in rows)
    text = rows[0]["type"]
    assert all(name in text for name in STORED), names
    known = {name for fields in facts().values() for name in fields}
    assert known >= STORED


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_in_the_places_where_they_are_read(kind: str, store: Store) -> None:
    said = {name: place + 1.0 for place, name in enumerate(NUMBERS[kind])}
    lines = {name: int(said[name]) for name in said if name.startswith("lines_")}
    data = {name: number for name, number in said.items() if name not in lines}
    for name, each in (("all", {**data, "hunks": [lines]}), ("none", {})):
        body = json.dumps({"data": each})
        row = (name, type_of(kind), body, datetime(2026, 11, 1, tzinfo=UTC))
        store.insert("events", ("id", "type", "body", "received_at"), [row], token=name)
    found = {row["id"]: row["numbers"] for row in store.rows("SELECT id, numbers FROM events")}
    assert list(found["all"][: len(said)]) == list(said.values())
    unsaid = found["none"][: len(said)]
    assert all(number == 0 if lines else math.isnan(number) for number in unsaid)
