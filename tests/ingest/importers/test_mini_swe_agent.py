import json
from pathlib import Path
from typing import Any

import pytest

from ingest.events import content_in, parse
from ingest.importers import History, read_history

Facts = list[dict[str, Any]]


def read(path: Path, document: object) -> History:
    path.write_text(json.dumps(document))
    return read_history("mini-swe-agent", path)


def data(history: History, kind: str) -> list[dict[str, Any]]:
    facts = history.events(consent="training", user="ada")
    return [fact["data"] for fact in facts if fact["type"] == f"thumbwheel.{kind}.v1"]


def act(command: str, word: str = "mswea_bash_command") -> dict[str, str]:
    return {"role": "assistant", "content": f"THOUGHT: so.\n\n```{word}\n{command}\n```"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


SUBMIT = act("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
OK = user("<returncode>0</returncode>\n<output>\nhi\n</output>")
BAD = user("<returncode>2</returncode>\n<output>\nno\n</output>")
RUN = [user("fix it"), act("ls"), OK, act("false", "bash"), BAD, SUBMIT, user("diff")]


def test_real_trajectories_have_a_result_for_every_action(real_folder: Path) -> None:
    for name, answers in (("local", 2), ("github_issue", 10)):
        path = real_folder / f"mini-swe-agent-{name}.traj.json"
        history = read_history("mini-swe-agent", path)
        spoken = [one for one in json.loads(path.read_text()) if one["role"] == "assistant"]
        said = [
            one["gen_ai.output.messages"][0]["parts"][0]["content"]
            for one in data(history, "inference.completed")
        ]
        assert said == [one["content"] for one in spoken]
        calls = data(history, "tool.called")
        assert len(said) == len(calls) == answers
        assert all("gen_ai.tool.call.result" in call for call in calls)
        assert history.summary.not_understood == {}
        assert data(history, "turn.completed")[0]["outcome"] == "ok"


def test_actions_carry_exit_codes_and_whether_the_model_saw_them(tmp_path: Path) -> None:
    calls = data(read(tmp_path / "t", RUN), "tool.called")
    assert [call["gen_ai.tool.call.arguments"] for call in calls[:2]] == ["ls", "false"]
    assert [call.get("exit_code") for call in calls] == [0, 2, None]
    assert [call.get("outcome") for call in calls] == ["ok", "error", None]
    assert [call["sent_to_model"] for call in calls] == [True, True, False]


def test_the_object_form_brings_model_cost_times_and_the_way_it_ended(tmp_path: Path) -> None:
    stamped = [
        message | {"extra": {"timestamp": 1_760_000_000 + at}} for at, message in enumerate(RUN)
    ]
    info = {
        "exit_status": "LimitsExceeded",
        "model_stats": {"instance_cost": 0.25, "api_calls": 3},
        "config": {"model": {"model_name": "claude"}},
        "mini_version": "1.14.0",
    }
    history = read(tmp_path / "t", {"trajectory_format": "1", "info": info, "messages": stamped})
    [ended] = data(history, "turn.completed")
    assert (ended["outcome"], ended["cost_usd"], ended["llm_calls"]) == ("error", 0.25, 3)
    assert data(history, "session.started")[0]["gen_ai.request.model"] == "claude"
    facts = [fact for fact in history.events(consent="code") if "time" in fact]
    assert [fact["time"] for fact in facts] == sorted(fact["time"] for fact in facts)
    assert facts[0]["time"] == "2025-10-09T08:53:20+00:00"


def test_tool_calls_are_answered_by_their_ids(tmp_path: Path) -> None:
    calls = [
        {"id": name, "function": {"name": "bash", "arguments": json.dumps({"command": name})}}
        for name in ("one", "two")
    ]
    results = [
        {"role": "tool", "tool_call_id": name, "content": f"of {name}", "extra": {"returncode": 0}}
        for name in ("two", "one")
    ]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    history = read(tmp_path / "t", [user("x"), asked, *results])
    told = data(history, "tool.called")
    assert [
        (one["gen_ai.tool.call.arguments"], one["gen_ai.tool.call.result"]) for one in told
    ] == [
        ("one", "of one"),
        ("two", "of two"),
    ]


def test_times_are_left_out_where_the_file_has_none(tmp_path: Path) -> None:
    history = read(tmp_path / "t", RUN)
    assert not [fact for fact in history.events(consent="code") if "time" in fact]
    assert any("no times" in note for note in history.summary.notes)


def test_a_trajectory_still_being_written_gives_facts_the_finished_one_repeats(
    tmp_path: Path,
) -> None:
    whole = {fact["id"]: fact for fact in read(tmp_path / "t", RUN).events(consent="code")}
    for end in range(2, len(RUN)):
        facts = list(read(tmp_path / "t", RUN[:end]).events(consent="code"))
        same = [fact == whole.get(fact["id"]) for fact in facts[:-1]]
        # Only the submit action counts as an end of the bare list; its output may follow it.
        assert all(same[: None if end < len(RUN) - 1 else -2])


@pytest.mark.parametrize("consent", ["metrics", "code", "training"])
def test_facts_pass_the_schema_and_keep_to_consent(tmp_path: Path, consent: Any) -> None:
    system = {"role": "system", "content": "You are secret."}
    facts = list(read(tmp_path / "t", [system, *RUN]).events(consent=consent))
    for fact in facts:
        assert parse(json.loads(json.dumps(fact))).id == fact["id"]
    filled = [name for fact in facts for name in content_in(fact["data"])]
    assert bool(filled) is (consent != "metrics")
    assert ("secret" in json.dumps(facts)) is (consent != "metrics")


def test_lone_surrogates_and_huge_numbers_do_no_harm(tmp_path: Path) -> None:
    odd = act("echo \ud800") | {"timestamp": 10**30, "extra": {"cost": 10**400}}
    history = read(tmp_path / "t", [user("\ud83d"), odd, OK, SUBMIT])
    assert data(history, "turn.submitted")[0]["prompt"] == "\ud83d"
    assert "cost_usd" not in data(history, "inference.completed")[0]
