"""Undone answers of real histories, against a reader of the raw file that knows no fact."""

import lzma
import re
from pathlib import Path

import pytest

from datagen.export import export
from datagen.traces import Filter
from ingest.drain import Drain
from ingest.importers import read_history
from ingest.intake import Intake
from ingest.store import Store
from tests.datagen.test_export import histories, keep, rows, unredacted

REMOVED = re.compile(r"^> Removed: (\w{7})|^> HEAD was: (\w{7})|^Removed: (\w{7})")


def text_of(path: Path) -> str:
    return lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()


def undone_answers(lines: list[str]) -> dict[int, str]:
    """The last line of the answer whose commit each /undo removed, by the line of the /undo.

    Only where the file itself names the commit, an applied edit stands right above that commit, and
    the answer's token count right above the edit.
    """
    found = {}
    for at, line in enumerate(lines):
        if line.rstrip() != "#### /undo":
            continue
        removed = next((m for each in lines[at + 1 : at + 4] if (m := REMOVED.match(each))), None)
        if removed is None:
            continue
        commit = f"> Commit {next(filter(None, removed.groups()))} "
        above = at
        while above > 0 and not lines[above].startswith(commit):
            above -= 1
        answer = _answer_above(lines, above)
        if answer is not None:
            found[at] = answer
    return found


def _answer_above(lines: list[str], at: int) -> str | None:
    applied = False
    for above in range(at - 1, 0, -1):
        line = lines[above]
        applied = applied or line.startswith("> Applied edit to ")
        if line.startswith("> Tokens: "):
            return next(each for each in reversed(lines[:above]) if each.strip()) * applied or None
        if not line.startswith((">", "\n")) and line.strip():
            return None
    return None


@pytest.mark.parametrize("path", list(histories()), ids=lambda path: path.name)
def test_the_answer_behind_a_removed_commit_is_an_undesirable_row(
    path: Path, intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    keep(intake, drain, list(read_history("aider", path).events(consent="training", user="dev")))
    found = rows(export(store, "kto", Filter(), tmp_path))
    undesirable = [row["completion"][0]["content"] for row in found if not row["label"]]
    expected = undone_answers(text_of(path).splitlines())
    assert len(expected) > 8
    missed = {
        at + 1: last
        for at, last in expected.items()
        if not any(answer.rstrip().endswith(last.rstrip()) for answer in undesirable)
    }
    assert missed == {}


@pytest.mark.parametrize("path", list(histories()), ids=lambda path: path.name)
def test_every_completion_is_cut_unchanged_from_the_file(
    path: Path, intake: Intake, drain: Drain, store: Store, tmp_path: Path
) -> None:
    keep(intake, drain, list(read_history("aider", path).events(consent="training", user="dev")))
    text = text_of(path)
    found = rows(export(store, "kto", Filter(), tmp_path))
    assert found
    strange = [
        row["id"]
        for row in found
        if not all(part in text for part in unredacted(row["completion"][0]["content"]))
    ]
    assert strange == []
