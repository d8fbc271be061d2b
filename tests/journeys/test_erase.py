"""`thumbwheel erase` as an operator types it, also while the server is killed."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.facts import fact
from thumbwheel.demo.process import ServerProcess, free_port

ANN, BOB = "ann@example.org", "bob@example.org"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data", free_port())
    server.start()
    yield server
    server.stop()


def thumbwheel(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    door = ("--data", str(server.data), "--server", server.url)
    command = [sys.executable, "-m", "thumbwheel", *arguments, *door]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def api(server: ServerProcess) -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=30)


def tell(server: ServerProcess, user: str, number: int) -> list[dict[str, str]]:
    """Acknowledged facts of one user's conversation, half of which name nobody."""
    facts = [
        fact(
            "turn.submitted" if index % 2 else "inference.completed",
            user=user if index % 4 else None,
            source=f"/ext/{user[:3]}/1",
            sequence=index,
            consent="training",
            data={
                "turn.id": f"{user[:3]}-{index // 2}",
                "completion.id": f"k-{user[:3]}-{index // 2}",
                "gen_ai.conversation.id": f"c-{user[:3]}",
                **({"prompt": f"I am {json.dumps(user)}"} if index % 2 else {}),
                "gen_ai.output.messages": [
                    {"role": "assistant", "parts": [{"type": "text", "content": "so"}]}
                ],
            },
        )
        for index in range(1, number + 1)
    ]
    thumbs = [
        fact(
            "feedback.submitted",
            user=user,
            source=f"/ext/{user[:3]}/1",
            data={
                "target": {"kind": "completion", "id": f"k-{user[:3]}-1"},
                "gen_ai.evaluation.score.value": 1,
            },
        )
    ]
    named = [{k: v for k, v in each.items() if v is not None} for each in facts + thumbs]
    with api(server) as http:
        answer = http.post("/v1/events", json=named).json()
        assert answer["accepted"] == len(named), answer
    return [{"source": each["source"], "id": each["id"]} for each in named]


def stored(server: ServerProcess, facts: list[dict[str, str]]) -> int:
    with api(server) as http:
        return int(http.post("/v1/events/audit", json={"facts": facts}).json()["stored"])


def files_with(server: ServerProcess, name: str) -> set[str]:
    """The parts of the data folder where a file holds the name."""
    places = [path for path in server.data.rglob("*") if path.is_file()]
    found = [path for path in places if name.encode() in path.read_bytes()]
    return {path.relative_to(server.data).parts[0] for path in found}


def until_removed(server: ServerProcess) -> None:
    """The engine has removed the parts that it replaced."""
    with api(server) as http:
        (listed,) = http.get("/v1/erasures").json()["erasures"]
        while http.get(f"/v1/erasures/{listed['id']}").json()["inactive_parts"]["parts"]:
            threading.Event().wait(0.5)


def test_a_user_is_erased_with_proof_and_a_neighbour_keeps_all(server: ServerProcess) -> None:
    ann, bob = tell(server, ANN, 40), tell(server, BOB, 40)
    out = str(server.data.parent / "set")
    while stored(server, ann + bob) < len(ann + bob):
        pass
    assert thumbwheel(server, "export", "--format", "sft", "--out", out).returncode == 0
    dataset = next(path.name for path in (server.data / "datasets").iterdir())
    done = thumbwheel(server, "erase", "--user", ANN, "--prove")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Erased: {len(ann)} facts" in done.stdout
    assert f"made from erased facts: dataset {dataset}" in done.stdout
    assert "store: events.body" in done.stdout
    assert "Nothing was found" in done.stdout
    assert (stored(server, ann), stored(server, bob)) == (0, len(bob))
    assert "replaced parts" in done.stdout
    assert files_with(server, ANN) <= {"store"}
    until_removed(server)
    assert files_with(server, ANN) == set()
    with api(server) as http:
        manifest = http.get(f"/v1/datasets/{dataset}").json()
        assert (manifest["stale"], manifest["files"]) == (True, [])
        assert http.get(f"/v1/datasets/{dataset}/files/data.jsonl").status_code == 404


def test_a_name_that_is_left_is_found_and_the_command_fails(server: ServerProcess) -> None:
    tell(server, ANN, 8)
    tell(server, BOB, 8)
    with api(server) as http:
        assert http.post("/v1/keys", json={"scopes": ["ingest"], "label": ANN}).is_success
    left = thumbwheel(server, "erase", "--user", ANN, "--json")
    assert left.returncode == 1
    state: dict[str, Any] = json.loads(left.stdout)
    assert [each["place"] for each in state["proof"]["places"] if each["hits"]] == ["control: keys"]


def test_a_server_killed_while_erasing_goes_on_when_it_starts_again(server: ServerProcess) -> None:
    ann, bob = tell(server, ANN, 60), tell(server, BOB, 60)
    with api(server) as http:
        erasure = http.post("/v1/erasures", json={"user": ANN}).json()["id"]
    for _ in range(3):
        server.kill()
        server.start()
    with api(server) as http:
        while (state := http.get(f"/v1/erasures/{erasure}").json())["state"] != "done":
            pass
    assert state["counts"]["facts"] == len(ann)
    assert state["proof"]["hits"] == 0
    assert (stored(server, ann), stored(server, bob)) == (0, len(bob))
    assert files_with(server, ANN) <= {"store"}
