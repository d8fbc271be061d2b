"""Whole families of bad plans and layers, over HTTP: refused at save, with the field named."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.experiments.test_api import plan, post, put
from tests.running import Running

SQL: tuple[str, ...] = (
    "x'; DROP TABLE events; --",
    "a') OR 1=1",
    "${jndi:x}",
    "\x00",
    "\ud800",
    "é",
    "A",
    " ",
    "",
)
NOT_NAMES: tuple[Any, ...] = (*SQL, None, True, 1, 1.5, [], {}, ["a"], "a" * 101)
NONE: tuple[Any, ...] = (None, "x", [], {})
NOT_NUMBERS: tuple[Any, ...] = (None, "x", [], {}, [1], -1, 1e308, 10**400)


def arms(**changes: Any) -> list[dict[str, Any]]:
    return [{"key": "a", "checkpoint": "m1"} | changes, {"key": "b", "checkpoint": "m2"}]


def condition(**changes: Any) -> list[dict[str, Any]]:
    return [{"attribute": "x", "operator": "equals", "value": 1} | changes]


def rail(**changes: Any) -> dict[str, Any]:
    return {"guardrails": [{"metric": "undo_rate", "margin": 0.1} | changes]}


FAMILIES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "a key that is no name": ("key", [{"key": each} for each in NOT_NAMES]),
    "a layer that is no name": ("layer", [{"layer": each} for each in NOT_NAMES]),
    "an arm without a name": ("variants", [{"variants": arms(key=each)} for each in NOT_NAMES]),
    "a segment that is no name": ("segments", [{"segments": [each]} for each in NOT_NAMES]),
    "an attribute that is no name": (
        "targeting", [{"targeting": condition(attribute=each)} for each in NOT_NAMES],
    ),
    "a metric that is none": (
        "metrics", [{"metrics": {"goals": [each]}} for each in (*NOT_NAMES, "joy")],
    ),
    "a guardrail of no metric": (
        "metrics", [{"metrics": rail(metric=each)} for each in (*NOT_NAMES, "joy")],
    ),
    "a margin that is none": ("metrics", [{"metrics": rail(margin=each)} for each in (*NONE, -1)]),
    "no goals": ("metrics", [{"metrics": {"goals": each}} for each in (*NONE, "thumbs_net")]),
    "weights": ("variants", [{"variants": arms(weight=each)} for each in (*NOT_NUMBERS, 0.5, 1e-9)]),
    "weights that are all 0": ("variants", [{"variants": [each | {"weight": 0} for each in arms()]}]),
    "arms": ("variants", [{"variants": each} for each in (*NONE, [1, 2], arms()[:1], arms() * 11)]),
    "arms of one name": ("variants", [{"variants": arms(key="b")}]),
    "an error rate that is none": ("alpha", [{"alpha": each} for each in (*NOT_NUMBERS, 0, 5e-324, 0.5, 1, 1.5)]),
    "a coverage that is none": ("coverage", [{"coverage": each} for each in (*NOT_NUMBERS, 0, 1.01, 1e-9)]),
    "room below the coverage": ("ramp_to", [{"coverage": 0.5, "ramp_to": each} for each in (0.4, 0, 2)]),
    "units": ("planned_units", [{"planned_units": each} for each in (*NONE, -1, 0, 1, 2.5, 10**400)]),
    "days": ("min_days", [{"min_days": each} for each in (None, -1, 366, 1.5, "x", 10**400)]),
    "a reading that is none": ("reading", [{"reading": each} for each in NOT_NAMES]),
    "a unit that is none": ("unit", [{"unit": each} for each in ("turn", *NOT_NAMES)]),
    "an action that is none": ("on_harm", [{"on_harm": each} for each in NOT_NAMES]),
    "an operator that is none": (
        "targeting", [{"targeting": condition(operator=each)} for each in ("like", *NOT_NAMES)],
    ),
    "a value that does not fit": (
        "targeting",
        [{"targeting": condition(operator=how, value=value)} for how, value in (
            ("equals", [1]), ("equals", None), ("equals", {}), ("in", 1), ("in", []),
            ("at_least", "1"), ("at_least", True), ("version_at_least", 1), ("version_below", "x"),
            ("equals", "a" * 201), ("in", [1] * 1_001),
        )],
    ),
    "more conditions than anybody reads": ("targeting", [{"targeting": condition() * 21}]),
    "hashing": (
        "hashing",
        [{"hashing": each} for each in (
            {"algorithm": "md5"}, {"seed": "of ours"}, {"algorithm": "growthbook-v2", "seed": ""},
            {"algorithm": "growthbook-v2", "seed": 1}, {"salt": "x"}, "murmur3-32",
        )],
    ),
    "an unknown field": ("surprise", [{"surprise": each} for each in NONE]),
    "an unknown field of an arm": ("variants", [{"variants": arms(surprise=1)}]),
    "an unknown field of a condition": ("targeting", [{"targeting": condition(surprise=1)}]),
    "an unknown field of a guardrail": ("metrics", [{"metrics": rail(surprise=1)}]),
}  # fmt: skip


def sent(running: Running, body: Any, path: str = "experiments") -> tuple[int, dict[str, Any]]:
    """Its bytes as Python has them: NaN, lone surrogates and all."""
    headers = {"content-type": "application/json"}
    answer = running.http.post(f"/v1/{path}", content=json.dumps(body), headers=headers)
    return answer.status_code, answer.json()


def test_whole_families_of_bad_plans_are_refused_at_save_with_the_field_named(
    running: Running,
) -> None:
    for family, (field, changes) in FAMILIES.items():
        for change in changes:
            status, problem = sent(running, plan(**change))
            assert status == 422, (family, change, problem)
            named = [error["field"] for error in problem["errors"]]
            assert any(each.split(".")[0] == field for each in named), (family, change, named)
    assert running.http.get("/v1/experiments").json() == {"experiments": []}


NO_PLANS = (
    "",
    "{",
    "nul",
    '"x"',
    "[]",
    "1e999",
    '{"key": NaN}',
    "[" * 50_000,
    '{"a":' * 50_000,
    "\x00",
)


def test_what_is_no_plan_at_all_is_refused_and_not_a_failure(running: Running) -> None:
    headers = {"content-type": "application/json"}
    for body in NO_PLANS:
        answer = running.http.post("/v1/experiments", content=body, headers=headers)
        assert answer.status_code in (400, 422), (body[:20], answer.text)
        assert "Traceback" not in answer.text


def test_a_number_that_is_none_is_refused_in_every_field(running: Running) -> None:
    for number in (float("nan"), float("inf"), -float("inf")):
        for field in ("alpha", "coverage", "planned_units", "min_days"):
            status, problem = sent(running, plan() | {field: number})
            assert (status, problem["errors"][0]["field"]) == (422, field)
        assert sent(running, plan(variants=arms(weight=number)))[0] == 422
        assert sent(running, plan(metrics=rail(margin=number)))[0] == 422
        assert sent(running, plan(targeting=condition(operator="below", value=number)))[0] == 422


def test_layers_in_a_circle_and_holdouts_that_are_none_are_refused(running: Running) -> None:
    for name, within in (("a", None), ("b", "a"), ("c", "b")):
        assert put(running, f"layers/{name}", {"unit": "user", "within": within})[0] == 200
    for inner in ("a", "b", "c"):
        status, problem = put(running, "layers/a", {"unit": "user", "within": inner})
        assert (status, problem["errors"][0]["field"]) == (422, "within"), inner
    for share in (0, -0.1, 0.51, 1, "x", None):
        held = {"unit": "user", "holdout": {"share": share, "checkpoint": "m1"}}
        status, problem = put(running, "layers/d", held)
        assert status == 422
        assert "share" in problem["errors"][0]["field"]
    assert [each["key"] for each in running.http.get("/v1/layers").json()["layers"]] == ["a", "b", "c"]  # fmt: skip


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from((*SQL, "thumbs_net", "m1", "growthbook-v1", "user", "equals", "1.2.3"))
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = ("unit", "variants", "layer", "coverage", "ramp_to", "targeting", "segments", "metrics",
          "reading", "alpha", "min_days", "on_harm", "sticky", "hashing")  # fmt: skip


def test_no_plan_whatever_it_says_is_a_failure_of_the_server(running: Running) -> None:
    count = 0

    @settings(max_examples=150)
    @given(
        changes=st.dictionaries(st.sampled_from(FIELDS), ANYTHING, min_size=1, max_size=3),
        arm=st.dictionaries(st.sampled_from(("key", "checkpoint", "weight")), ANYTHING, max_size=2),
    )
    def try_it(changes: dict[str, Any], arm: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        status, answer = sent(running, plan(f"e{count}", variants=arms(**arm)) | changes)
        assert status in (201, 422), answer
        if status == 422:
            assert answer["errors"], "a field is named"
            return
        assert running.http.get(f"/v1/experiments/e{count}/report").status_code == 200
        assert sent(running, None, f"experiments/e{count}/start")[0] in (200, 409)
        assert sent(running, None, f"experiments/e{count}/stop")[0] in (200, 409)

    try_it()
    assert post(running, "assignments", {"unit": {"user": "u"}})[0] == 200
