"""Chat messages in the form OpenTelemetry gives them (role and parts), and back.

Facts hold parts, engines and trainers want OpenAI messages; `to_messages(to_parts(m))` is `m`, up
to content given as a list of one text, and `"content": None` where a message has none. Neither
direction fails on odd input: what neither form names is carried along as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]

_AS_SENT = "as_sent"
"""Holds the client's own form where the parts would lose some of it."""
_TRANSLATED = ("content", "tool_calls", "tool_call_id")
_KNOWN_PARTS = ("text", "tool_call", "tool_call_response")


def to_parts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """OpenAI messages as `gen_ai.input.messages` has them."""
    return [_with_parts(message) for message in messages]


def to_messages(parts: Sequence[Message]) -> list[dict[str, Any]]:
    """`gen_ai.*.messages` as OpenAI messages."""
    return [_message(each) for each in parts]


def _with_parts(message: Message) -> dict[str, Any]:
    rest = {k: v for k, v in message.items() if k not in _TRANSLATED}
    content = message.get("content")
    if message.get("tool_call_id") is not None:
        part = {"type": "tool_call_response", "id": message["tool_call_id"], "response": content}
        return rest | {"parts": [part]}
    parts: list[Any] = []
    if isinstance(content, str):
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += [_content_part(part) for part in content]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        parts += [_call_part(call) for call in calls]
    return rest | {"parts": parts}


def _content_part(part: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a client put there
    if not isinstance(part, dict):
        return {"type": "other", _AS_SENT: part}
    if part.get("type") == "text" and isinstance(part.get("text"), str) and "content" not in part:
        rest = {k: v for k, v in part.items() if k != "text"}
        return rest | {"content": part["text"]}
    if part.get("type") in _KNOWN_PARTS or _AS_SENT in part:
        return {"type": "other", _AS_SENT: part}
    return part


def _call_part(call: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    said = call if isinstance(call, Mapping) else {}
    function = said.get("function")
    function = function if isinstance(function, Mapping) else {}
    part = {
        "type": "tool_call",
        "id": said.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }
    return part if _call(part) == call else part | {_AS_SENT: call}


def _message(each: Message) -> dict[str, Any]:
    message = {k: v for k, v in each.items() if k not in ("parts", "finish_reason")}
    parts = [part for part in each.get("parts") or () if isinstance(part, Mapping)]
    kinds = [part.get("type") for part in parts]
    if "tool_call_response" in kinds:
        answer = parts[kinds.index("tool_call_response")]
        return message | {"tool_call_id": answer.get("id"), "content": answer.get("response")}
    content = [_content(part) for part in parts if part.get("type") != "tool_call"]
    message["content"] = _shortest(content)
    if "tool_call" in kinds:
        message["tool_calls"] = [_call(part) for part in parts if part.get("type") == "tool_call"]
    return message


def _content(part: Message) -> Any:  # noqa: ANN401 - as above
    if _AS_SENT in part:
        return part[_AS_SENT]
    if part.get("type") == "text" and "content" in part:
        rest = {k: v for k, v in part.items() if k != "content"}
        return rest | {"text": part["content"]}
    return dict(part)


def _shortest(content: list[Any]) -> Any:  # noqa: ANN401 - as above
    """Nothing, a text, or the list."""
    if len(content) == 1 and isinstance(content[0], dict) and content[0].keys() == {"type", "text"}:
        return content[0]["text"]
    return content or None


def _call(part: Message) -> Any:  # noqa: ANN401 - as above
    if _AS_SENT in part:
        return part[_AS_SENT]
    return {
        "id": part.get("id"),
        "type": "function",
        "function": {"name": part.get("name"), "arguments": part.get("arguments")},
    }
