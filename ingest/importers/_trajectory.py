"""A trajectory of mini-swe-agent as messages and actions.

Two forms: a bare list of messages, and (later versions) an object with `messages` and `info`.
Actions are tool calls, or fenced `mswea_bash_command` or `bash` blocks in an answer's text.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ingest.importers._reading import NotAHistory, SourceText

_ACTION = re.compile(r"```(?:mswea_bash_command|bash)[ \t]*\n(.*?)\n?```", re.DOTALL)
_RETURNCODE = re.compile(r"<returncode>\s*(-?[0-9]{1,10})\s*</returncode>")
_RESULT_ROLES = frozenset({"user", "tool", "exit"})
ROLES = _RESULT_ROLES | {"system", "assistant"}


@dataclass(frozen=True)
class Message:
    ordinal: int
    role: str
    text: str
    raw: Mapping[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        return as_object(self.raw.get("extra"))

    @property
    def time(self) -> str | None:
        """RFC 3339, where the message carries Unix seconds."""
        stamp = as_number(self.raw.get("timestamp", self.extra.get("timestamp")))
        if stamp is None:
            return None
        try:
            return datetime.fromtimestamp(stamp, UTC).isoformat()
        except (OverflowError, OSError, ValueError):  # a year that no calendar has
            return None

    @property
    def exit_code(self) -> int | None:
        written = _RETURNCODE.search(self.text)
        told = as_count(self.extra.get("returncode"))
        return told if told is not None else int(written[1]) if written else None


@dataclass(frozen=True)
class Action:
    command: str
    call: str | None
    """The tool call's own id."""
    result: Message | None = None


@dataclass(frozen=True)
class Trajectory:
    messages: tuple[Message, ...]
    info: Mapping[str, Any]

    @property
    def answers(self) -> list[Message]:
        return [one for one in self.messages if one.role == "assistant"]

    def results(self) -> dict[int, tuple[Message, ...]]:
        """By the ordinal of each answer, what was said to it before the next."""
        found: dict[int, tuple[Message, ...]] = {}
        end = len(self.messages)
        for answer in reversed(self.answers):
            said = self.messages[answer.ordinal + 1 : end]
            found[answer.ordinal] = tuple(one for one in said if one.role in _RESULT_ROLES)
            end = answer.ordinal
        return found


def trajectory_of(source: SourceText) -> Trajectory:
    """The messages of a trajectory file.

    Raises: NotAHistory where it is no JSON, is cut, or is JSON of another kind.
    """
    document = _parsed(source)
    found = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(found, list):
        raise NotAHistory(
            f"{source.path}: is no mini-swe-agent trajectory: neither a list of messages nor an"
            " object with 'messages'; give the file *.traj.json"
        )
    messages = tuple(_message(source, at, raw) for at, raw in enumerate(found))
    if not any(one.role == "assistant" for one in messages):
        raise NotAHistory(
            f"{source.path}: holds no answer of a model, so there is nothing to import; give a"
            " trajectory in which the agent has begun"
        )
    return Trajectory(messages, as_object(as_object(document).get("info")))


def _parsed(source: SourceText) -> object:
    try:
        document: object = json.loads(source.text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(source.text.rstrip()) or error.msg.startswith("Unterminated")
        why = "is cut in the middle; copy it again in full" if is_cut else "is no JSON"
        raise NotAHistory(
            f"{source.path}: {why} (line {error.lineno}, column {error.colno}: {error.msg}); a"
            " mini-swe-agent trajectory is a file *.traj.json"
        ) from error
    except (RecursionError, ValueError) as error:
        raise NotAHistory(
            f"{source.path}: is JSON that no trajectory is made of ({error}); give the file"
            " *.traj.json as mini-swe-agent wrote it"
        ) from error
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _message(source: SourceText, at: int, raw: object) -> Message:
    fields = as_object(raw)
    role = fields.get("role", fields.get("type"))
    if not isinstance(role, str):
        raise NotAHistory(
            f"{source.path}: message {at + 1} is no object with a 'role'; give a trajectory of"
            " mini-swe-agent (*.traj.json)"
        )
    return Message(at, role, _text(fields.get("content")), fields)


def _text(content: object) -> str:
    if isinstance(content, list):
        texts = (as_object(part).get("text") for part in content)
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def actions_of(answer: Message, results: tuple[Message, ...]) -> Iterator[Action]:
    """Each action with the message that answers it: by its call's id, else in their order."""
    by_call = {str(one.raw["tool_call_id"]): one for one in results if "tool_call_id" in one.raw}
    for at, action in enumerate(_actions(answer)):
        if by_call:
            yield replace(action, result=by_call.get(action.call or ""))
        else:
            yield replace(action, result=results[at] if at < len(results) else None)


def _actions(answer: Message) -> list[Action]:
    calls = answer.raw.get("tool_calls")
    if isinstance(calls, list) and calls:
        return [_of_call(as_object(call)) for call in calls]
    return [Action(command, None) for command in _ACTION.findall(answer.text)]


def _of_call(call: Mapping[str, Any]) -> Action:
    written = as_object(call.get("function")).get("arguments")
    command = written if isinstance(written, str) else json.dumps(written)
    with suppress(ValueError, RecursionError):  # the model wrote no JSON: its words are kept
        command = str(as_object(json.loads(command)).get("command", command))
    return Action(command, as_text(call.get("id")))


def as_object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def as_count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return int(str(value)) if is_count else None


def as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2**63 and math.isfinite(value) else None
