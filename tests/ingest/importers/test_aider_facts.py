from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from ingest.importers import read_history
from tests.ingest.importers.aider_writer import Aider, edit
from tests.ingest.importers.picking import Facts, data, facts_in, of

FactsOf = Callable[[str], Facts]


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_only_the_open_end_is_left_out(facts_of: FactsOf) -> None:
    done = Aider().starts().is_asked("one").answers_with("1")
    open_end = facts_of(done.text)
    assert [fact["type"].split(".")[1] for fact in open_end] == ["session", "import"]
    closed = facts_of(done.is_asked("/exit").text)
    assert data(closed, "turn.completed")[0]["outcome"] == "ok"


def test_the_open_end_is_named_in_the_summary(tmp_path: Path) -> None:
    path = written(tmp_path / "h.md", Aider().starts().is_asked("one").answers_with("1").text)
    assert any(
        "line 7" in note and "left out" in note
        for note in read_history("aider", path).summary.notes
    )


def test_a_new_conversation_begins_after_clear(facts_of: FactsOf) -> None:
    aider = Aider().starts().is_asked("one").answers_with("1").is_asked("/clea")
    facts = facts_of(aider.is_asked("two").answers_with("2").is_asked("/exit").text)
    one, two = of(facts, "turn.submitted")
    clear = of(facts, "tool.called")[0]
    assert one["partitionkey"] == clear["partitionkey"] != two["partitionkey"]
    assert [turn["data"]["index"] for turn in (one, two)] == [0, 0]


def test_a_refused_command_clears_nothing(facts_of: FactsOf) -> None:
    aider = Aider().starts().is_asked("/clean").says("Invalid command: /clean")
    facts = facts_of(aider.is_asked("two").answers_with("2").is_asked("/exit").text)
    assert len({fact["partitionkey"] for fact in facts[:-1]}) == 1


def test_a_question_logged_twice_is_one_turn(facts_of: FactsOf) -> None:
    aider = Aider().starts().is_asked("/ask why?").is_asked(" why?").answers_with("Because.")
    [turn] = data(facts_of(aider.is_asked("/exit").text), "turn.submitted")
    assert (turn["prompt"], turn["trigger"], turn["prompt_u16"]) == ("/ask why?", "command", 9)


def test_an_undo_of_two_files_tells_two_facts_of_one_undo(facts_of: FactsOf) -> None:
    answer = edit("a.py", "1\n", "2\n") + "\n\n" + edit("b.py", "1\n", "2\n")
    aider = Aider().starts().is_asked("both").answers_with(answer).says("Applied edit to a.py")
    aider.applies("b.py", "abcdef1").says("Commit 1234567 style: lint")
    aider.is_asked("/undo").says("Removed: 1234567 style: lint")
    aider.is_asked("/undo").says("Removed: abcdef1 fix: it")
    facts = facts_of(
        aider.is_asked("/undo")
        .says("The last commit was not made by aider.")
        .is_asked("/exit")
        .text
    )
    reverted = data(facts, "diff.reverted")
    assert [one.get("commit_kind") for one in reverted] == ["lint", "lint", "edit", "edit", None]
    assert [one["outcome"] for one in reverted] == ["reverted"] * 4 + ["refused"]
    assert len({one["undo.id"] for one in reverted}) == 3
    proposed = [one["diff.id"] for one in data(facts, "diff.proposed")]
    assert [one.get("diff.id") for one in reverted] == [*proposed, *proposed, None]


def test_an_undo_by_an_unknown_hash_means_the_newest_edit_still_standing(
    facts_of: FactsOf,
) -> None:
    aider = Aider().starts()
    for number in "12":
        aider.is_asked(number).answers_with(edit(f"{number}.py", "", f"{number}\n"))
        aider.says(f"Applied edit to {number}.py")
    for _ in "12":
        aider.is_asked("/undo").says("Removed: 7777777 somebody's")
    facts = facts_of(aider.is_asked("/exit").text)
    proposed = [one["diff.id"] for one in data(facts, "diff.proposed")]
    assert [one["diff.id"] for one in data(facts, "diff.reverted")] == proposed[::-1]


def test_an_undo_reaches_over_a_clear_into_the_edit_s_own_conversation(facts_of: FactsOf) -> None:
    aider = Aider().starts().is_asked("x").answers_with(edit("a.py", "", "2\n"))
    aider.applies("a.py", "abcdef1").is_asked("/clear").is_asked("/undo").says("Removed: abcdef1 x")
    facts = facts_of(aider.is_asked("/exit").text)
    assert (
        of(facts, "diff.reverted")[0]["partitionkey"]
        == of(facts, "diff.proposed")[0]["partitionkey"]
    )


