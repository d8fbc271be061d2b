"""Whole families of bad files of metrics: refused with file and field."""

import json
from pathlib import Path

import pytest

from experiments.library import load
from experiments.metrics import read
from ingest.errors import BadInput
from ingest.store import Store
from tests.experiments.worlds import SPEC, Tell, World, day

SQL = "x'; DROP TABLE events; --"
HEAD = "format: 1\n"
ABOUT = "title: T, definition: D, good: up"
SERVED = "{fact: completion.finished}"
WAITED = "{fact: tool.called, value: duration_s}"


def metric(numerator: str = SERVED, more: str = "kind: count", about: str = ABOUT) -> str:
    return f"{HEAD}metrics:\n  m: {{{about}, {more}, numerator: {numerator}}}\n"


def measure(said: str) -> str:
    return f"{HEAD}measures: {{a: {said}}}"


def each(template: str, *values: str) -> list[str]:
    return [template.replace("?", value) for value in values]


WRONG = ("5", "1.5", "true", "~", "[a]", "2020-01-01", '""', '"a b"')
FILES: dict[str, tuple[str, list[str]]] = {
    "a measure that is none": ("measures.a", [measure(said) for said in (*WRONG, "{}")]),
    "a numerator that is none": ("metrics.m.numerator", [metric(said) for said in WRONG]),
    "a mean of a name": ("metrics.m.numerator", [metric("edits", "kind: mean")]),
    "a metric that is no metric": (
        "metrics.m", each(f"{HEAD}metrics: {{m: ?}}", *WRONG, "{}", "{kind: [count]}", "{kind: {a: 1}}"),
    ),
    "sections that are none": ("metrics", each(f"{HEAD}metrics: ?", "5", "[a]", "~", "x", "!!set {a, b}")),
    "a part that no file has": ("alerts", [f"{HEAD}alerts: {{}}"]),
    "a name that is none": (
        "metrics", each(f"{HEAD}metrics: {{?: {{{ABOUT}, kind: count, numerator: {SERVED}}}}}",
                        "1", "~", "yes", "1.5", "M", "é", '""', '"m\\n"', "a" * 65, "2020-01-01"),
    ),
    "a sum of nothing": ("measures.a.plus", [measure(said) for said in ("{plus: []}", "{plus: b}", "{plus: {}}")]),
    "a sum and a product at once": ("measures.a.times", [measure("{plus: [edits], times: [edits, edits]}")]),
    "a product of one or four": ("measures.a.times", [measure(f"{{times: [{n}]}}") for n in ("edits", "edits, edits, edits, edits")]),
    "a sum of too much": ("measures.a.plus", [measure(f"{{plus: [{', '.join(['edits'] * 33)}]}}")]),
    "a cycle": (
        "metrics.m.denominator",
        [metric("edits", "kind: ratio, denominator: {plus: [edits], minus: [b]}")],
    ),
    "a measure taken off itself": ("measures.a.minus.0", [measure("{plus: [edits], minus: [a]}")]),
    "a quantile that is none": (
        "metrics.m.quantile",
        [metric(WAITED, f"kind: quantile, quantile: {q}") for q in ("0", "1", "-0.5", "95", ".nan", ".inf", "true", "'0.5'", "5e-324", "~")],
    ),
    "a timeout that is none": (
        "metrics.m.timeout",
        [metric(WAITED, f"kind: quantile, quantile: 0.5, timeout: {t}") for t in ("0", "-1", ".nan", ".inf", "'9'", "true", "1e300")],
    ),
    "a window that is none": (
        "metrics.m.window",
        [metric(more=f"kind: count, window: {w}") for w in ("-7d", "7", "0d", "7w", "7.5d", "''", "d", "99999d", '"7d\\n"', "[7d]", "true")],
    ),
    "a cap that is none": (
        "metrics.m.cap",
        [metric(more=f"kind: count, cap: {c}") for c in ("5", "{}", "[1]", "{at: 0}", "{at: .nan}", "{at: .inf}", "{at: 5e-324}", "{quantile: 1}", "{quantile: 0.4}", "{at: 1, quantile: 0.9}", "{of: 5}", "{at: true}")],
    ),
    "a cap of what takes none": (
        "metrics.m.cap",
        [metric(WAITED, "kind: quantile, quantile: 0.9, cap: {at: 1}"), metric(more="kind: conversion, cap: {at: 1}")],
    ),
    "a version that is none": (
        "metrics.m.version", [metric(more=f"kind: count, version: {v}") for v in ("0", "-1", "1.5", "'1'", "true", "~", "2020-01-01")],
    ),
    "a least number that is none": (
        "metrics.m.minimum", [metric(more=f"kind: count, minimum: {n}") for n in ("-1", "1.5", "'5'", "1" + "0" * 30, ".inf")],
    ),
    "a direction that is none": ("metrics.m.good", [metric(about="title: T, definition: D, good: ?".replace("?", g)) for g in ("better", "yes", "1", "~", "[up]")]),
    "words that are none": ("metrics.m.title", [metric(about=f"title: {t}, definition: D, good: up") for t in ("''", "5", "~", "[a]", "yes", "a" * 2_001)]),
    "an event that is none": (
        "metrics.m.numerator.fact",
        [metric(f"{{fact: {f}}}") for f in ("thumbwheel.tool.called.v1", "tool", '"tool.called; DROP TABLE events"', '"\\0"', "''")],
    ),
    "a field that is none": (
        "metrics.m.numerator.value",
        [metric(f"{{fact: tool.called, value: {f}}}") for f in ("nothing", '"duration_s) OR (1=1"', "outcome", "''")],
    ),
    "conditions that are none": (
        "metrics.m.numerator.where", [metric(f"{{fact: tool.called, where: {w}}}") for w in ("5", "x", "[5]", "[]", "true", "{1: ok}")],
    ),
    "a word that is none": (
        "metrics.m.numerator.where.outcome",
        [metric(f"{{fact: tool.called, where: {{outcome: {w}}}}}") for w in ("~", "2020-01-01", "[ok, 1]", "[]", "1", "true", "{min: 1}", "\"ok' OR 1=1\"")],
    ),
    "bounds that are none": (
        "metrics.m.numerator.where.duration_s",
        [metric(f"{{fact: tool.called, where: {{duration_s: {b}}}}}") for b in ("{}", "{min: 1, above: 2}", "{min: 5, max: 2}", "{above: 3, below: 2}", "true", "fast")],
    ),
    "a bound that is no number": (
        "metrics.m.numerator.where.duration_s.min",
        [metric(f"{{fact: tool.called, where: {{duration_s: {{min: {b}}}}}}}") for b in (".nan", ".inf", "'5'", "true", "1e300", "[1]")],
    ),
    "a segment that is none": (
        "segments.s", each(f"{HEAD}segments: {{s: ?}}", "5", "{title: T, fact: nope, field: x}", "{title: T, fact: turn.submitted, field: prompt}", "{title: T, fact: diff.proposed, field: \"x' OR 1\"}"),
    ),
    "another format": ("format", ["format: 2", "format: '1'", "format: ~", "metrics: {}"]),
    "a text that is no YAML": ("line 2", [f"{HEAD}\tmetrics: {{}}", f"{HEAD}metrics: [", f"{HEAD}? [a, b]\n: c", f"{HEAD}metrics: @x"]),
    "an object": ("line 2", each(f"{HEAD}metrics: ?", "!!python/name:os.system x", "!!python/object/apply:os.system [ls]", "!foo {a: 1}")),
    "a key that is there twice": ("line 2", [f"{HEAD}metrics: {{}}\nmeasures: {{}}\nmetrics: {{}}".replace(HEAD, "\nformat: 1\n", 1), f"{HEAD}measures: {{a: {SERVED}, a: {SERVED}}}"]),
    "an alias": ("line 3", [f"{HEAD}measures:\n  b: {{plus: &a [*a]}}", f"{HEAD}measures:\n  b: {{<<: &b {SERVED}, plus: [*b]}}"]),
    "a date or number that is none": ("line 2", [f"{HEAD}measures: {{a: 2020-13-45}}", f"{HEAD}measures: {{a: {'9' * 5_000}}}"]),
    "depth": ("line 2", [f"{HEAD}measures: {'[' * 100_000}", f"{HEAD}measures: {'{a: ' * 5_000}{'}' * 5_000}", measure("{plus: [" * 2_000 + "b" + "]}" * 2_000)]),
}  # fmt: skip


