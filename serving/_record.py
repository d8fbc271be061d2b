"""What one completion was: built while it streams, turned into a fact when it ends."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from ingest.events import SCHEMA_URI, Consent
from ingest.intake import MAX_EVENT_BYTES
from ingest.messages import to_parts
from serving.route import Choice

SOURCE = "/serving"
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "stop",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "n",
)  # fmt: skip
_SPOKEN = ("content", "reasoning_content", "reasoning", "refusal")
_MAX_NAME = 800
_MAX_SAMPLING = 4_000
MAX_DEPTH = 200
"""Of nested lists and objects; every part that a fact goes through can read this much."""
_MAX_CONTENT = MAX_EVENT_BYTES - 20_000
"""Leaves room for the rest of the fact, which is kept whatever the content weighs."""

Outcome = Literal["ok", "error", "cancelled"]


@dataclass(frozen=True)
class Context:
    """Who asked, in which conversation, under which consent."""

    completion: str
    user: str
    organization: str
    conversation: str
    turn: str
    consent: Consent
    simulated: bool
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Recording:
    """Listens to an engine's answer. Reading what it hears never fails: the client comes first."""

    context: Context
    choice: Choice
    request: Mapping[str, Any]
    outcome: Outcome = "error"
    error_type: str | None = None
    began: float = field(default_factory=time.perf_counter)
    _first: float | None = None
    _message: dict[str, Any] = field(default_factory=lambda: {"role": "assistant"})
    _spoken: dict[str, list[str]] = field(default_factory=dict)
    _calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    _seen: dict[str, str | None] = field(default_factory=dict)
    _usage: Mapping[str, Any] = field(default_factory=dict)
    _lists: dict[str, list[Any]] = field(default_factory=dict)

    def whole(self, answer: Mapping[str, Any]) -> None:
        """A non-streamed answer."""
        self._common(answer)
        for choice in _first_choice(answer):
            message = choice.get("message")
            if isinstance(message, Mapping):
                self._message = dict(message)
            self._ended(choice)

    def chunk(self, chunk: Mapping[str, Any]) -> None:
        """One streamed piece."""
        self._common(chunk)
        for choice in _first_choice(chunk):
            delta = choice.get("delta")
            if isinstance(delta, Mapping):
                self._delta(delta)
            self._ended(choice)

    def failed(self, reason: str) -> None:
        """The answer is no answer, or not all of it."""
        self.outcome, self.error_type = "error", reason

    @property
    def finished(self) -> bool:
        """The engine said why it stopped."""
        return bool(self._seen.get("finish_reason"))

    def _delta(self, delta: Mapping[str, Any]) -> None:
        if self._first is None and any(delta.get(name) for name in (*_SPOKEN, "tool_calls")):
            self._first = time.perf_counter()
        for name in _SPOKEN:
            if isinstance(delta.get(name), str):
                self._spoken.setdefault(name, []).append(delta[name])
        for call in _items(delta.get("tool_calls")):
            empty = {"id": None, "type": "function", "function": {"name": None, "arguments": ""}}
            known = self._calls.setdefault(_count(call.get("index")) or 0, empty)
            function = call.get("function")
            said = function if isinstance(function, Mapping) else {}
            known["id"] = _name(call.get("id")) or known["id"]
            known["function"]["name"] = _name(said.get("name")) or known["function"]["name"]
            arguments = said.get("arguments")
            if isinstance(arguments, str):
                known["function"]["arguments"] += arguments

    def _common(self, answer: Mapping[str, Any]) -> None:
        for name in ("id", "model"):
            self._seen[name] = _name(answer.get(name)) or self._seen.get(name)
        if isinstance(answer.get("usage"), Mapping):
            self._usage = answer["usage"]
        if answer.get("error"):
            self.failed("engine")
        if ids := _token_ids(answer.get("prompt_token_ids")):
            self._lists["prompt_token_ids"] = ids

    def _ended(self, choice: Mapping[str, Any]) -> None:
        if reason := _name(choice.get("finish_reason")):
            self._seen["finish_reason"] = reason
        if ids := _token_ids(choice.get("token_ids")):
            self._lists.setdefault("token_ids", []).extend(ids)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping) and isinstance(logprobs.get("content"), list):
            values = [_number(each.get("logprob")) for each in _items(logprobs["content"])]
            self._lists.setdefault("logprobs", []).extend(values)

    def fact(self) -> dict[str, Any]:
        """`completion.finished`, with content only where consent allows it."""
        duration = time.perf_counter() - self.began
        assignment = self.choice.exposure.assignment if self.choice.exposure else None
        output = _count(self._usage.get("completion_tokens"))
        data = {
            "completion.id": self.context.completion,
            "gen_ai.conversation.id": self.context.conversation,
            "turn.id": self.context.turn,
            "checkpoint": self.choice.checkpoint,
            "route": self.choice.route,
            "reason": self.choice.reason,
            "experiment": assignment and assignment.experiment,
            "version": assignment and assignment.version,
            "variant": assignment and assignment.variant,
            "assignment": assignment and assignment.assignment_id,
            "outcome": self.outcome,
            "error.type": self.error_type,
            "stream": bool(self.request.get("stream")),
            "gen_ai.response.id": self._seen.get("id"),
            "gen_ai.response.model": self._seen.get("model"),
            "gen_ai.response.finish_reasons": [r]
            if (r := self._seen.get("finish_reason"))
            else None,
            "gen_ai.usage.input_tokens": _count(self._usage.get("prompt_tokens")),
            "gen_ai.usage.output_tokens": output,
            "time_to_first_token_s": self._first and self._first - self.began,
            "duration_s": duration,
            "tokens_per_s": output / duration if output else None,
            "sampling": self._sampling(),
            "tools_sha256": _digest(self.request.get("tools")),
            "simulated": self.context.simulated or None,
            **(self._content() if self.context.consent != "metrics" else {}),
        }
        return envelope(
            self.context, f"{self.context.completion}-finished", "completion.finished", data
        ) | {"subject": self.context.completion}

    def _sampling(self) -> dict[str, Any]:
        sampling = {k: self.request[k] for k in _SAMPLING if k in self.request}
        size = len(json.dumps(sampling))
        return sampling if size < _MAX_SAMPLING else {"omitted": f"{size} bytes"}

    def _content(self) -> dict[str, Any]:
        message = self._message | {name: "".join(said) for name, said in self._spoken.items()}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        spoke = len(message) > 1
        content = {
            "gen_ai.input.messages": to_parts(_items(self.request.get("messages"))),
            "gen_ai.output.messages": to_parts([message]) if spoke else None,
            "gen_ai.tool.definitions": self.request.get("tools"),
            **self._lists,
        }
        if deeper_than(message, MAX_DEPTH):
            return {"content_omitted": f"nested more than {MAX_DEPTH} deep"}
        text = json.dumps(content)
        if len(text) >= _MAX_CONTENT:
            return {"content_omitted": f"{len(text)} bytes"}
        # An engine's Infinity (a log-prob of nothing) is no JSON: it is kept as null.
        return dict(json.loads(text, parse_constant=lambda _: None))


