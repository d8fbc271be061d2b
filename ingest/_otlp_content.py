"""What a span of a model holds of prompts and answers, in its attributes and its events."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ingest.messages import to_parts

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_STRUCTURED = (INPUT, OUTPUT, "gen_ai.system_instructions", "gen_ai.tool.definitions")
_DETAILS = "gen_ai.client.inference.operation.details"
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CHOICE = "gen_ai.choice"
_PROMPT, _COMPLETION = "gen_ai.content.prompt", "gen_ai.content.completion"
_EVENTS = frozenset({*_ROLES, _CHOICE, _PROMPT, _COMPLETION, _DETAILS})
_OF_A_MESSAGE = ("content", "role", "tool_calls", "finish_reason")

# Texts and lists of a span that say nothing of what a person or a model wrote; numbers never do.
_MEASURES = frozenset(
    {
        "gen_ai.agent.id", "gen_ai.agent.name", "gen_ai.agent.version", "gen_ai.conversation.id",
        "gen_ai.data_source.id", "gen_ai.evaluation.name", "gen_ai.evaluation.score.label",
        "gen_ai.openai.request.service_tier", "gen_ai.openai.response.service_tier",
        "gen_ai.openai.response.system_fingerprint", "gen_ai.operation.name",
        "gen_ai.output.type", "gen_ai.prompt.name",
        "gen_ai.provider.name", "gen_ai.request.encoding_formats", "gen_ai.request.model",
        "gen_ai.response.finish_reasons", "gen_ai.response.id", "gen_ai.response.model",
        "gen_ai.system", "gen_ai.token.type", "gen_ai.tool.call.id", "gen_ai.tool.name",
        "gen_ai.tool.type", "gen_ai.workflow.name",
    }
)  # fmt: skip


class Happening(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Mapping[str, Any]
    unix_nano: int


class Held(NamedTuple):
    attributes: dict[str, Any]
    was_cut: bool
    """Whether content was there and is left out."""


def without_content(attributes: Mapping[str, Any], events: Sequence[Happening]) -> Held:
    """The attributes of `gen_ai.*` that are no content."""
    kept = {
        name: value
        for name, value in attributes.items()
        if isinstance(value, int | float) or name in _MEASURES
    }
    told = any(event.name in _EVENTS for event in events)
    return Held(kept, told or len(kept) < len(attributes))


def with_content(attributes: Mapping[str, Any], events: Sequence[Happening]) -> Held:
    """All attributes, messages as messages; what only events tell is beside them."""
    held = _told_by(events) | dict(attributes)
    for name in _STRUCTURED:
        if name in held:
            held[name] = _structured(held[name])
    return Held(held, was_cut=False)


def _told_by(events: Sequence[Happening]) -> dict[str, Any]:
    asked: list[dict[str, Any]] = []
    answered: list[dict[str, Any]] = []
    details: dict[str, Any] = {}
    for event in events:
        if event.name == _DETAILS:
            details |= {
                name: event.attributes[name] for name in _STRUCTURED if name in event.attributes
            }
        elif event.name == _PROMPT:
            asked += _legacy(event.attributes.get("gen_ai.prompt"), "user")
        elif event.name == _COMPLETION:
            answered += _legacy(event.attributes.get("gen_ai.completion"), "assistant")
        elif event.name == _CHOICE:
            answered.append(_message(event.attributes, "assistant"))
        elif event.name in _ROLES:
            asked.append(_message(event.attributes, _ROLES[event.name]))
    told = {INPUT: to_parts(asked), OUTPUT: to_parts(answered)}
    return {name: messages for name, messages in told.items() if messages} | details


def _legacy(value: object, role: str) -> list[dict[str, Any]]:
    """Messages that one attribute holds, as JSON of them or as the bare text."""
    found = _structured(value)
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        return [{"role": role} | each for each in found]
    return [{"role": role, "content": value}] if value else []


def _message(attributes: Mapping[str, Any], role: str) -> dict[str, Any]:
    """One message of OpenAI's form, from an event that is about it."""
    message: dict[str, Any] = {"role": role}
    for source in (
        attributes,
        _structured(attributes.get("gen_ai.event.content")),
        _structured(attributes.get("message")),
    ):
        if isinstance(source, Mapping):
            message |= {name: source[name] for name in _OF_A_MESSAGE if name in source}
            nested = _structured(source.get("message"))
            if isinstance(nested, Mapping):
                message |= {name: nested[name] for name in _OF_A_MESSAGE if name in nested}
    if "tool_calls" in message:
        message["tool_calls"] = _structured(message["tool_calls"])
    if role == "tool" and attributes.get("id"):
        message["tool_call_id"] = attributes["id"]
    return message


def _structured(value: object) -> Any:  # noqa: ANN401 - any JSON
    """What a text of JSON says, where it is one: attributes of spans are often such texts."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return value


def _refuse(name: str) -> None:
    raise ValueError(name)
