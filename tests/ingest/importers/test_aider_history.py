import gzip
import json
import lzma
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import BadInput
from ingest.events import CONTENT_FIELDS, content_in, parse
from ingest.importers import History, read_history
from tests.ingest.importers.picking import data, facts_in

BLOCK = re.compile(
    r"^<{7} SEARCH *\n((?:(?!<{7} SEARCH)[^\n]*\n)*?)={7} *\n"
    r"((?:(?!<{7} SEARCH)[^\n]*\n)*?)>{7} REPLACE *$",
    re.MULTILINE,
)
PROMPT = re.compile(r"^(?:#### .*  \n)+", re.MULTILINE)


def text_of(path: Path) -> str:
    packed = path.suffix == ".xz"
    return (lzma.decompress(path.read_bytes()) if packed else path.read_bytes()).decode()


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_the_real_history_counts_what_its_description_says(real: History) -> None:
    counts = real.summary.counts
    assert counts["sessions"] == 679
    assert counts["prompt_blocks"] == 1203
    assert counts["undo"] == 91
    assert counts["applied_edits"] == counts["events.diff.decided"] == 289
    assert counts["commit_lines"] == 451
    # One of the 451 lines is aider's own --help text: "Commit all pending changes with a …".
    assert counts["commits"] == counts["events.diff.committed"] == 450


def test_the_sample_counts_the_same_as_a_plain_search(sample: History, sample_path: Path) -> None:
    text, counts = text_of(sample_path), sample.summary.counts
    assert counts["sessions"] == text.count("\n# aider chat started at ") + 1
    assert counts["undo"] == text.count("\n#### /undo  \n") == 17
    assert counts["applied_edits"] == text.count("\n> Applied edit to ")
    assert counts["commits"] == text.count("\n> Commit ")
    assert counts["token_lines"] == text.count("\n> Tokens: ")


def test_the_blocks_of_prompt_marks_add_up(any_history: History) -> None:
    counts = any_history.summary.counts
    parts = (
        "prompts",
        "empty_prompts",
        "slash_commands",
        "prompts_logged_again",
        "headings_in_answers",
    )
    assert counts["prompt_blocks"] == sum(counts[part] for part in parts)
    assert f"{counts['prompt_blocks']:,} blocks" in any_history.summary.notes[0]


def test_counts_of_events_are_those_of_the_events(any_history: History) -> None:
    types = Counter(fact["type"] for fact in facts_in(any_history))
    for kind, count in types.items():
        name = kind.removeprefix("thumbwheel.").removesuffix(".v1")
        assert any_history.summary.counts[f"events.{name}"] == count
    assert any_history.summary.counts["events"] == types.total()


def test_every_edit_block_is_there_byte_for_byte(any_history: History) -> None:
    text = text_of(any_history.summary.file)
    hunks = [hunk for one in data(facts_in(any_history), "diff.proposed") for hunk in one["hunks"]]
    assert Counter((hunk["before"], hunk["after"]) for hunk in hunks) == Counter(
        BLOCK.findall(text)
    )


def test_every_prompt_is_there_byte_for_byte(any_history: History) -> None:
    facts = facts_in(any_history)
    submitted = [one["prompt"] for one in data(facts, "turn.submitted") if "prompt" in one]
    commands = [
        one["gen_ai.tool.call.arguments"]
        for one in data(facts, "tool.called")
        if one["gen_ai.tool.type"] == "command" and "turn.id" not in one
    ]
    blocks = Counter(
        "\n".join(line.removeprefix("#### ")[:-2] for line in block[:-1].split("\n"))
        for block in PROMPT.findall(text_of(any_history.summary.file))
    )
    found = Counter(submitted + commands)
    assert not found - blocks
    counts = any_history.summary.counts
    assert blocks["<blank>"] == counts["empty_prompts"]
    assert (blocks - found).total() == counts["prompts_logged_again"] + counts["empty_prompts"]


def test_every_answer_is_a_piece_of_the_file_between_blank_lines(any_history: History) -> None:
    text = text_of(any_history.summary.file)
    at = 0
    for one in data(facts_in(any_history), "inference.completed"):
        answer = one["gen_ai.output.messages"][0]["parts"][0]["content"]
        found = text.find(f"\n{answer}\n", at)
        assert found >= 0 or answer in text  # a late answer stands further up
        at = max(at, found)


