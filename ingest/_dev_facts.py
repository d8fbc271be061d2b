"""What each report of Continue says, as the facts it stands for."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ingest._dev_event import ENVELOPE, DevEvent, Json, completion_id, measures
from ingest.events import CONTENT_FIELDS
from ingest.messages import to_parts

OTHER = "dev.continue."
"""Starts the type of what has no fact of ours; the event's own name follows."""

Told = tuple[str, dict[str, Any]]
"""The noun and verb of a fact, or a whole type that starts with OTHER, and its data."""


def told(event: DevEvent) -> list[Told]:
    """Each fact in its order; the first holds under `continue` what has no name of ours.

    At consent `metrics` nothing that a person or a model wrote is in them.
    """
    keeps = event.consent != "metrics"
    if event.name not in _TELLERS or _has_no_word(event):
        return [(OTHER + event.name, dict(event.data) if keeps else measures(event.data))]
    said = Said(event.data)
    facts = [
        (kind, {name: data[name] for name in data if keeps or name not in CONTENT_FIELDS})
        for kind, data in _TELLERS[event.name](event, said)
    ]
    if rest := said.rest if keeps else measures(said.rest):
        facts[0][1]["continue"] = rest
    return facts


def _has_no_word(event: DevEvent) -> bool:
    """A vote or a decision that says neither yes nor no."""
    word = {"chatFeedback": "feedback", "editOutcome": "accepted"}.get(event.name)
    return word is not None and not isinstance(event.data.get(word), bool)


class Said:
    """The fields of a report; remembers which of them have found their place in a fact."""

    def __init__(self, data: Json) -> None:
        self.data = data
        self._placed = set(ENVELOPE)

    def take(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        self._placed.add(name)
        return self.data.get(name)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        return value if isinstance(value, str) and value else None

    def model(self) -> dict[str, Any]:
        name = self.text("modelName") or self.text("model") or self.text("modelTitle")
        return {
            "gen_ai.provider.name": self.text("modelProvider") or self.text("provider"),
            "gen_ai.request.model": name,
        }

    @property
    def rest(self) -> Json:
        return {name: value for name, value in self.data.items() if name not in self._placed}


_Facts = Iterator[Told]


def _interaction(event: DevEvent, said: Said) -> _Facts:
    """One round of a model: Continue does not say which rounds make a turn."""
    data = _exchange(said) | _file(said)
    data["gen_ai.operation.name"] = "chat"
    data["completion.id"] = completion_id(event.data) or event.key
    yield "inference.completed", data


def _vote(event: DevEvent, said: Said) -> _Facts:
    """On the answer with this content; a vote without content stands for itself and joins none."""
    up = said.take("feedback")
    target = {"kind": "completion", "id": completion_id(event.data) or event.key}
    score = {
        "gen_ai.evaluation.name": "thumb",
        "gen_ai.evaluation.score.value": 1.0 if up else 0.0,
        "gen_ai.evaluation.score.label": "up" if up else "down",
    }
    yield "feedback.submitted", _exchange(said) | score | {"target": target}


def _completion(event: DevEvent, said: Said) -> _Facts:
    """Continue reports a completion once it was on screen and its fate is known."""
    identity = {"completion.id": said.text("completionId") or event.key}
    texts = {name: said.text(name) for name in ("prompt", "prefix", "suffix")}
    asked = [
        {"type": "text" if name == "prompt" else name, "content": text}
        for name, text in texts.items()
        if text
    ]
    completion = said.text("completion")
    took_ms = said.take("elapsed") if event.name == "nextEditOutcome" else said.take("time")
    shown = {
        "completion_u16": _u16(completion),
        "duration_s": _seconds(took_ms),
        "gen_ai.input.messages": [{"role": "user", "parts": asked}] if asked else None,
        "gen_ai.output.messages": _message("assistant", completion),
    }
    yield "completion.shown", identity | said.model() | _file(said) | shown
    accepted, aborted = said.take("accepted") is True, said.take("aborted") is True
    if accepted:
        size = {"accepted_u16_total": _u16(completion), "accepted_u16_delta": _u16(completion)}
        yield "completion.accepted", identity | size
    end = "accepted" if accepted else "superseded" if aborted else "ignored"
    yield "completion.ended", identity | {"end": end}


def _outcome(event: DevEvent, said: Said) -> _Facts:
    code = {"before": said.text("previousCode"), "after": said.text("newCode")}
    identity = {"diff.id": event.key}
    yield "diff.proposed", identity | _exchange(said) | _file(said) | code
    outcome = "accepted" if said.take("accepted") else "rejected"
    yield "diff.decided", identity | {"outcome": outcome}


def _tool(_event: DevEvent, said: Said) -> _Facts:
    succeeded = said.take("succeeded")
    called = {
        "gen_ai.tool.name": said.text("functionName"),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": said.text("toolCallId"),
        "approval": "denied" if said.take("accepted") is False else None,
        "outcome": ("ok" if succeeded else "error") if isinstance(succeeded, bool) else None,
        "gen_ai.tool.call.arguments": said.take("toolCallArgs"),
        "gen_ai.tool.call.result": said.take("output"),
    }
    yield "tool.called", called


def _tokens(_event: DevEvent, said: Said) -> _Facts:
    """Apart from inference.completed: Continue reports a chat's answer there already."""
    usage = {
        "gen_ai.usage.input_tokens": _count(said.take("promptTokens")),
        "gen_ai.usage.output_tokens": _count(said.take("generatedTokens")),
    }
    yield OTHER + "tokensGenerated", said.model() | usage


_TELLERS: Mapping[str, Callable[[DevEvent, Said], _Facts]] = {
    "autocomplete": _completion,
    "chatFeedback": _vote,
    "chatInteraction": _interaction,
    "editInteraction": _interaction,
    "editOutcome": _outcome,
    "nextEditOutcome": _completion,
    "tokensGenerated": _tokens,
    "toolUsage": _tool,
}


def _exchange(said: Said) -> dict[str, Any]:
    prompt, completion = said.text("prompt"), said.text("completion")
    return said.model() | {
        "gen_ai.conversation.id": said.text("sessionId"),
        "completion.id": completion_id(said.data),
        "prompt_u16": _u16(prompt),
        "completion_u16": _u16(completion),
        "gen_ai.input.messages": _message("user", prompt),
        "gen_ai.output.messages": _message("assistant", completion),
    }


def _message(role: str, text: str | None) -> list[dict[str, Any]] | None:
    return to_parts([{"role": role, "content": text}]) if text else None


def _file(said: Said) -> dict[str, Any]:
    path = said.text("filepath") or said.text("fileUri")
    extension = PurePosixPath(path).suffix.removeprefix(".") if path else None
    return {"file.path": path, "file.extension": extension or None}


def _u16(text: str | None) -> int | None:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 if text is not None else None


def _seconds(milliseconds: object) -> float | None:
    number = _count(milliseconds)
    return number / 1000 if number is not None else None


def _count(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 2**53 else None