def test_lint_output_is_a_tool_call_between_two_answers(facts_of: FactsOf) -> None:
    aider = Aider().starts().is_asked("x").answers_with(edit("a.py", "", "2\n"))
    aider.applies("a.py", "abcdef1").says("").says("# Fix any errors below, if possible.")
    aider.says("a.py:1: E1 bad").says("Attempt to fix lint errors? y").answers_with("Fixed.")
    facts = facts_of(aider.is_asked("/exit").text)
    order = [fact["type"].split(".")[1] for fact in facts if fact["data"].get("turn.id")]
    assert order == ["turn", "inference", "diff", "diff", "diff", "tool", "inference", "turn"]
    lint = data(facts, "tool.called")[0]
    assert lint["gen_ai.tool.call.result"] == "# Fix any errors below, if possible.\na.py:1: E1 bad"
    assert (lint["gen_ai.tool.name"], lint["sent_to_model"]) == ("lint", True)
    assert data(facts, "turn.completed")[0]["llm_calls"] == 2


def test_commits_know_whose_work_they_hold(facts_of: FactsOf) -> None:
    aider = Aider().starts("2024-08-05 19:33:32", "aider --commit", "Commit 0000001 mine")
    aider.is_asked("x").answers_with(edit("a.py", "", "2\n"))
    aider.says("Committing a.py before applying edits.").says("Commit 0000002 mine too")
    aider.applies("a.py", "0000003").says("Commit 0000004 style: lint")
    facts = facts_of(aider.is_asked("/commit").says("Commit 0000005 rest").is_asked("/exit").text)
    commits = data(facts, "diff.committed")
    kinds = [one["commit_kind"] for one in commits]
    assert kinds == ["dirty", "dirty", "edit", "lint", "command"]
    assert [len(one["diff.ids"]) for one in commits] == [0, 0, 1, 1, 0]


def test_an_edit_in_another_format_is_proposed_without_hunks(facts_of: FactsOf) -> None:
    aider = Aider().starts().is_asked("x").answers_with("a.py\n```\nwhole file\n```")
    facts = facts_of(aider.applies("a.py", "abcdef1").is_asked("/exit").text)
    [proposed] = data(facts, "diff.proposed")
    assert (proposed["file.path"], proposed["hunks"]) == ("a.py", [])
    assert data(facts, "diff.decided")[0]["diff.id"] == proposed["diff.id"]


def test_a_turn_that_was_interrupted_or_failed_says_so(facts_of: FactsOf) -> None:
    aider = (
        Aider().starts().is_asked("a").says("^C again to exit").answers_with("Half an", tokens="")
    )
    aider.is_asked("b").says("Unexpected error: litellm.InternalServerError: Overloaded")
    aider.is_asked("c").answers_with("Whole.").says("^C again to exit").says("^C KeyboardInterrupt")
    facts = facts_of(aider.is_asked("/exit").text)
    assert [one["outcome"] for one in data(facts, "turn.completed")] == ["cancelled", "error", "ok"]


def test_an_answer_after_exit_belongs_to_the_prompt_that_waits(facts_of: FactsOf) -> None:
    """Two aiders wrote into one file."""
    aider = Aider().starts().is_asked("slow one").is_asked("/exit").answers_with("At last.")
    facts = facts_of(aider.starts("2024-08-06 10:00:00").is_asked("/exit").text)
    [turn], [answer] = data(facts, "turn.submitted"), data(facts, "inference.completed")
    assert (turn["prompt"], turn["turn.id"]) == ("slow one", answer["turn.id"])


def test_an_answer_without_a_prompt_is_kept_and_counted(tmp_path: Path) -> None:
    aider = Aider().starts().answers_with("Unasked.").is_asked("/exit")
    history = read_history("aider", written(tmp_path / "h.md", aider.text))
    assert sum(one.count for one in history.summary.not_understood.values()) == 1
    [turn] = data(facts_in(history), "turn.submitted")
    assert "prompt" not in turn


def test_times_are_those_of_the_header_in_the_zone_given(tmp_path: Path) -> None:
    path = written(tmp_path / "h.md", Aider().starts().is_asked("/exit").text)
    history = read_history("aider", path, timezone=ZoneInfo("America/New_York"))
    started = next(history.events(consent="metrics"))
    assert datetime.fromisoformat(started["time"]).isoformat() == "2024-08-05T19:33:32-04:00"


def test_what_stands_before_the_first_header_has_no_time(facts_of: FactsOf) -> None:
    head = Aider().says("left over").is_asked("a").answers_with("b")
    facts = facts_of(head.starts().is_asked("/exit").text)
    assert ["time" in fact for fact in of(facts, "session.started")] == [False, True]


def test_two_sessions_that_look_alike_stay_two(facts_of: FactsOf) -> None:
    aider = Aider().starts().is_asked("a").answers_with("b")
    facts = facts_of(aider.starts().is_asked("a").answers_with("b").is_asked("/exit").text)
    assert len({fact["id"] for fact in facts}) == len(facts)
    assert len(of(facts, "turn.submitted")) == 2


def test_a_typed_path_never_becomes_the_name_of_a_tool(facts_of: FactsOf) -> None:
    facts = facts_of(Aider().starts().is_asked("/secret/plan").is_asked("/exit").text)
    assert data(facts, "tool.called")[0]["gen_ai.tool.name"] == "unknown"