def test_every_fact_passes_the_schema_and_is_json(any_history: History) -> None:
    for fact in facts_in(any_history):
        assert parse(json.loads(json.dumps(fact))).id == fact["id"]


def test_ids_are_unique_and_sequences_count_from_one(any_history: History) -> None:
    facts = facts_in(any_history)
    assert len({fact["id"] for fact in facts}) == len(facts)
    expected = 0
    for fact in facts[:-1]:
        expected = 1 if fact["type"] == "thumbwheel.session.started.v1" else expected + 1
        assert fact["sequence"] == expected


def test_no_fact_mixes_conversations(any_history: History) -> None:
    """Ids of turns, answers and edits belong to the one conversation they were first told in."""
    home: dict[str, str] = {}
    for fact in facts_in(any_history)[:-1]:
        body, conversation = fact["data"], fact["partitionkey"]
        assert body.get("gen_ai.conversation.id", conversation) == conversation
        ids = [body.get(name) for name in ("turn.id", "completion.id", "diff.id")]
        for one in filter(None, [*ids, *body.get("diff.ids", [])]):
            assert home.setdefault(one, conversation) == conversation


def test_every_undo_is_told_and_tied_to_an_applied_edit(any_history: History) -> None:
    facts = facts_in(any_history)
    applied = {one["diff.id"] for one in data(facts, "diff.decided")}
    undos: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in data(facts, "diff.reverted"):
        undos[one["undo.id"]].append(one)
    assert len(undos) == any_history.summary.counts["undo"]
    tied = [one for group in undos.values() for one in group if "diff.id" in one]
    assert {one["diff.id"] for one in tied} <= applied
    untied = any_history.summary.not_understood.get("an /undo whose edit is not in the history")
    assert len(undos) - len({one["undo.id"] for one in tied}) == (untied.count if untied else 0)


def test_every_undo_after_an_applied_edit_in_its_session_is_tied(any_history: History) -> None:
    is_applied = False
    for fact in facts_in(any_history):
        kind = fact["type"]
        if kind == "thumbwheel.session.started.v1":
            is_applied = False
        is_applied = is_applied or kind == "thumbwheel.diff.decided.v1"
        if kind == "thumbwheel.diff.reverted.v1" and is_applied:
            assert "diff.id" in fact["data"]


def test_at_consent_metrics_nothing_written_is_in_a_fact(any_history: History) -> None:
    facts = list(any_history.events(consent="metrics", user="ada"))
    assert not [name for fact in facts for name in content_in(fact["data"])]
    whole = json.dumps([fact for fact in facts if "import.recorded" not in fact["type"]])
    assert not [name for name in CONTENT_FIELDS if f'"{name}":' in whole]
    assert "/Users/dev" not in whole


def test_consent_changes_no_id_and_no_order(sample: History) -> None:
    levels = ("metrics", "code", "training")
    ids = [[fact["id"] for fact in sample.events(consent=level)] for level in levels]  # type: ignore[arg-type]
    assert ids[0] == ids[1] == ids[2]


def test_an_unknown_consent_or_nobody_is_refused(sample: History) -> None:
    with pytest.raises(BadInput, match="consent"):
        sample.events(consent="all")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="user"):
        sample.events(consent="metrics", user=" ")


def test_importing_again_from_another_form_or_place_gives_the_same_facts(
    sample: History, sample_path: Path, tmp_path: Path
) -> None:
    plain = sample_path.read_bytes()
    forms = {"copy.txt": plain, "a.md": gzip.compress(plain), "b": lzma.compress(plain)}
    for name, stored in forms.items():
        (tmp_path / name).write_bytes(stored)
        assert facts_in(read_history("aider", tmp_path / name)) == facts_in(sample)


def test_a_shorter_state_of_a_history_gives_facts_that_the_longer_one_repeats(
    sample: History, sample_path: Path, tmp_path: Path
) -> None:
    """Cut at any session and any prompt, also in the middle of an undone or unanswered turn."""
    text, whole = text_of(sample_path), facts_in(sample)
    cuts = [
        found.start() for found in re.finditer(r"^(#### .*  |# aider chat .*)$", text, re.MULTILINE)
    ]
    for cut in cuts[1:]:
        shorter = facts_in(read_history("aider", written(tmp_path / "cut.md", text[:cut])))
        assert shorter[:-1] == whole[: len(shorter) - 1]
