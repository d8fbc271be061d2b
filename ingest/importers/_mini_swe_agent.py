"""mini-swe-agent's `*.traj.json`: one task, read, checked, told as facts.

Facts have a time only where a message carries one.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ingest.importers._edit_blocks import u16
from ingest.importers._history import Draft, History, Summary, Tallies, finished, id_of
from ingest.importers._reading import SourceText
from ingest.importers._trajectory import (
    ROLES,
    Action,
    Message,
    Trajectory,
    actions_of,
    as_count,
    as_number,
    as_object,
    as_text,
    trajectory_of,
)

ORIGIN = "mini-swe-agent"
_SUBMITS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
_OTHER_ROLE = "a message of a role that no trajectory has"
_NO_RESULT = "an action without its result"
_NO_ACTION = "what was said to an answer that holds no action"


def mini_swe_agent_history(source: SourceText) -> History:
    """All facts of a trajectory, or an error and none.

    The session is known by its messages up to and with the first answer: two runs of the same
    task that begin with the same answer and carry no times or response ids cannot be told apart.
    A trajectory that is still being written has no turn.completed yet, and no tool.called for its
    last answer's actions while they have no result.
    """
    task = _Task(trajectory_of(source))
    drafts = list(task.facts())
    counts = {
        "messages": len(task.trajectory.messages),
        "turns": 1,
        "answers": sum(one.type == "inference.completed" for one in drafts),
        "tool_calls": sum(one.type == "tool.called" for one in drafts),
    }
    notes = ["line numbers below are those of messages, from 1"] if task.unclear else []
    if not task.is_finished:
        notes.append("the task is not finished; its open end is left out")
    if not any(draft.time for draft in drafts):
        notes.append("the trajectory carries no times, so its facts have none")
    known = Tallies()
    for message in task.trajectory.messages:
        if message.role in ROLES:
            known.add(f"message of role {message.role}", message.ordinal + 1)
    return finished(
        Summary(ORIGIN, source.path, source.sha256, counts, known, task.unclear, tuple(notes)),
        drafts,
    )


class _Task:
    """One trajectory as one session with one turn."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.unclear = Tallies()
        self._results = trajectory.results()
        self._answers = trajectory.answers
        opening = [one.raw for one in trajectory.messages[: self._answers[0].ordinal + 1]]
        self._key = id_of(ORIGIN, json.dumps(opening, sort_keys=True))
        self._conversation = id_of(self._key, "conversation")
        self._turn = id_of(self._key, "turn")
        config = as_object(trajectory.info.get("config"))
        self._model = as_text(as_object(config.get("model")).get("model_name"))
        self._exit = as_text(trajectory.info.get("exit_status"))
        self._sequence = self._tools = 0

    @property
    def is_finished(self) -> bool:
        """True where the file says how the task ended, or its last action hands the work in."""
        last = [action.command for action in actions_of(self._answers[-1], ())]
        return self._exit is not None or any(
            word in command for command in last for word in _SUBMITS
        )

    def facts(self) -> Iterator[Draft]:
        messages = self.trajectory.messages
        yield self._started(messages[0].time)
        yield self._submitted(next((one for one in messages if one.role == "user"), None))
        for answer in self._answers:
            yield self._answered(answer)
            yield from self._called(answer)
        for message in messages:
            if message.role not in ROLES:
                self.unclear.add(_OTHER_ROLE, message.ordinal + 1)
        if self.is_finished:
            yield self._completed(messages[-1].time)

    def _fact(
        self,
        kind: str,
        place: object,
        time: str | None,
        data: Mapping[str, Any],
        *,
        subject: str | None = None,
    ) -> Draft:
        self._sequence += 1
        return Draft(
            kind,
            f"{self._key}/{place}",
            data,
            time=time,
            subject=subject,
            conversation=self._conversation,
            sequence=self._sequence,
        )

    def _ids(self) -> dict[str, Any]:
        return {"gen_ai.conversation.id": self._conversation, "turn.id": self._turn}

    def _started(self, time: str | None) -> Draft:
        data = {
            "ui_kind": "terminal",
            "editor_name": ORIGIN,
            "editor_version": as_text(self.trajectory.info.get("mini_version")),
            "gen_ai.request.model": self._model,
            "origin": ORIGIN,
        }
        return self._fact("session.started", 0, time, data)

    def _submitted(self, task: Message | None) -> Draft:
        system = [one.text for one in self.trajectory.messages if one.role == "system"]
        data = self._ids() | {
            "index": 0,
            "prompt_u16": u16(task.text) if task else None,
            "trigger": "typed",
            "prompt": task.text if task else None,
            "gen_ai.system_instructions": [{"type": "text", "content": text} for text in system],
        }
        time = task.time if task else None
        return self._fact("turn.submitted", 0, time, data, subject=self._turn)

    def _answered(self, answer: Message) -> Draft:
        response = as_object(answer.extra.get("response"))
        usage = as_object(response.get("usage"))
        completion = id_of(self._key, "completion", answer.ordinal)
        said = {"role": "assistant", "parts": [{"type": "text", "content": answer.text}]}
        data = self._ids() | {
            "gen_ai.operation.name": "chat",
            "completion.id": completion,
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": as_text(response.get("model")),
            "gen_ai.response.id": as_text(response.get("id")),
            "gen_ai.usage.input_tokens": as_count(usage.get("prompt_tokens")),
            "gen_ai.usage.output_tokens": as_count(usage.get("completion_tokens")),
            "cost_usd": as_number(answer.extra.get("cost")),
            "gen_ai.output.messages": [said],
        }
        place = answer.ordinal
        return self._fact("inference.completed", place, answer.time, data, subject=completion)

    def _called(self, answer: Message) -> Iterator[Draft]:
        is_last = answer is self._answers[-1]
        results = self._results[answer.ordinal]
        actions = list(actions_of(answer, results))
        if results and not actions:
            self.unclear.add(_NO_ACTION, results[0].ordinal + 1)
        for number, action in enumerate(actions):
            if action.result is None:
                self.unclear.add(_NO_RESULT, answer.ordinal + 1)
                if is_last and not self.is_finished:
                    continue
            is_sent = not (is_last and self.is_finished)
            yield self._tool(f"{answer.ordinal}/{number}", action, is_sent=is_sent)

    def _tool(self, place: str, action: Action, *, is_sent: bool) -> Draft:
        self._tools += 1
        result = action.result
        code = result.exit_code if result else None
        data = self._ids() | {
            "gen_ai.tool.name": "bash",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": action.call or id_of(self._key, "tool", place),
            "approval": "auto",
            "outcome": None if code is None else "error" if code else "ok",
            "exit_code": code,
            "gen_ai.tool.call.arguments": action.command,
            "gen_ai.tool.call.result": result.text if result else None,
            "sent_to_model": is_sent if result else None,
        }
        time = result.time if result else None
        return self._fact("tool.called", place, time, data, subject=self._turn)

    def _completed(self, time: str | None) -> Draft:
        stats = as_object(self.trajectory.info.get("model_stats"))
        data = self._ids() | {
            "outcome": "ok" if self._exit in {None, "Submitted"} else "error",
            "llm_calls": len(self._answers),
            "tool_calls": self._tools,
            "exit_status": self._exit,
            "cost_usd": as_number(stats.get("instance_cost")),
        }
        return self._fact("turn.completed", 0, time, data, subject=self._turn)