def exposed(context: Context, choice: Choice) -> dict[str, Any] | None:
    """`experiment.exposed` for an experiment's choice; the same unit, arm and reason is one fact."""
    if choice.exposure is None:
        return None
    assignment = choice.exposure.assignment
    data = {
        "assignment": assignment.assignment_id,
        "experiment": assignment.experiment,
        "version": assignment.version,
        "unit_type": choice.exposure.unit_type,
        "unit": choice.exposure.unit,
        "assigned": assignment.variant,
        "received": assignment.variant,
        "propensity": assignment.propensity,
        "reason": assignment.reason,
        "checkpoint": choice.checkpoint,
        "simulated": context.simulated or None,
    }
    fact = f"{assignment.assignment_id}-{assignment.variant}"
    if assignment.reason != "randomised":
        # A unit that is drawn after a look at the same arm is exposed then, not before.
        fact += f"-{assignment.reason}"
    return envelope(context, fact, "experiment.exposed", data) | {"consent": "metrics"}


def envelope(context: Context, id: str, type: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": id,
        "source": SOURCE,
        "type": f"thumbwheel.{type}.v1",
        "time": datetime.now(UTC).isoformat(),
        "dataschema": SCHEMA_URI,
        "consent": context.consent,
        "partitionkey": context.conversation or context.user or id,
        **{k: v for k in ("user", "organization") if (v := getattr(context, k))},
        "data": {name: value for name, value in data.items() if value not in (None, "", {})},
    }


def _items(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _first_choice(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The answer that counts, where a client asked for several."""
    choices = _items(answer.get("choices"))
    return [each for each in choices if not _count(each.get("index"))][:1]


def deeper_than(value: object, limit: int) -> bool:
    """Whether lists and objects nest more than `limit` deep."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return limit == 0 or any(deeper_than(each, limit - 1) for each in inner)


def _token_ids(value: object) -> list[int]:
    whole = isinstance(value, list) and all(isinstance(each, int) for each in value)
    return value if whole and isinstance(value, list) else []


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def _name(value: object) -> str | None:
    return value[:_MAX_NAME] if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 1 << 63 else None


def _digest(tools: object) -> str | None:
    if not tools:
        return None
    return sha256(json.dumps(tools, sort_keys=True).encode()).hexdigest()