@pytest.mark.parametrize("family", FILES)
def test_whole_families_of_bad_metric_files_are_refused_with_file_and_field(
    family: str, tmp_path: Path
) -> None:
    field, texts = FILES[family]
    file = tmp_path / "mine.yaml"
    for text in texts:
        file.write_text(text)
        with pytest.raises(BadInput) as caught:
            load(tmp_path)
        named = [error.field for error in caught.value.errors]
        assert all(name.startswith(str(file)) for name in named), "the file is named"
        assert any(name.startswith(f"{file}: {field}") for name in named), (text[:200], named)
        assert "Traceback" not in str(caught.value)


def test_ten_lines_that_would_say_more_than_fits_in_memory_are_refused_at_once(
    tmp_path: Path,
) -> None:
    doubled = "".join(f"  a{n}: &a{n} {{plus: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 60))
    (tmp_path / "mine.yaml").write_text(f"{HEAD}measures:\n  a0: &a0 {SERVED}\n{doubled}")
    with pytest.raises(BadInput, match="an alias"):
        load(tmp_path)
    (tmp_path / "mine.yaml").write_text(HEAD + "# much\n" * 50_000)
    with pytest.raises(BadInput, match="split it"):
        load(tmp_path)


def test_a_name_is_given_once_over_all_files_and_the_ready_ones(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(metric())
    (tmp_path / "b.yml").write_text(metric())
    with pytest.raises(BadInput, match=r"b\.yml: metrics\.m: is in .*a\.yaml already"):
        load(tmp_path)
    (tmp_path / "b.yml").write_text(f"{HEAD}measures: {{edits: {SERVED}}}")
    with pytest.raises(BadInput, match=r"b\.yml: measures\.edits: is in library\.yaml already"):
        load(tmp_path)


def test_sql_in_the_words_of_a_definition_is_only_words(
    store: Store, tell: Tell, tmp_path: Path
) -> None:
    quoted = json.dumps(SQL)
    about = f"title: {quoted}, definition: {quoted}, good: up, unit: {quoted}"
    said = f"{{fact: feedback, where: {{name: [{quoted}, thumb]}}}}"
    (tmp_path / "mine.yaml").write_text(
        f"{HEAD}metrics:\n"
        f"  said: {{{about}, kind: count, numerator: {said}}}\n"
        f"  named: {{{about}, kind: feedback, name: {quoted}}}\n"
    )
    mine = [load(tmp_path).metrics[key] for key in ("said", "named")]
    made = World()
    made.expose(0, "u")
    made.serve(0, "u", "c1")
    made.thumb(1, "c1", 1)
    made.thumb(1, "c1", 1, **{"gen_ai.evaluation.name": SQL})
    made.tell(tell)
    moments = read(store, SPEC, mine, as_of=day(2)).arms["a"].moments
    assert (moments["said"].mean, moments["named"].mean) == (2, 1)
