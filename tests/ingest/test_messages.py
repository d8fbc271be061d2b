import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingest.messages import to_messages, to_parts

_text = st.text()
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_call = st.fixed_dictionaries({
    "id": _text, "type": st.just("function"),
    "function": st.fixed_dictionaries({"name": _text, "arguments": _text}),
})  # fmt: skip
_custom_call = st.fixed_dictionaries(
    {"id": _text, "type": st.just("custom"), "custom": _json}
) | st.fixed_dictionaries({"index": st.integers(), "function": _json})
_part = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": _text}),
    st.fixed_dictionaries({"type": st.just("text"), "text": _text, "cache_control": _json}),
    st.fixed_dictionaries({"type": st.just("image_url"), "image_url": _json}),
    st.fixed_dictionaries({"type": st.sampled_from(["text", "tool_call", "tool_call_response"])}),
    st.fixed_dictionaries({"type": st.just("text"), "content": _text, "as_sent": _text}),
    _text,
)
_spoken = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user"]), "content": _text | st.lists(_part, min_size=2)},
    optional={"name": _text},
)
_assistant = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | _text},
    optional={
        "tool_calls": st.lists(_call | _custom_call, min_size=1),
        "reasoning_content": _text, "refusal": st.none() | _text,
    },
)  # fmt: skip
_tool = st.fixed_dictionaries(
    {"role": st.just("tool"), "tool_call_id": _text, "content": _text | st.lists(_part)}
)


@given(st.lists(_spoken | _assistant | _tool))
def test_messages_come_back_from_their_parts_as_they_were(messages: list[dict[str, Any]]) -> None:
    parts = json.loads(json.dumps(to_parts(messages)))
    assert to_messages(parts) == messages


@given(st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), _json)))
def test_no_message_is_too_odd_for_a_fact(messages: list[dict[str, Any]]) -> None:
    to_messages(to_parts(messages))


def test_parts_are_named_as_opentelemetry_has_them() -> None:
    function = {"name": "run", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function}
    asked: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    text = {"type": "text", "content": "hi"}
    called = {"type": "tool_call", "id": "c1", "name": "run", "arguments": "{}"}
    answered = {"type": "tool_call_response", "id": "c1", "response": "done"}
    expected = [("user", text), ("assistant", called), ("tool", answered)]
    assert to_parts(asked) == [{"role": role, "parts": [part]} for role, part in expected]


def test_one_text_in_a_list_becomes_that_text_and_no_content_becomes_none() -> None:
    listed: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert to_messages(to_parts([listed])) == [{"role": "user", "content": "hi"}]
    assert to_messages(to_parts([{"role": "assistant"}])) == [
        {"role": "assistant", "content": None}
    ]


def test_parts_that_others_wrote_do_not_fail() -> None:
    foreign: list[dict[str, Any]] = [{"role": "x", "parts": [{"type": "tool_call"}, {"type": "text"}, 3, {"type": "r"}]},
               {"role": "y"}, {"role": "z", "parts": [{"type": "tool_call_response"}]}]  # fmt: skip
    first, second, third = to_messages(foreign)
    assert first["content"] == [{"type": "text"}, {"type": "r"}]
    assert second["content"] is None
    assert third == {"role": "z", "tool_call_id": None, "content": None}
