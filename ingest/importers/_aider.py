"""aider's `.aider.chat.history.md`: read, checked, told as facts.

Times are those of the session's header: aider writes down no other. Sessions that stand before
the first header have no time at all. `sequence` orders the facts of a session.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import tzinfo
from itertools import pairwise

from ingest.errors import BadInput
from ingest.importers._aider_edits import Commits
from ingest.importers._aider_facts import Narrator
from ingest.importers._aider_segments import Segment, Segments, segments
from ingest.importers._aider_sessions import EMPTY, Block, Session, sessions_of, without_open_end
from ingest.importers._aider_steps import COMMIT, Answer, Applied, Committed, steps_of
from ingest.importers._edit_blocks import edits_in
from ingest.importers._history import Draft, History, Summary, Tallies, finished
from ingest.importers._reading import NotAHistory, SourceText

ORIGIN = "aider"
_HALF = "it is half a history: copy it again in full, or cut it at the last '# aider chat started at' line"


def aider_history(source: SourceText, *, timezone: tzinfo) -> History:
    """All facts of a history, or an error and none.

    What may still grow is left out and noted: the last prompt of the file, unless it is /exit. An
    import of the grown file then gives the facts of the shorter one unchanged, and more.
    """
    if not source.text.endswith("\n"):
        raise BadInput(f"{source.path}: ends in the middle of a line; {_HALF}")
    found = segments(source.text)
    if not any(segment.kind == "header" for segment in found.items):
        is_json = source.text.lstrip().startswith(("{", "["))
        hint = " It looks like JSON: is it of mini-swe-agent?" if is_json else ""
        raise NotAHistory(
            f"{source.path}: is no aider history: no line '# aider chat started at <date> <time>';"
            f" give the file .aider.chat.history.md of a repository.{hint}"
        )
    sessions = sessions_of(found.items, timezone=timezone)
    _refuse_open_edit(source, sessions)
    unclear, commits = Tallies(), Commits()
    drafts: list[Draft] = []
    complete = [*sessions[:-1], without_open_end(sessions[-1])]
    for session in complete:
        if session is not None:
            drafts += Narrator(session, commits, unclear).facts()
    return finished(_summary(source, found, sessions, unclear, complete[-1]), drafts)


def _refuse_open_edit(source: SourceText, sessions: list[Session]) -> None:
    last = sessions[-1].blocks[-1]
    if not last.parts or last.parts[-1].kind != "answer" or last.is_interrupted:
        return
    if edits_in(last.parts[-1].text).unfinished and _ends_in_edit(last.parts[-1].text):
        raise BadInput(f"{source.path}: ends inside an open SEARCH/REPLACE block; {_HALF}")


def _ends_in_edit(answer: str) -> bool:
    return answer.rfind("<<<<<<< SEARCH") > answer.rfind(">>>>>>> REPLACE")


def _summary(
    source: SourceText,
    found: Segments,
    sessions: list[Session],
    unclear: Tallies,
    last: Session | None,
) -> Summary:
    blocks = [block for session in sessions for block in session.blocks]
    counts = _counts(source, found, blocks)
    understood = Tallies()
    for segment in found.items:
        if segment.kind == "message":
            understood.add("message of aider", segment.line)
    for part in (part for block in blocks for part in block.parts if part.kind == "stray"):
        unclear.add("text before the first prompt that is no answer", part.line)
    for line in _commits_without_hash(found.items):
        unclear.add("a line '> Commit' that names no commit", line)
    notes = list(_notes(found, sessions, counts, last))
    return Summary(
        ORIGIN, source.path, source.sha256, counts, dict(understood), dict(unclear), tuple(notes)
    )


def _counts(source: SourceText, found: Segments, blocks: list[Block]) -> dict[str, int]:
    kinds = Counter(segment.kind for segment in found.items)
    steps = Counter(type(step) for block in blocks for step in steps_of(block))
    answers = [p.text for block in blocks for p in block.parts if p.kind == "answer"]
    headings = _headings(found.items)
    commands = [block.command.name for block in blocks if block.command is not None]
    echoes = sum(block.echoes for block in blocks)
    typed = sum(block.typed is not None for block in blocks)
    empty = sum(block.typed == EMPTY for block in blocks)
    return {
        "lines": source.text.count("\n"),
        "sessions": kinds["header"],
        "prompt_blocks": typed + echoes + headings,
        "prompts": typed - len(commands) - empty,
        "empty_prompts": empty,
        "slash_commands": len(commands),
        "prompts_logged_again": echoes,
        "headings_in_answers": headings,
        "turns": sum(block.is_turn for block in blocks),
        "answers": steps[Answer],
        "edit_blocks": sum(len(edits_in(answer).blocks) for answer in answers),
        "applied_edits": steps[Applied],
        "commit_lines": steps[Committed] + sum(1 for _ in _commits_without_hash(found.items)),
        "commits": steps[Committed],
        "undo": commands.count("undo"),
        "token_lines": sum(
            segment.kind == "message" and segment.text.startswith("> Tokens: ")
            for segment in found.items
        ),
    }


def _headings(found: tuple[Segment, ...]) -> int:
    """Runs of `#### ` lines that are no prompts: headings in answers, or output that holds such."""
    runs = 0
    for segment in found:
        if segment.kind in {"text", "message"}:
            marked = [line.startswith("#### ") for line in segment.text.split("\n")]
            runs += sum(now and not before for before, now in pairwise([False, *marked]))
    return runs


def _commits_without_hash(found: tuple[Segment, ...]) -> Iterator[int]:
    for segment in found:
        is_commit = segment.kind == "message" and segment.text.startswith("> Commit ")
        if is_commit and not COMMIT.match(segment.text.removeprefix("> ")):
            yield segment.line


def _notes(
    found: Segments, sessions: list[Session], counts: dict[str, int], last: Session | None
) -> Iterator[str]:
    yield (
        f"{counts['prompt_blocks']:,} blocks of '#### ' lines ="
        f" {counts['prompts']:,} prompts + {counts['empty_prompts']:,} empty ones + {counts['slash_commands']:,} slash commands"
        f" + {counts['prompts_logged_again']:,} questions that aider logged a second time"
        f" + {counts['headings_in_answers']:,} headings inside answers or output"
    )
    yield "aider logs only when a session began, so all facts of a session carry that time"
    if found.trimmed:
        yield "no prompt has its two trailing spaces, so prompts and messages are told by marks alone"
    if sessions[0].started is None:
        yield "the file begins in the middle of a session; when that one began is not known"
    if counts["commit_lines"] > counts["commits"]:
        yield "lines '> Commit' without a hash are not commits (help text, for example)"
    yield from _open_end(sessions[-1], last)


def _open_end(session: Session, last: Session | None) -> Iterator[str]:
    kept = 0 if last is None else len(last.blocks)
    if kept < len(session.blocks):
        yield (
            f"the end of the file from line {session.blocks[kept].line} on may still be going on"
            " and is left out; it comes in when the history is imported again after aider's next"
            " start"
        )
