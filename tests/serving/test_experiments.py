from concurrent.futures import ThreadPoolExecutor

from tests.serving.conftest import Desk
from tests.serving.engines import DONE, delta

_EXPERIMENT_HEADERS = [
    f"x-thumbwheel-{each}" for each in ("assignment-id", "experiment", "variant")
]


def test_the_route_needs_a_champion_and_goes_to_it_without_an_experiment(desk: Desk) -> None:
    desk.register("m2").raise_for_status()
    nobody = desk.ask("agent")
    assert nobody.status_code == 404
    assert "champion" in nobody.json()["error"]["message"]
    desk.http.post("/v1/checkpoints/m2/alias", json={"alias": "champion"}).raise_for_status()
    answer = desk.ask("agent", headers={"user": "u1"})
    assert answer.headers["x-thumbwheel-checkpoint"] == "m2"
    assert not any(name in answer.headers for name in _EXPERIMENT_HEADERS)
    data = desk.finished(answer)["data"]
    assert (data["reason"], data["route"], data["checkpoint"]) == ("default", "agent", "m2")
    assert desk.engine.received[-1].body["model"] == "m2"


def test_an_arm_is_sticky_and_its_exposure_is_recorded_once_for_each_unit(desk: Desk) -> None:
    desk.experiment("sticky")
    users = [f"u{n}" for n in range(12)]
    arms: dict[str, str] = {}
    answers = []
    for user in users * 2:
        answer = desk.ask("agent", headers={"user": user, "consent": "code"})
        arm = answer.headers["x-thumbwheel-variant"]
        assert arms.setdefault(user, arm) == arm
        assert answer.headers["x-thumbwheel-experiment"] == "sticky"
        assert answer.headers["x-thumbwheel-checkpoint"] == {"a": "m1", "b": "m2"}[arm]
        answers.append(answer)
    for answer in answers:
        data = desk.finished(answer)["data"]
        arm = answer.headers["x-thumbwheel-variant"]
        assert (data["reason"], data["variant"], data["version"]) == ("randomised", arm, 1)
        assert data["assignment"] == answer.headers["x-thumbwheel-assignment-id"]
    assert set(arms.values()) == {"a", "b"}
    exposures = desk.exposures("sticky")
    assert {each["unit"]: each["variant"] for each in exposures} == arms
    assert len(exposures) == len(users)
    assert {each["consent"] for each in exposures} == {"metrics"}
    question = {"unit": {"user": "u3"}}
    (promised,) = desk.http.post("/v1/assignments", json=question).json()["assignments"]
    assert promised["variant"] == arms["u3"]
    assert promised["assignment_id"] in {each["assignment"] for each in exposures}


def test_an_exposure_is_stored_before_the_first_token(desk: Desk) -> None:
    desk.experiment("early")
    desk.engine.says(delta("x"), DONE)
    desk.engine.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(desk.ask, "agent", {"user": "u1"}, stream=True)
        assert desk.engine.asked.wait(5)
        exposures = desk.exposures("early")
        assert not asking.done()
        desk.engine.gate.set()
        assert asking.result().status_code == 200
    assert [each["unit"] for each in exposures] == ["u1"]


def test_who_pins_a_checkpoint_or_has_no_name_is_in_no_experiment(desk: Desk) -> None:
    desk.experiment("named")
    pinned = desk.ask("m1", headers={"user": "u1"})
    by_alias = desk.ask("champion", headers={"user": "u1"})
    anonymous = desk.ask("agent")
    unit_of_another_kind = desk.ask("agent", headers={"organization": "o1"})
    reasons = []
    for answer in (pinned, by_alias, anonymous, unit_of_another_kind):
        assert not any(name in answer.headers for name in _EXPERIMENT_HEADERS)
        reasons.append(desk.finished(answer)["data"]["reason"])
    assert reasons == ["pinned", "pinned", "default", "default"]
    assert desk.exposures("named") == []


def test_an_organization_is_a_unit(desk: Desk) -> None:
    desk.experiment("orgs", unit="organization", layer="orgs")
    arms = {
        desk.ask("agent", headers={"user": user, "organization": "o1"}).headers[
            "x-thumbwheel-variant"
        ]
        for user in ("u1", "u2", "u3")
    }
    assert len(arms) == 1
    assert [each["unit"] for each in desk.exposures("orgs")] == ["o1"]
