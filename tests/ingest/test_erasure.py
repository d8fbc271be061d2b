"""Erasing a person: everything of theirs, nothing of others, whatever happens half-way."""

import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, event

from ingest._blobs import Blobs
from ingest._erasure_api import ErasureApi
from ingest.app import create_app
from ingest.drain import Drain
from ingest.keys import SCOPES
from ingest.room import Ingest
from tests.facts import fact
from tests.ingest.erasing import AFTER, ANN, BOB, House, life, pseudonym


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def house(room: Ingest, drain: Drain) -> House:
    blobs = Blobs.open(room.settings.blobs)
    room.intake.refine = blobs
    return House(room, drain, blobs)


def test_everything_of_a_user_goes_and_nothing_of_a_neighbour(house: House) -> None:
    ann, bob = life(house)
    before = house.ids()
    done = house.erase()
    kept = house.ids()
    assert {each["id"] for each in ann[:2]} & kept == set()
    assert {each["id"] for each in bob} <= kept
    assert len(before - kept) == done["counts"]["facts"] == 3
    assert (done["counts"]["dead_letters"], done["counts"]["feedback"]) == (1, 1)
    letters = house.room.store.rows("SELECT raw FROM dead_letters FINAL")
    assert [BOB in str(row["raw"]) for row in letters] == [True]
    assert house.ratings() == 1
    assert len(list(house.blobs.keys())) == 1
    assert {fact.id for fact in house.datasets.asked[0]} >= {"a-1", "a-2"}
    assert done["derived"] == {"datasets": ["sft-1"]}


def test_the_proof_finds_nothing_and_names_nobody(house: House) -> None:
    life(house)
    done = house.erase()
    proof = done["proof"]
    assert (done["state"], proof["hits"], proof["complete"]) == ("done", 0, True)
    places = {place["place"]: place for place in proof["places"]}
    assert places["store: events.body"]["scanned"] == len(house.ids())
    assert places["blobs: folder"]["scanned"] > 1 << 20
    assert {"log: log.db", "control: control.db", "control: erasures", "datasets: folder"} <= set(
        places
    )
    assert ANN not in json.dumps(done)
    assert pseudonym(ANN) not in json.dumps(done)


def test_no_file_of_log_blobs_and_control_holds_the_name(house: House) -> None:
    life(house)
    data = house.room.settings.data
    files = [path for path in data.rglob("*") if path.is_file()]
    assert any(ANN.encode() in path.read_bytes() for path in files)
    house.erase()
    files = [path for path in data.rglob("*") if path.is_file()]
    assert [path.name for path in files if ANN.encode() in path.read_bytes()] == []


def test_the_pseudonym_is_the_user(house: House) -> None:
    house.tell(fact(id="1", user=pseudonym(ANN)), fact(id="2", user=pseudonym("x")))
    house.store_all()
    assert house.erase()["counts"]["facts"] == 1
    assert house.ids() == {"2"}


def test_what_was_acknowledged_but_not_stored_goes_too(house: House) -> None:
    house.tell(fact(id="1", user=ANN))
    erasures = house.erasures()
    erasure = erasures.begin(ANN)
    erasures.start()
    assert erasures.state(erasure)["stage"] == "drain"
    house.store_all()
    erasures.resume()
    assert erasures.state(erasure)["state"] == "done"
    assert house.ids() == set()


def test_what_came_after_the_request_stays_and_is_said(house: House) -> None:
    house.tell(fact(id="1", user=ANN))
    house.tell(fact(id="2", user=ANN), at=AFTER)
    house.store_all()
    done = house.erase()
    assert house.ids() == {"2"}
    assert done["proof"]["later"] > 0
    assert done["proof"]["hits"] == 0


def test_the_same_user_again_is_the_same_erasure_while_it_runs(house: House) -> None:
    erasures = house.erasures()
    first = erasures.begin(ANN)
    assert erasures.begin(ANN) == first
    assert erasures.begin(BOB) != first
    erasures.resume()
    again = erasures.begin(ANN)
    assert again != first
    assert erasures.state(again)["others_of_this_person"] == [first]
    assert {each["id"] for each in erasures.all()} >= {first, again}


