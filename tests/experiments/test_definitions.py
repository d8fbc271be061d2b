"""Files that define metrics: what they may say, and that whatever else they say is refused by name."""

import json
from pathlib import Path

import pytest

from experiments.definitions import json_schema, parse
from experiments.library import load
from ingest.errors import BadInput

HEAD = "format: 1\n"
GOOD = "version: 1, title: T, definition: D, good: up"


def refused(folder: Path, text: str) -> list[str]:
    """The fields that are named."""
    (folder / "mine.yaml").write_text(HEAD + text)
    with pytest.raises(BadInput) as caught:
        load(folder)
    for each in caught.value.errors:
        assert each.field.startswith(str(folder / "mine.yaml")), "the file is named"
    return [each.field.split(": ", 1)[1] for each in caught.value.errors]


def metric(numerator: str, more: str = "kind: count", key: str = "m") -> str:
    return f"metrics:\n  {key}: {{{GOOD}, {more}, numerator: {numerator}}}\n"


COMPLETIONS = "{fact: completion.finished}"

BAD = {
    "an unknown field of the file": ("charts: {}", "charts"),
    "an unknown field of a metric": (metric(COMPLETIONS, "kind: count, alpha: 1.5"), "metrics.m.alpha"),
    "an unknown kind": (metric(COMPLETIONS, "kind: median"), "metrics.m"),
    "an event type that is not": (metric("{fact: diff.eaten}"), "metrics.m.numerator.fact"),
    "SQL as an event type": (metric("{fact: \"x' OR 1=1 --\"}"), "metrics.m.numerator.fact"),
    "SQL in a name": (metric(COMPLETIONS, key="'m; DROP TABLE events'"), "metrics.m; DROP TABLE events"),
    "SQL as a field": (
        metric("{fact: tool.called, where: {\"outcome') OR sleep(3\": ok}}"),
        "metrics.m.numerator.where.outcome') OR sleep(3",
    ),
    "SQL as a measure": (metric('"a b"'), "metrics.m.numerator"),
    "a field that the fact has not": (
        metric("{fact: tool.called, where: {kept_ratio: 1}}"), "metrics.m.numerator.where.kept_ratio",
    ),
    "content": (
        metric("{fact: turn.submitted, where: {prompt: hello}}"), "metrics.m.numerator.where.prompt",
    ),
    "a word that is never said": (
        metric("{fact: tool.called, where: {outcome: eror}}"), "metrics.m.numerator.where.outcome",
    ),
    "a number where a word belongs": (
        metric("{fact: tool.called, where: {outcome: 1}}"), "metrics.m.numerator.where.outcome",
    ),
    "a sum of words": (metric("{fact: tool.called, value: outcome}"), "metrics.m.numerator.value"),
    "infinity": (
        metric("{fact: diff.survival, where: {kept_ratio: {min: .inf}}}"),
        "metrics.m.numerator.where.kept_ratio.min",
    ),
    "bounds that say nothing": (
        metric("{fact: diff.survival, where: {kept_ratio: {}}}"),
        "metrics.m.numerator.where.kept_ratio",
    ),
    "a fact that hangs on nothing": (metric("{fact: session.ended}"), "metrics.m.numerator.fact"),
    "a choice among counts": (
        metric("{fact: tool.called, each: target, take: first}"), "metrics.m.numerator.take",
    ),
    "a measure that is not there": (metric("nothing"), "metrics.m.numerator"),
    "a cycle": (
        f"measures:\n  a: {{plus: [b]}}\n  b: {{plus: [c, {COMPLETIONS}]}}\n  c: {{times: [a, a]}}",
        "measures.a.plus.0.plus.0.times.0",
    ),
    "a measure of itself": ("measures: {a: {plus: [a]}}", "measures.a.plus.0"),
    "a product of what is not of one target": (
        metric(f"{{times: [{COMPLETIONS}, {COMPLETIONS}]}}"), "metrics.m.numerator.times",
    ),
    "a cap at a quantile of 1.5": (
        metric(COMPLETIONS, "kind: count, cap: {quantile: 1.5}"), "metrics.m.cap.quantile",
    ),
    "a cap at less than nothing": (
        metric(COMPLETIONS, "kind: count, cap: {at: -1}"), "metrics.m.cap.at",
    ),
    "two caps": (
        metric(COMPLETIONS, "kind: count, cap: {at: 3, quantile: 0.9}"), "metrics.m.cap",
    ),
    "the 95th quantile": (
        metric("{fact: tool.called, value: duration_s}", "kind: quantile, quantile: 95"),
        "metrics.m.quantile",
    ),
    "a cap of a quantile": (
        metric("{fact: tool.called, value: duration_s}", "kind: quantile, quantile: 0.9, cap: {at: 1}"),
        "metrics.m.cap",
    ),
    "a mean of nothing": (metric(COMPLETIONS, "kind: mean"), "metrics.m.numerator.value"),
    "a window without a unit": (metric(COMPLETIONS, "kind: count, window: 7"), "metrics.m.window"),
    "a key that is ready already": (metric(COMPLETIONS, key="undo_rate"), "metrics.undo_rate"),
    "a segment by a number": (
        "segments: {s: {title: T, fact: tool.called, field: duration_s}}", "segments.s.field",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_definition_is_refused_with_file_and_field(case: str, tmp_path: Path) -> None:
    text, field = BAD[case]
    assert field in refused(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    ["metrics: [", "!!python/object/apply:os.system [ls]", "a: 1\na: 2", "[]", "", "format: 2"],
)
def test_what_is_no_file_of_definitions_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "some.yaml")
    assert all(each.field.startswith("some.yaml") for each in caught.value.errors)


def test_names_that_double_and_double_are_not_followed_for_ever(tmp_path: Path) -> None:
    lines = [f"  a{n}: {{plus: [a{n + 1}, a{n + 1}]}}" for n in range(60)]
    text = "\n".join(["measures:", *lines, f"  a60: {COMPLETIONS}"])
    assert refused(tmp_path, text)


def test_a_folder_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        load(tmp_path / "none")
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match=r"mine\.yaml"):
        load(tmp_path)


def test_the_shipped_json_schema_is_that_of_the_code() -> None:
    shipped = Path(__file__).parents[2] / "docs" / "metrics.schema.json"
    assert json.loads(shipped.read_text()) == json_schema()
