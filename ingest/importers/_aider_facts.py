"""Facts of an aider session: who asked what, what the model changed, what became of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ingest.importers import _aider_steps as did
from ingest.importers._aider_commands import LEAVING
from ingest.importers._aider_edits import Commits, Ledger, Proposed
from ingest.importers._aider_sessions import Block, Part, Session
from ingest.importers._edit_blocks import EditBlock, edits_in, hunk_of, u16
from ingest.importers._history import Draft, Tallies, id_of

_EDITOR = "Aider v"
_UNASKED = "an answer with no prompt before it in its session"
_UNPROPOSED = "an edit applied with no answer before it"
_UNFINISHED = "an edit block without its end"
_NAMELESS = "an edit block that names no file"
_UNTIED = "an /undo whose edit is not in the history"
_UNANSWERED = "a prompt with no answer and no reason for it"


@dataclass
class _Turn:
    """The block in hand: its ids, and what was counted in it so far."""

    block: Block
    id: str | None
    """None for a command that the model did not answer."""
    conversation: str
    completion: str | None = None
    answers: int = 0
    tools: int = 0
    committable: list[Proposed] = field(default_factory=list)
    by_name: dict[str, Proposed] = field(default_factory=dict)
    """The last proposed edit of each path, and of each bare file name."""


class Narrator:
    """Tells the facts of one session in order, each with an id that any later import repeats."""

    def __init__(self, session: Session, commits: Commits, not_understood: Tallies) -> None:
        self._session = session
        self._unclear = not_understood
        self._time = None if session.started is None else session.started.isoformat()
        self._model: str | None = None
        self._conversations = 0
        self._turns = 0
        self._sequence = 0
        self._ledger = Ledger(commits)

    def facts(self) -> Iterator[Draft]:
        """All facts of the session."""
        yield self._started(self._session.blocks[0])
        for block in self._session.blocks:
            yield from self._block(block)
            if block.forgets:
                self._conversations += 1
                self._turns = 0
                self._ledger.forget()

    def _id(self, *parts: object) -> str:
        return id_of("aider", self._session.key, *parts)

    @property
    def _conversation(self) -> str:
        return self._id("conversation", self._conversations)

    def _fact(
        self,
        kind: str,
        place: object,
        data: Mapping[str, Any],
        *,
        subject: str | None = None,
        conversation: str | None = None,
    ) -> Draft:
        self._sequence += 1
        return Draft(
            kind,
            f"{self._session.key}/{place}",
            data,
            time=self._time,
            subject=subject,
            conversation=conversation or self._conversation,
            sequence=self._sequence,
        )

    def _started(self, preamble: Block) -> Draft:
        said = [part.text for part in preamble.parts if part.kind == "message"]
        version = next((text[len(_EDITOR) :] for text in said if text.startswith(_EDITOR)), None)
        self._model = next(
            (step.model for step in did.steps_of(preamble) if isinstance(step, did.Switched)), None
        )
        data = {
            "ui_kind": "terminal",
            "editor_name": "aider",
            "editor_version": version,
            "gen_ai.request.model": self._model,
            "origin": "aider",
            "arguments": said[0] if said and "aider" in said[0].split(" ")[0] else None,
        }
        return self._fact("session.started", 0, data)

    def _block(self, block: Block) -> Iterator[Draft]:
        turn_id = self._id("turn", block.ordinal) if block.is_turn else None
        turn = _Turn(block, turn_id, self._conversation)
        if turn_id is not None:
            yield self._submitted(turn)
        if block.command is not None and not (block.is_turn and block.command.is_question):
            yield self._command(turn)
        steps = did.steps_of(block)
        last_answer = max(
            (at for at, one in enumerate(steps) if isinstance(one, did.Answer)), default=-1
        )
        for at, step in enumerate(steps):
            yield from self._step(turn, step, f"{block.ordinal}/{at}", is_sent=at < last_answer)
        if block.command is not None and block.command.name == "undo":
            yield from self._undone(turn)
        if turn_id is not None:
            yield self._completed(turn)

    def _submitted(self, turn: _Turn) -> Draft:
        typed = turn.block.typed
        if typed is None:
            self._unclear.add(_UNASKED, turn.block.line)
        data = {
            "gen_ai.conversation.id": turn.conversation,
            "turn.id": turn.id,
            "index": self._turns,
            "prompt_u16": None if typed is None else u16(typed),
            "trigger": None if typed is None else "command" if turn.block.command else "typed",
            "prompt": typed,
        }
        self._turns += 1
        return self._fact("turn.submitted", turn.block.ordinal, data, subject=turn.id)

    def _completed(self, turn: _Turn) -> Draft:
        outcome = did.outcome_of(turn.block)
        if outcome is None:
            self._unclear.add(_UNANSWERED, turn.block.line)
        data = {
            "gen_ai.conversation.id": turn.conversation,
            "turn.id": turn.id,
            "outcome": outcome,
            "llm_calls": turn.answers,
            "tool_calls": turn.tools,
        }
        return self._fact("turn.completed", turn.block.ordinal, data, subject=turn.id)

    def _command(self, turn: _Turn) -> Draft:
        command = turn.block.command
        name = command.name if command else "unknown"
        return self._tool(turn, f"{turn.block.ordinal}/command", {
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "command",
            "approval": "user",
            "gen_ai.tool.call.arguments": turn.block.typed,
            # What is printed after leaving may still grow, so it is no part of the fact.
            "gen_ai.tool.call.result": None if name in LEAVING else "\n".join(turn.block.said_before_answer()),
            "sent_to_model": True if turn.block.is_answered else None,
        })  # fmt: skip

    def _check(self, turn: _Turn, step: did.Check, place: str, *, is_sent: bool) -> Draft:
        return self._tool(turn, place, {
            "gen_ai.tool.name": step.name,
            "gen_ai.tool.type": "check",
            "approval": "auto",
            "outcome": "error" if step.failed else "ok",
            "gen_ai.tool.call.result": step.output,
            "sent_to_model": is_sent,
            "completion.id": turn.completion,
        })  # fmt: skip

    def _tool(self, turn: _Turn, place: str, data: dict[str, Any]) -> Draft:
        turn.tools += 1
        ids: dict[str, Any] = {
            "gen_ai.conversation.id": turn.conversation,
            "turn.id": turn.id,
            "gen_ai.tool.call.id": self._id("tool", place),
        }
        return self._fact("tool.called", place, ids | data, subject=turn.id)

    def _step(self, turn: _Turn, step: did.Step, place: str, *, is_sent: bool) -> Iterator[Draft]:
        match step:
            case did.Answer():
                yield from self._answered(turn, step)
            case did.Check():
                yield self._check(turn, step, place, is_sent=is_sent)
            case did.Applied():
                yield from self._applied(turn, step, place)
            case did.Committed():
                yield self._committed(turn, step, place)
            case did.Switched():
                self._model = step.model

    def _answered(self, turn: _Turn, answer: did.Answer) -> Iterator[Draft]:
        place = f"{turn.block.ordinal}/{turn.answers}"
        turn.answers += 1
        turn.completion = self._id("completion", place)
        said = {"role": "assistant", "parts": [{"type": "text", "content": answer.part.text}]}
        data = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": turn.conversation,
            "turn.id": turn.id,
            "completion.id": turn.completion,
            "gen_ai.request.model": self._model,
            **(answer.tokens.fields() if answer.tokens else {}),
            "gen_ai.output.messages": [said],
        }
        yield self._fact("inference.completed", place, data, subject=turn.completion)
        yield from self._proposals(turn, answer.part, place)

    def _proposals(self, turn: _Turn, answer: Part, place: str) -> Iterator[Draft]:
        edits = edits_in(answer.text)
        for _ in range(edits.unfinished):
            self._unclear.add(_UNFINISHED, answer.line)
        for number, (path, blocks) in enumerate(edits.by_path().items()):
            if not path:
                self._unclear.add(_NAMELESS, answer.line)
            yield self._proposed(turn, f"{place}/{number}", path, blocks)

    def _proposed(self, turn: _Turn, place: str, path: str, blocks: tuple[EditBlock, ...]) -> Draft:
        proposed = Proposed(
            self._id("diff", place), path, turn.conversation, turn.id, turn.completion
        )
        turn.by_name[path] = turn.by_name[PurePosixPath(path).name] = proposed
        data = {
            "diff.id": proposed.id,
            "turn.id": turn.id,
            "completion.id": turn.completion,
            "file.path": path or None,
            "file.extension": PurePosixPath(path).suffix.removeprefix(".") or None,
            "hunks": [hunk_of(block, f"{proposed.id}/{at}") for at, block in enumerate(blocks)],
        }
        return self._fact("diff.proposed", place, data, subject=proposed.id)

    def _applied(self, turn: _Turn, step: did.Applied, place: str) -> Iterator[Draft]:
        names = (step.path, PurePosixPath(step.path).name, "")
        written = (turn.by_name.get(name) for name in names)
        proposed = next((one for one in written if one and self._is_of(turn, one, step)), None)
        if proposed is None:
            # Formats that send whole files or unified diffs have no blocks to read.
            if turn.completion is None:
                self._unclear.add(_UNPROPOSED, step.line)
            yield self._proposed(turn, f"{place}/whole", step.path, ())
            proposed = turn.by_name[step.path]
        self._ledger.apply(proposed)
        turn.committable.append(proposed)
        data = {
            "diff.id": proposed.id,
            "turn.id": turn.id,
            "completion.id": proposed.completion,
            "scope": "file",
            "outcome": "auto_applied",
            "actor": "policy",
        }
        yield self._fact("diff.decided", place, data, subject=proposed.id)

    @staticmethod
    def _is_of(turn: _Turn, proposed: Proposed, step: did.Applied) -> bool:
        return proposed.completion == turn.completion and proposed.may_be(step.path)

    def _committed(self, turn: _Turn, step: did.Committed, place: str) -> Draft:
        diffs = self._ledger.commit(step.sha, step.kind, turn.committable)
        data = {
            "diff.ids": [proposed.id for proposed in diffs],
            "turn.id": turn.id,
            "commit_kind": step.kind,
            "commit.sha": step.sha,
            "commit.message": step.message,
        }
        return self._fact("diff.committed", place, data, subject=turn.id)

    def _undone(self, turn: _Turn) -> Iterator[Draft]:
        """One fact per edit touched, and at least one per /undo."""
        undo = self._ledger.undo(did.removed_by(turn.block))
        if not undo.diffs:
            self._unclear.add(_UNTIED, turn.block.line)
        for number, proposed in enumerate(undo.diffs or (None,)):
            data = {
                "diff.id": proposed.id if proposed else None,
                "turn.id": proposed.turn if proposed else None,
                "completion.id": proposed.completion if proposed else None,
                "undo.id": self._id("undo", turn.block.ordinal),
                "by": "undo",
                "outcome": undo.outcome,
                "commit_kind": undo.commit_kind,
                "tied_by": undo.tied_by,
            }
            yield self._fact(
                "diff.reverted",
                f"{turn.block.ordinal}/undo/{number}",
                data,
                subject=proposed.id if proposed else None,
                conversation=proposed.conversation if proposed else None,
            )
