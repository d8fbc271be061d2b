import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.importers import read_history
from ingest.importers._aider_segments import segments
from ingest.importers._edit_blocks import edits_in, hunk_of
from tests.ingest.importers.aider_writer import Aider, edit
from tests.ingest.importers.picking import Facts, data, said

FactsOf = Callable[[str], Facts]

PIECES = (
    "\n", "# aider chat started at 2024-08-05 19:33:32\n", "#### do it  \n", "#### heading\n",
    "####   \n", "> Tokens: 1 sent, 2 received.  \n", "> open message\n", "> ^C KeyboardInterrupt  \n",
    ">  \n", ">\n", "text\n", "  text  \n", "```\n", "<<<<<<< SEARCH\n", "=======\n",
    ">>>>>>> REPLACE\n", "no end", "\u2028\x0c\r\n", ">   x\n",
)  # fmt: skip
# What a developer types, without the blanks at its ends that aider itself cuts off.
WORDS = st.text(st.sampled_from("ab #>/`é😀\t"), min_size=1, max_size=12)
LINES = st.lists(WORDS, min_size=1, max_size=4).map("\n".join)
TYPED = LINES.map(str.strip).filter(lambda text: text and text[0] not in "/!")
ANSWERED = LINES.map(str.strip).filter(lambda text: text and text[0] not in "#>")


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_the_segments_of_any_text_are_the_text(text: str) -> None:
    found = segments(text).items
    assert "".join(segment.text for segment in found) == text
    assert [text[one.start : one.start + len(one.text)] for one in found] == [
        one.text for one in found
    ]
    assert [one.line for one in found] == [text.count("\n", 0, one.start) + 1 for one in found]


@given(st.lists(st.tuples(TYPED, ANSWERED), min_size=1, max_size=4))
def test_prompts_and_answers_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[str, str]]
) -> None:
    aider = Aider().starts()
    for prompt, answer in turns:
        aider.is_asked(prompt).answers_with(answer)
    path = tmp_path_factory.mktemp("written") / "history.md"
    path.write_bytes(aider.is_asked("/exit").text.encode())
    facts = list(read_history("aider", path).events(consent="code"))
    assert [one["prompt"] for one in data(facts, "turn.submitted")] == aider.prompts[:-1]
    assert said(facts) == aider.answers


def test_a_heading_inside_an_edit_block_does_not_tear_it(facts_of: FactsOf) -> None:
    after = "#### Usage\n\n#### More\n\n> quoted\n"
    answer = f"Here:\n\n{edit('README.md', '', after)}\n\n#### Why\n\n> because\n\nDone."
    facts = facts_of(Aider().starts().is_asked("docs").answers_with(answer).is_asked("/exit").text)
    assert said(facts) == [answer]
    [proposed] = data(facts, "diff.proposed")
    assert [hunk["after"] for hunk in proposed["hunks"]] == [after]


def test_a_quote_with_two_spaces_inside_an_edit_block_is_no_message(facts_of: FactsOf) -> None:
    after = "\n> a hard break  \n\n#### a heading  \n"
    answer = edit("README.md", "x\n", after)
    facts = facts_of(Aider().starts().is_asked("docs").answers_with(answer).is_asked("/exit").text)
    assert said(facts) == [answer]
    assert data(facts, "diff.proposed")[0]["hunks"][0]["after"] == after


def test_a_message_of_many_lines_is_one_and_hides_no_prompt(facts_of: FactsOf) -> None:
    output = "== test session ==\nplatform linux\n    \n>       assert f() == 1\n\n1 failed"
    aider = Aider().starts().is_asked("/run pytest").says(output).is_asked("why?")
    facts = facts_of(aider.answers_with("Because.").is_asked("/exit").text)
    run = data(facts, "tool.called")[0]
    assert run["gen_ai.tool.call.result"] == output
    assert [one["prompt"] for one in data(facts, "turn.submitted")] == ["why?"]


