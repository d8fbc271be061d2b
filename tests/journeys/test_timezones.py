"""Where the server's clock hangs changes no result."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.facts import fact
from thumbwheel.demo.process import ServerProcess, free_port

ZONES = ("UTC", "Asia/Seoul", "America/St_Johns")
TIMES = {
    "utc": "2026-03-08T12:00:00Z",
    "seoul": "2026-01-01T00:00:00.123456+09:00",
    "st johns": "2026-06-30T23:59:59.999999-02:30",
    "before St. John's springs forward": "2026-03-08T01:59:59-03:30",
    "an hour that St. John's skips": "2026-03-08T02:30:00-03:30",
    "an hour that St. John's has twice": "2026-11-01T01:30:00-02:30",
    "the same hour again": "2026-11-01T01:30:00-03:30",
    "a leap day": "2024-02-29T23:30:00-11:30",
    "a new year": "2026-01-01T00:00:00+14:00",
    "before the epoch": "1969-12-31T23:30:00-00:30",
    "before clocks": "1899-12-31T23:00:00+00:00",
    "far ahead": "2261-12-31T23:59:59+12:45",
    "seconds": "1767225600",
}
NAIVE = "2026-11-01T01:30:00"
USERS = 40
SHOWN = len(TIMES) + 6
AS_OF = "2100-01-01T00:00:00Z"
_CLOCK = (
    "received_at",
    "created_at",
    "started_at",
    "phase_started_at",
    "stopped_at",
    "position",
    "as_of",
    "newest_fact",
    "age_hours",
    "running_days",
)
"""What says when or where this very server did something."""


def fixed(name: str, kind: str, **changes: Any) -> dict[str, Any]:
    return fact(kind, id=name, source="/ext/fixed/s1", **changes)


def turn(user: int) -> Iterator[dict[str, Any]]:
    """A question, its answer, and what was thought of it: at the same moments in every zone."""
    arm = "ab"[user % 2]
    time = f"2026-11-01T0{user % 10}:{user:02}:00-02:30"
    own = {"user": f"u{user}", "time": time, "consent": "training"}
    names = {"turn.id": f"t{user}", "gen_ai.conversation.id": f"c{user}"}
    assigned = {
        "experiment": "x1", "version": 1, "unit": f"u{user}", "unit_type": "user",
        "reason": "randomised", "assigned": arm, "received": arm, "variant": arm, "propensity": 0.5,
        "checkpoint": f"m{arm}", "assignment": f"as{user}", "completion.id": f"k{user}",
    }  # fmt: skip
    yield fixed(f"e{user}", "experiment.exposed", **own, data=names | assigned)
    question = [{"role": "user", "parts": [{"type": "text", "content": f"question {user}"}]}]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": f"answer {user}"}]}]
    finished = {
        "gen_ai.input.messages": question,
        "gen_ai.output.messages": answer,
        "reason": "randomised",
        "outcome": "ok",
        "checkpoint": f"m{arm}",
        "completion.id": f"k{user}",
    }
    yield fixed(f"k{user}", "completion.finished", **own, data=names | finished)
    score = float(user % 3 > 0)
    rating = {
        "target": {"kind": "completion", "id": f"k{user}"},
        "gen_ai.evaluation.name": "thumb",
        "gen_ai.evaluation.score.value": score,
        "gen_ai.evaluation.score.label": "up" if score else "down",
        "revision": 1,
    }
    yield fixed(f"r{user}", "feedback.submitted", **own, data=rating)


def facts() -> list[dict[str, Any]]:
    clocks = [
        fixed(name, "turn.submitted", time=time if "T" in time else int(time))
        for name, time in TIMES.items()
    ]
    return clocks + [each for user in range(USERS) for each in turn(user)]


def lasting(value: Any) -> Any:
    """Without what the clock of this run says."""
    if isinstance(value, Mapping):
        return {name: lasting(each) for name, each in value.items() if name not in _CLOCK}
    return [lasting(each) for each in value] if isinstance(value, list) else value


def ask(http: httpx.Client, path: str, body: object = None) -> Any:
    answer = http.get(path) if body is None else http.post(path, json=body)
    assert answer.is_success, (path, answer.text)
    return answer.json()


def results(server: ServerProcess) -> dict[str, Any]:
    """What this server makes of the facts."""
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as http:
        for name in ("ma", "mb"):
            ask(http, "/v1/checkpoints", {"id": name, "engine": {"url": "http://127.0.0.1:9/v1"}})
        variants = [{"key": arm, "checkpoint": f"m{arm}"} for arm in "ab"]
        ask(http, "/v1/experiments", {"key": "x1", "variants": variants})
        ask(http, "/v1/experiments/x1/start", {})
        naive = fixed("naive", "turn.submitted", time=NAIVE)
        taken = ask(http, "/v1/events", [*facts(), naive])
        assert (taken["accepted"], taken["rejected"]) == (len(facts()), 1)
        assert taken["results"][-1]["reason"] == "time: input should have timezone info"
        until_queryable(http)
        shown = {
            each["id"]: lasting(ask(http, f"/v1/events/{quote(each['id'], safe='')}"))
            for each in facts()[:SHOWN]
        }
        report = ask(http, "/v1/experiments/x1/report")
        received = ask(http, "/v1/events/e1")["received_at"]
        for told in (received, report["health"]["newest_fact"]):
            # A wrong zone would be off by half an hour at least.
            assert abs(datetime.now(UTC) - datetime.fromisoformat(told)) < timedelta(minutes=20)
        wanted = {"since": "2026-01-01T00:00:00Z", "until": AS_OF}
        return {
            "events": shown,
            "report": lasting(report),
            "report as of": lasting(ask(http, f"/v1/experiments/x1/report?as_of={AS_OF}")),
            "dataset": dataset(http, {"format": "kto", "filter": wanted}),
            "ratings": dataset(http, {"format": "kto"}),
        }


def until_queryable(http: httpx.Client) -> None:
    asked = {"facts": [{"source": each["source"], "id": each["id"]} for each in facts()]}
    for _ in range(600):
        if not ask(http, "/v1/events/audit", asked)["missing"]:
            return
        threading.Event().wait(0.05)
    raise TimeoutError("not everything that was accepted becomes queryable")


def dataset(http: httpx.Client, wanted: Mapping[str, Any]) -> tuple[int, str]:
    """How many rows it has, and a digest of them."""
    made = ask(http, "/v1/datasets", wanted)["id"]
    while (state := ask(http, f"/v1/datasets/{made}"))["status"] == "building":
        threading.Event().wait(0.02)
    assert state["status"] == "ready", state
    rows = http.get(f"/v1/datasets/{made}/files/data.jsonl").text.splitlines()
    lasted = sorted(json.dumps(lasting(json.loads(row)), sort_keys=True) for row in rows)
    return len(rows), hashlib.sha256("\n".join(lasted).encode()).hexdigest()


def test_results_are_the_same_wherever_the_servers_clock_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, dict[str, Any]] = {}
    for zone in ZONES:
        monkeypatch.setenv("TZ", zone)
        server = ServerProcess(tmp_path / zone.replace("/", "-"), free_port())
        server.start()
        try:
            found[zone] = results(server)
        finally:
            assert server.stop() == 0
    expected = found["UTC"]
    assert expected["dataset"][0] == expected["ratings"][0] == USERS
    assert sum(arm["units"] for arm in expected["report"]["metrics"][0]["arms"]) == USERS
    for each in facts()[:SHOWN]:
        assert expected["events"][each["id"]].items() >= each.items()
    for zone in ZONES[1:]:
        for what, result in expected.items():
            assert found[zone][what] == result, (zone, what)
