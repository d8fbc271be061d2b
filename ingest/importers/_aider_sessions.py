"""Sessions of an aider history, each a row of blocks: a prompt and all that came of it."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from itertools import takewhile
from typing import Literal

from ingest.importers._aider_commands import FORGETTING, LEAVING, MAY_ASK, Command, command_in
from ingest.importers._aider_segments import HEADER, Segment

EMPTY = "<blank>"
"""What aider logs where nothing was typed."""
_REFUSED = ("Invalid command:", "Ambiguous command:")


@dataclass(frozen=True, slots=True)
class Part:
    """Something that aider or the model said."""

    kind: Literal["message", "answer", "stray"]
    """stray: text before the first prompt that no count of tokens marks as an answer."""
    line: int
    text: str
    """Without aider's marks; an answer from its first to its last letter."""


@dataclass(frozen=True)
class Block:
    ordinal: int
    """In the session; 0 is what came before its first prompt."""
    line: int
    typed: str | None
    """The developer's bytes; None before the first prompt."""
    command: Command | None
    parts: tuple[Part, ...]
    echoes: int = 0
    """Times aider logged the question of /ask and its like once more."""

    def said_before_answer(self) -> list[str]:
        messages = takewhile(lambda part: part.kind == "message", self.parts)
        return [part.text for part in messages]

    @property
    def is_answered(self) -> bool:
        return any(part.kind == "answer" for part in self.parts)

    @property
    def is_turn(self) -> bool:
        """True where the model was asked: a plain prompt, a question, or a command it answered."""
        if self.is_answered:
            return True
        if self.command is not None:
            return self.command.is_question
        return self.typed is not None and self.typed != EMPTY

    @property
    def forgets(self) -> bool:
        """True where aider forgot the chat here, so that a new conversation begins after it."""
        return (
            self.command is not None
            and self.command.name in FORGETTING
            and not any(part.text.startswith(_REFUSED) for part in self.parts)
        )

    @property
    def leaves(self) -> bool:
        return self.command is not None and self.command.name in LEAVING

    @property
    def is_interrupted(self) -> bool:
        return any(part.text.startswith("^C") for part in self.parts if part.kind == "message")

    @property
    def waits(self) -> bool:
        """True while the model may still answer."""
        asks = self.command is None or self.command.name in MAY_ASK
        return asks and self.ordinal > 0 and not self.is_answered and not self.is_interrupted


@dataclass(frozen=True)
class Session:
    key: str
    """Says which session this is, in any copy of the history."""
    line: int
    started: datetime | None
    """None for what stands before the first header: nothing says when that began."""
    blocks: tuple[Block, ...]


def sessions_of(found: Iterable[Segment], *, timezone: tzinfo) -> list[Session]:
    """All sessions in the order of the file.

    A session's key is its header's time, a digest of what aider printed before the first prompt,
    and its number among equal ones. It says nothing about the place in the file, so the same
    session has the same key in a copy, a compressed copy or a later state of the history.
    """
    sessions: list[Session] = []
    seen: Counter[tuple[str, str]] = Counter()
    for stretch in _stretches(found):
        header = HEADER.match(stretch[0].text)
        stamp = header[1] if header else ""
        twins = (stamp, _preamble_digest(stretch))
        started = _local_time(stamp, timezone) if header else None
        key = f"{stamp}/{twins[1]}/{seen[twins]}"
        seen[twins] += 1
        blocks = tuple(_with_late_answers(_without_echoes(_blocks(stretch))))
        sessions.append(Session(key, stretch[0].line, started, blocks))
    return sessions


def _local_time(stamp: str, timezone: tzinfo) -> datetime | None:
    try:
        return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone)
    except ValueError:  # the 30th of February of a handmade file
        return None


def _stretches(found: Iterable[Segment]) -> Iterator[list[Segment]]:
    stretch: list[Segment] = []
    for segment in found:
        if segment.kind == "header":
            yield from _filled(stretch)
            stretch = []
        stretch.append(segment)
    yield from _filled(stretch)


def _filled(stretch: list[Segment]) -> Iterator[list[Segment]]:
    if any(segment.kind != "blank" for segment in stretch):
        yield stretch