def test_a_file_that_lost_its_trailing_spaces_is_read_by_its_marks(facts_of: FactsOf) -> None:
    answer = "Sure.\n\n" + edit("a.md", "x\n", "#### kept\n")
    aider = Aider().starts().is_asked("one\ntwo").answers_with(answer).applies("a.md", "abcdef1")
    trimmed = re.sub(
        r"[ ]+$", "", aider.is_asked("/undo").says("Removed: abcdef1 fix").text, flags=re.MULTILINE
    )
    facts = facts_of(trimmed + "\n#### /exit\n")
    assert [one["prompt"] for one in data(facts, "turn.submitted")] == ["one\ntwo"]
    assert said(facts) == [answer]
    assert [one["outcome"] for one in data(facts, "diff.reverted")] == ["reverted"]


def test_a_history_written_on_windows_reads_the_same(facts_of: FactsOf) -> None:
    text = Aider().starts().is_asked("a\nb").answers_with("c\n\nd").is_asked("/exit").text
    kept = [fact["id"] for fact in facts_of(text)][:-1]
    assert [fact["id"] for fact in facts_of(text.replace("\n", "\r\n"))][:-1] == kept


@pytest.mark.parametrize(
    ("written", "sent", "cost", "rounded"),
    [
        ("5,244 sent, 604 received.", 5244, 0.02, False),
        ("5.2k sent, 604 received.", 5200, 0.02, True),
        ("12k sent, 1.1k cache write, 9.5k cache hit, 604 received.", 12000, 0.02, True),
    ],
)
def test_tokens_are_read_in_every_form_aider_prints(
    facts_of: FactsOf, written: str, sent: int, cost: float, rounded: bool
) -> None:
    aider = Aider().starts().is_asked("hi").answers_with("Hello!", tokens=written)
    [inference] = data(facts_of(aider.is_asked("/exit").text), "inference.completed")
    assert inference["gen_ai.usage.input_tokens"] == sent
    assert inference["gen_ai.usage.output_tokens"] == 604
    assert inference["cost_usd"] == cost
    assert inference.get("tokens_rounded", False) is rounded


def test_sizes_of_a_hunk_leave_out_what_stays_alike() -> None:
    [block] = edits_in(edit("a.py", "same\nold 😀\nsame too\n", "same\nnew\nsame too\n")).blocks
    hunk = hunk_of(block, "h")
    assert (hunk["lines_added"], hunk["lines_removed"]) == (1, 1)
    assert (hunk["u16_added"], hunk["u16_removed"]) == (3, 6)


HOSTILE = {
    "messages without an end": "> open\n",
    "blocks without an end": "<<<<<<< SEARCH\n",
    "digits": "> Tokens: " + "1" * 50 + " \n",
    "prompts": "#### x  \n\n",
    "headers": "# aider chat started at 2024-08-05 19:33:32\n\n",
    "undo": "#### /undo  \n> Removed: abcdef1 x  \n\n",
    "applied": "> Applied edit to a/b.py  \n> Commit abcdef1 x  \n",
    "one long line": "x",
    "spaces": " ",
    "fences": "```\n",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_time_is_linear_in_hostile_input(tmp_path: Path, piece: str) -> None:
    """A quarter MB of the worst takes seconds; quadratic time would take many minutes."""
    start = Aider().starts().is_asked("x").answers_with(edit("a/b.py", "", "")).text
    path = tmp_path / "history.md"
    path.write_text(start + piece * (250_000 // len(piece)) + "\n>>>>>>> REPLACE\n\n#### /exit  \n")
    began = time.perf_counter()
    read_history("aider", path)
    assert time.perf_counter() - began < 15


def test_a_history_without_any_prompt_keeps_its_messages_whole(facts_of: FactsOf) -> None:
    aider = Aider().starts("2024-08-05 19:33:32", "aider --show-repo", "first\nsecond")
    facts = facts_of(aider.starts("2024-08-06 10:00:00").text)
    assert [fact["type"].split(".")[1] for fact in facts] == ["session", "import"]
    assert [one.kind for one in segments(aider.text).items].count("message") == 4