def test_erasing_again_finds_nothing_more(house: House) -> None:
    life(house)
    house.erase()
    again = house.erase()
    assert (again["counts"]["facts"], again["proof"]["hits"]) == (0, 0)


def test_an_erasure_waits_for_a_server_that_knows_the_datasets(house: House) -> None:
    life(house)
    alone = house.erasures()
    alone.derived = None
    erasure = alone.begin(ANN)
    alone.start()
    while alone.state(erasure)["problem"] is None:
        threading.Event().wait(0.05)
    assert alone.state(erasure)["stage"] == "derived"
    alone.close()
    assert alone.state(erasure)["state"] == "running"
    house.erasures().resume()
    assert alone.state(erasure)["derived"] == {"datasets": ["sft-1"]}


class Stops:
    """A crash right before the n-th change of the erasure's own row is committed."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.left = number
        event.listen(engine, "before_cursor_execute", self)

    def __call__(self, *given: Any) -> None:
        if given[2].startswith("UPDATE erasures"):
            self.left -= 1
            if self.left == 0:
                raise Crash


@pytest.mark.parametrize("change", range(1, 11))
def test_a_crash_at_any_point_changes_nothing_in_the_end(house: House, change: int) -> None:
    life(house)
    stops = Stops(house.room.control, change)
    erasure = house.erasures().begin(ANN)
    with pytest.raises(Crash):
        house.erasures().resume()
    house.erasures().resume()
    done = house.erasures().state(erasure)
    assert stops.left < 0
    assert done["state"] == "done"
    assert done["counts"] == {"facts": 3, "dead_letters": 1, "feedback": 1, "datasets": 1}
    assert done["proof"]["hits"] == 0
    # Only the very last change comes when the name is forgotten already.
    assert done["proof"]["complete"] is (change < 10)
    assert {"b-1", "b-2", "b-3"} <= house.ids()
    assert house.erase()["proof"]["complete"] is True


def test_the_proof_finds_a_name_wherever_it_is_left(house: House) -> None:
    data = house.room.settings.data
    house.tell(fact(id="1", user=BOB, consent="code", data={"turn.id": "t", "prompt": ANN}))
    house.store_all()
    house.room.keys.create(("ingest",), label=ANN)
    (data / "datasets" / "sft-1").mkdir(parents=True)
    packed = gzip.compress(json.dumps({"to": ANN}).encode())
    (data / "datasets" / "sft-1" / "rows.jsonl.gz").write_bytes(packed)
    proof = house.erase()["proof"]
    found = {place["place"]: place["hits"] for place in proof["places"] if place["hits"]}
    assert found == {"store: events.body": 1, "datasets: folder": 1, "control: keys": 1}
    assert proof["hits"] == 3
    assert house.ids() == {"1"}


def test_erasing_is_for_admins_and_unknown_ones_are_named(
    house: House, serve: Callable[[FastAPI], str]
) -> None:
    keys, erasures = house.room.keys, house.erasures()
    app = create_app("erasures", [ErasureApi(erasures, keys).router()], ready={})
    url = serve(app)
    life(house)
    _, all_scopes = keys.create(SCOPES)
    _, others = keys.create(tuple(scope for scope in SCOPES if scope != "admin"))
    for scope, status in ((all_scopes, 202), (others, 403)):
        answer = httpx.post(
            f"{url}/v1/erasures",
            json={"user": ANN},
            headers={"Authorization": f"Bearer {scope}"},
        )
        assert answer.status_code == status
    erasures.resume()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {all_scopes}"}) as http:
        (listed,) = http.get("/v1/erasures").json()["erasures"]
        assert http.get(f"/v1/erasures/{listed['id']}").json()["proof"]["hits"] == 0
        assert http.get("/v1/erasures/none").status_code == 404
        assert http.post("/v1/erasures", json={"user": ""}).status_code == 422
    erasures.close()
