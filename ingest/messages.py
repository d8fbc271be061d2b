"""Chat messages in the form OpenTelemetry gives them (role and parts), and back.

Facts hold parts, engines and trainers want OpenAI messages; `to_messages(to_parts(m))` is `m` up
to content given as a list of one text. What neither names is carried along as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def to_parts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """OpenAI messages as `gen_ai.input.messages` has them."""
    return [_with_parts(message) for message in messages]


def to_messages(parts: Sequence[Message]) -> list[dict[str, Any]]:
    """`gen_ai.*.messages` as OpenAI messages."""
    return [_message(each) for each in parts]


def _with_parts(message: Message) -> dict[str, Any]:
    rest = {k: v for k, v in message.items() if k not in ("content", "tool_calls", "tool_call_id")}
    content = message.get("content")
    if message.get("tool_call_id") is not None:
        part = {"type": "tool_call_response", "id": message["tool_call_id"], "response": content}
        return rest | {"parts": [part]}
    parts: list[Any] = []
    if isinstance(content, str):
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += [_content_part(part) for part in content]
    parts += [
        {
            "type": "tool_call",
            "id": call.get("id"),
            "name": call["function"].get("name"),
            "arguments": call["function"].get("arguments"),
        }
        for call in message.get("tool_calls") or ()
    ]
    return rest | {"parts": parts}


def _content_part(part: Any) -> Any:  # noqa: ANN401 - whatever a client put there
    if isinstance(part, Mapping) and part.get("type") == "text":
        return {"type": "text", "content": part.get("text", "")}
    return part


def _message(each: Message) -> dict[str, Any]:
    message = {k: v for k, v in each.items() if k not in ("parts", "finish_reason")}
    parts = each.get("parts") or []
    texts = [part["content"] for part in parts if part.get("type") == "text"]
    calls = [part for part in parts if part.get("type") == "tool_call"]
    answers = [part for part in parts if part.get("type") == "tool_call_response"]
    other = [part for part in parts if part.get("type") not in _KNOWN_PARTS]
    if answers:
        return message | {"tool_call_id": answers[0]["id"], "content": answers[0]["response"]}
    if other or len(texts) > 1:
        message["content"] = [
            {"type": "text", "text": part["content"]} if part.get("type") == "text" else part
            for part in parts
            if part.get("type") != "tool_call"
        ]
    else:
        message["content"] = texts[0] if texts else None
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls
        ]
    return message


_KNOWN_PARTS = ("text", "tool_call", "tool_call_response")