def _preamble_digest(stretch: list[Segment]) -> str:
    digest = hashlib.sha256()
    for segment in stretch:
        if segment.kind == "prompt":
            break
        if segment.kind in {"message", "text"}:
            digest.update(segment.text.rstrip().encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def _blocks(stretch: list[Segment]) -> list[Block]:
    blocks: list[Block] = []
    typed: str | None = None
    line, parts = stretch[0].line, list[Part]()
    for segment in stretch:
        if segment.kind == "prompt":
            blocks.append(_block(len(blocks), line, typed, parts))
            typed, line, parts = _typed(segment.text), segment.line, []
        elif segment.kind == "message":
            parts.append(Part("message", segment.line, _said(segment.text)))
        elif segment.kind == "text":
            parts.append(Part("answer", segment.line, segment.text.rstrip()))
    blocks.append(_block(len(blocks), line, typed, parts))
    return blocks


def _block(ordinal: int, line: int, typed: str | None, parts: list[Part]) -> Block:
    if typed is None:
        return Block(ordinal, line, None, None, tuple(_doubted(parts)))
    return Block(ordinal, line, typed, command_in(typed), tuple(parts))


def _doubted(parts: list[Part]) -> Iterator[Part]:
    """Text that nobody asked for is an answer only if aider counts its tokens behind it."""
    counted = False
    doubted: list[Part] = []
    for part in reversed(parts):
        is_answer = part.kind == "answer"
        doubted.append(replace(part, kind="stray") if is_answer and not counted else part)
        counted = not is_answer and (counted or part.text.startswith("Tokens: "))
    return reversed(doubted)


def _typed(text: str) -> str:
    return "\n".join(_unmarked(line, "####") for line in text.removesuffix("\n").split("\n"))


def _said(text: str) -> str:
    first, *rest = text.removesuffix("\n").split("\n")
    said = "\n".join([_unmarked(first, ">") if not rest else first.removeprefix("> "), *rest])
    return said.removesuffix("  ") if rest else said


def _unmarked(line: str, mark: str) -> str:
    return line.removesuffix("  ").removeprefix(mark).removeprefix(" ")


def _without_echoes(blocks: list[Block]) -> list[Block]:
    """Blocks where a question that aider logged a second time is no prompt of its own."""
    kept: list[Block] = []
    for block in blocks:
        if kept and _is_echo(kept[-1], block):
            merged = kept[-1].parts + block.parts
            kept[-1] = replace(kept[-1], parts=merged, echoes=kept[-1].echoes + 1)
        else:
            kept.append(replace(block, ordinal=len(kept)))
    return kept


def _is_echo(asked: Block, block: Block) -> bool:
    command = asked.command
    if command is None or not command.is_question or asked.is_answered or asked.echoes:
        return False
    typed = (block.typed or "").strip()
    documented = command.name == "help" and typed.startswith("# Question:")
    return typed == command.arguments or (documented and command.arguments in typed)


def _with_late_answers(blocks: list[Block]) -> list[Block]:
    """Blocks where an answer that stands after /exit belongs to the prompt still waiting.

    aider that has left cannot be answered: a second aider wrote into the same file. Without a
    waiting prompt the answer stays where it is.
    """
    kept: list[Block] = []
    waiting: int | None = None
    for block in blocks:
        kept.append(block)
        if block.leaves and block.is_answered and waiting is not None:
            first = next(at for at, part in enumerate(block.parts) if part.kind == "answer")
            late = kept[waiting].parts + block.parts[first:]
            kept[waiting] = replace(kept[waiting], parts=late)
            kept[-1] = replace(block, parts=block.parts[:first])
            waiting = None
        elif not block.leaves:
            waiting = block.ordinal if block.waits else None
    return kept


def without_open_end(session: Session) -> Session | None:
    """The session without what may still grow, if it is the last of the file; None if all may.

    A later state of the history can add to the last prompt, so its facts would change. What
    stands before /exit is finished, but for a prompt that still waits for its answer.
    """
    if len(session.blocks) == 1:
        return None
    end = len(session.blocks)
    if not session.blocks[-1].leaves:
        return replace(session, blocks=session.blocks[: end - 1])
    staying = next(block for block in reversed(session.blocks) if not block.leaves)
    is_open = staying.waits and staying.is_turn
    return replace(session, blocks=session.blocks[: staying.ordinal if is_open else end])
