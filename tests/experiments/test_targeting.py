import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from experiments.targeting import Condition, loosens, targeted


def where(attribute: str, operator: str, value: Any) -> Condition:
    return Condition.model_validate({"attribute": attribute, "operator": operator, "value": value})


@pytest.mark.parametrize(
    ("operator", "bound", "meet", "fail"),
    [
        ("equals", "de", ["de"], ["DE", "fr", "", None, ["de"], {"de": 1}]),
        ("equals", 1, [1, 1.0], [True, "1", 2]),
        ("equals", True, [True], [1, "true", False]),
        ("not_equals", "de", ["fr", "", 1], ["de", None, ["fr"]]),
        ("in", ["de", 7], ["de", 7], ["7", "fr", None]),
        ("not_in", ["de", "fr"], ["it", 1, False], ["de", "fr", None, []]),
        ("at_least", 3, [3, 3.5, 10**400], [2.9, "3", True, None, float("nan")]),
        ("below", 3, [2.9, -1], [3, "2", False, None, float("nan")]),
        ("version_at_least", "1.9", ["1.9", "1.9.0", "1.10", "v2", "1.9.1-rc.1", "1.9+build"],
         ["1.9.0-rc.1", "1.8.99", "1", "newest", "", 2, None, "1.9.0.0.1", "9" * 5000]),
        ("version_below", "2.0.0", ["2.0.0-rc.1", "1.99", "0"], ["2", "2.0.1", "soon", 1]),
    ],
)  # fmt: skip
def test_a_condition_holds_for_what_it_says_and_types_count(
    operator: str, bound: Any, meet: list[Any], fail: list[Any]
) -> None:
    condition = where("x", operator, bound)
    assert [value for value in meet if not condition.holds(value)] == []
    assert [value for value in fail if condition.holds(value)] == []


def test_versions_are_ordered_as_semantic_versioning_orders_them() -> None:
    # Source: semver.org 2.0.0, section 11.
    order = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
             "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "2.0.0", "2.1.0", "2.1.1"]  # fmt: skip
    for (i, one), (j, other) in itertools.product(enumerate(order), repeat=2):
        assert where("v", "version_at_least", other).holds(one) == (i >= j), (one, other)
        assert where("v", "version_below", other).holds(one) == (i < j), (one, other)


def test_who_says_nothing_of_an_attribute_is_not_targeted_not_even_by_not_in() -> None:
    for operator, value in (("equals", 1), ("not_equals", 1), ("in", [1]), ("not_in", [1])):
        assert not targeted([where("plan", operator, value)], {})
    assert targeted([], {})
    assert targeted([where("a", "equals", 1), where("b", "below", 2)], {"a": 1, "b": 1})
    assert not targeted([where("a", "equals", 1), where("b", "below", 2)], {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("changes", "where_"),
    [
        ({"operator": "matches"}, "operator"),
        ({"attribute": "x' OR 1=1 --"}, "attribute"),
        ({"attribute": ""}, "attribute"),
        ({"value": [1]}, "value"),
        ({"operator": "in"}, "value"),
        ({"operator": "in", "value": []}, "value"),
        ({"operator": "at_least", "value": "3"}, "value"),
        ({"operator": "at_least", "value": True}, "value"),
        ({"operator": "below", "value": float("nan")}, "value"),
        ({"operator": "version_below", "value": "soon"}, "value"),
        ({"value": {"nested": 1}}, "value"),
        ({"value": "x" * 201}, "value"),
    ],
)
def test_a_condition_that_cannot_be_asked_names_its_field(
    changes: dict[str, Any], where_: str
) -> None:
    body = {"attribute": "country", "operator": "equals", "value": "de"} | changes
    with pytest.raises(ValidationError) as refused:
        Condition.model_validate(body)
    assert where_ in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "looser"),
    [
        ([("c", "equals", "de")], [("c", "in", ["de", "fr"])], True),
        ([("c", "in", ["de", "fr"])], [("c", "equals", "de")], False),
        ([("c", "in", ["de"])], [("c", "not_in", ["fr"])], True),
        ([("c", "not_in", ["de", "fr"])], [("c", "not_equals", "fr")], True),
        ([("c", "not_in", ["de"])], [("c", "not_in", ["de", "fr"])], False),
        ([("n", "at_least", 5)], [("n", "at_least", 3)], True),
        ([("n", "at_least", 3)], [("n", "at_least", 5)], False),
        ([("n", "below", 3)], [("n", "below", 5)], True),
        ([("v", "version_at_least", "1.10")], [("v", "version_at_least", "1.9")], True),
        ([("v", "version_at_least", "1.9")], [("v", "version_at_least", "1.10")], False),
        ([("n", "equals", 4)], [("n", "below", 5)], True),
        ([("a", "equals", 1), ("b", "equals", 1)], [("a", "equals", 1)], True),
        ([("a", "equals", 1)], [("a", "equals", 1), ("b", "equals", 1)], False),
        ([("a", "equals", 1)], [], True),
        ([], [("a", "equals", 1)], False),
        ([("a", "equals", 1)], [("b", "equals", 1)], False),
    ],
)
def test_looser_targeting_is_told_from_tighter(
    old: list[tuple[str, str, Any]], new: list[tuple[str, str, Any]], *, looser: bool
) -> None:
    assert loosens([where(*each) for each in old], [where(*each) for each in new]) is looser


scalars = st.one_of(st.booleans(), st.integers(0, 4), st.sampled_from(["1.0", "1.2", "x"]))
conditions = st.one_of(
    st.builds(where, st.just("a"), st.sampled_from(["equals", "not_equals"]), scalars),
    st.builds(where, st.just("a"), st.sampled_from(["in", "not_in"]),
              st.lists(scalars, min_size=1, max_size=4)),
    st.builds(where, st.just("a"), st.sampled_from(["at_least", "below"]), st.integers(0, 4)),
    st.builds(where, st.just("a"), st.sampled_from(["version_at_least", "version_below"]),
              st.sampled_from(["1.0", "1.1", "1.2-rc.1"])),
)  # fmt: skip


@given(st.lists(conditions, max_size=3), st.lists(conditions, max_size=3), scalars)
def test_nobody_drops_out_where_targeting_is_said_to_be_looser(
    old: list[Condition], new: list[Condition], value: Any
) -> None:
    if loosens(old, new) and targeted(old, {"a": value}):
        assert targeted(new, {"a": value})
