"""Values over 1 MiB live beside the log and come back as they were sent."""

import hashlib
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ingest._blobs import Blobs
from ingest._known import FactId
from ingest._pseudonyms import Pseudonyms
from ingest._refine import Refine
from ingest._secrets import Secrets
from ingest.drain import Drain
from ingest.errors import BadInput, NotFound, Unavailable
from ingest.intake import Intake
from ingest.log import Log
from ingest.store import Store
from ingest.wire import Raw, read_one
from tests.facts import fact

_MIB = 1 << 20
_NOW = timedelta(0)


@pytest.fixture(params=["file", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    where = {"file": f"file://{tmp_path}/blobs", "memory": f"memory://{uuid4().hex}"}
    return Blobs.open(where[request.param])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def event(prompt: str, **changes: Any) -> dict[str, Any]:
    return fact(consent="code", data={"turn.id": "t1", "prompt": prompt}, **changes)


def raw(wire: dict[str, Any]) -> Raw:
    return read_one(json.dumps(wire, ensure_ascii=False).encode())


def reference(kept: Raw) -> Any:
    return kept.value["data"]["prompt"]


@pytest.mark.parametrize(
    "value",
    ["x" * _MIB, "é" * (_MIB // 2), "\U0001f3a1" * (_MIB // 4), 'line\n\t\0"\\' * 200_000],
    ids=["ascii", "two bytes", "four bytes", "escapes"],
)
def test_a_value_over_a_mebibyte_leaves_and_comes_back(blobs: Blobs, value: str) -> None:
    given = raw(event(value))
    kept = blobs.offload(given)
    literal = json.dumps(value, ensure_ascii=False).encode()
    [key] = blobs.keys()
    assert reference(kept) == {
        "$blob": key,
        "bytes": len(literal),
        "sha256": hashlib.sha256(literal).hexdigest(),
    }
    assert len(kept.text) < 1000
    assert kept.value == json.loads(kept.text)
    assert blobs.restore(kept.text) == given.text


def test_a_value_of_a_mebibyte_stays(blobs: Blobs) -> None:
    given = raw(event("x" * (_MIB - 2)))
    assert blobs.offload(given) is given
    assert list(blobs.keys()) == []


def test_the_rest_of_the_text_stays_as_sent(blobs: Blobs) -> None:
    large = [json.dumps(letter * (_MIB + 1)) for letter in "abc"]
    head = '{ "source":"s",  "id": "\\u0031", "n": 1.0e+2, "data": {"a\\/": ['
    text = f'{head}{large[0]}, 1.50 ,{{"b" :{large[1]}}}], "c":{large[2]}\t, "d": "\\ud83d"}} }}'
    kept = blobs.offload(read_one(text.encode()))
    start, *between, end = kept.text.split('{"$blob":')
    assert start == head
    assert len(between) == 2
    assert end.endswith('}\t, "d": "\\ud83d"} }')
    assert blobs.restore(kept.text) == text


def test_lone_surrogates_come_back(blobs: Blobs) -> None:
    text = json.dumps(event("\ud83d" + "x" * _MIB))
    kept = blobs.offload(read_one(text.encode()))
    assert blobs.restore(kept.text) == text
    twin = json.dumps(kept.clean, ensure_ascii=False, separators=(",", ":"))
    assert json.loads(blobs.restore(twin)) == json.loads(text), "also from a row's clean twin"


def test_twenty_mebibytes_come_back(blobs: Blobs) -> None:
    given = raw(event("0123456789abcdef" * (20 * _MIB // 16 - 64)))
    kept = blobs.offload(given)
    assert blobs.restore(kept.text) == given.text


def test_names_that_join_facts_stay_in_the_event(blobs: Blobs) -> None:
    long = "t" * (_MIB + 1)
    given = raw(fact(data={"turn.id": long, "target": {"kind": "turn", "id": long}}, subject=long))
    assert blobs.offload(given) is given


def test_a_retry_writes_the_same_blob_and_another_value_another(blobs: Blobs) -> None:
    first, again = (blobs.offload(raw(event("x" * _MIB, id="1"))) for _ in range(2))
    assert again.text == first.text
    assert len(list(blobs.keys())) == 1
    blobs.offload(raw(event("y" * _MIB, id="1")))
    assert json.loads(blobs.restore(first.text))["data"]["prompt"] == "x" * _MIB


def test_two_facts_with_one_value_own_a_blob_each(blobs: Blobs) -> None:
    one, two = (blobs.offload(raw(event("x" * _MIB, id=name))) for name in "12")
    assert blobs.forget(one.value["source"], "1") == 1
    assert blobs.forget(one.value["source"], "1") == 0
    assert list(blobs.keys()) == [reference(two)["$blob"]]
    with pytest.raises(NotFound, match=reference(one)["$blob"]):
        blobs.restore(one.text)


def test_a_reference_to_another_facts_blob_is_only_text(blobs: Blobs) -> None:
    theirs = reference(blobs.offload(raw(event("their words " * 100_000, id="theirs"))))
    mine = raw(fact("tool.called", consent="code", data={"gen_ai.tool.call.result": theirs}))
    assert blobs.offload(mine) is mine
    text = json.dumps(mine.value, separators=(",", ":"))
    assert blobs.restore(text) == text


@pytest.mark.parametrize("hidden", [False, True])
def test_a_client_cannot_write_a_reference_to_its_own_blob(blobs: Blobs, hidden: bool) -> None:
    kept = blobs.offload(raw(event("x" * _MIB)))
    key = reference(kept)["$blob"]
    forged = {"$blob": key, "bytes": 1, "sha256": "0" * 64}
    data = {"gen_ai.tool.call.result": forged}
    text = json.dumps(fact("tool.called", consent="code", id=kept.value["id"], data=data))
    if hidden:
        text = text.replace("$blob", "$bl\\u006fb").replace(key, f"\\u{ord(key[0]):04x}{key[1:]}")
    given = read_one(text.encode())
    problem = blobs.offload(given).problem
    assert problem is not None
    assert "$blob" in problem


def test_a_damaged_blob_is_named(folder: Path) -> None:
    blobs = Blobs.open(f"file://{folder}")
    kept = blobs.offload(raw(event("x" * _MIB)))
    key = reference(kept)["$blob"]
    (folder / key).write_bytes(b"[]\nother")
    with pytest.raises(Unavailable, match=f"{key} is damaged"):
        blobs.restore(kept.text)


def test_blobs_are_spread_over_folders(folder: Path) -> None:
    blobs = Blobs.open(f"file://{folder}")
    for name in "abcdefgh":
        blobs.offload(raw(event("x" * _MIB, id=name)))
    assert len(list(folder.iterdir())) > 4
    assert all(len(shard.name) == 2 for shard in folder.iterdir())


def test_a_store_that_takes_nothing_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file where the folder should be")
    blobs = Blobs.open(f"file://{tmp_path}/blobs")
    with pytest.raises(Unavailable, match="blobs: writing failed"):
        blobs.offload(raw(event("x" * _MIB)))


@pytest.mark.parametrize("url", ["nowhere://x", "sftp://host/x"])
def test_a_file_system_that_is_not_installed_is_named(url: str) -> None:
    with pytest.raises(BadInput, match="blobs: "):
        Blobs.open(url)


def test_an_empty_store_has_nothing_to_tell(blobs: Blobs) -> None:
    assert list(blobs.keys()) == []
    assert blobs.forget("s", "1") == 0
    assert blobs.sweep(lambda _: set()) == 0


def test_sweeping_takes_blobs_of_facts_that_were_never_stored(blobs: Blobs) -> None:
    kept = [blobs.offload(raw(event("x" * _MIB, id=name))) for name in "123"]
    source = kept[0].value["source"]
    asked: list[FactId] = []

    def known(facts: Sequence[FactId]) -> set[FactId]:
        asked.extend(facts)
        return {FactId(source, "2")}

    assert blobs.sweep(known) == 0, "they are younger than a day"
    assert asked == []
    assert blobs.sweep(known, older_than=_NOW) == 2
    assert sorted(asked) == [(source, name) for name in "123"]
    assert list(blobs.keys()) == [reference(kept[1])["$blob"]]


def test_a_fact_that_is_being_taken_again_is_not_swept(folder: Path) -> None:
    blobs = Blobs.open(f"file://{folder}")
    data = {"turn.id": "t1", "prompt": "x" * _MIB, "more": "y" * _MIB}
    blobs.offload(raw(fact(consent="code", data=data)))
    old, _ = blobs.keys()
    os.utime(folder / old, (0, 0))
    assert blobs.sweep(lambda _: set()) == 0


def test_sweeping_takes_what_a_broken_write_left(folder: Path) -> None:
    blobs = Blobs.open(f"file://{folder}")
    kept = blobs.offload(raw(event("x" * _MIB)))
    left = (folder / reference(kept)["$blob"]).with_name(".0-abc.tmp")
    left.write_bytes(b"half")
    assert len(list(blobs.keys())) == 1
    assert blobs.sweep(set, older_than=_NOW) == 1
    assert not left.exists()
    assert blobs.restore(kept.text)


def test_a_secret_in_a_large_value_is_gone_before_the_value_is_a_blob(blobs: Blobs) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5" * 4
    refine = Refine(Pseudonyms(b"k" * 32), Secrets(), blobs)
    given = raw(event(f"{'x ' * _MIB}{token}{' y' * 1000}", user="alice"))
    [kept] = refine([given])
    text = blobs.restore(kept.text)
    alice = refine.pseudonyms.of("alice")
    assert text == given.text.replace(token, "[REDACTED:github_token]").replace("alice", alice)


def test_a_batch_is_refined_in_order_and_the_refused_ones_say_why(blobs: Blobs) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5" * 4
    refine = Refine(Pseudonyms(b"k" * 32), Secrets(), blobs)
    given = [raw(event("one", user="alice")), raw(event("two", user=token)), raw(event("three"))]
    first, refused, last = refine(given)
    assert first.value["user"] == refine.pseudonyms.of("alice")
    assert (refused.value["user"], refused.problem is None) == (token, False)
    assert last is given[2]


def test_the_store_gives_back_what_was_sent(
    log: Log, store: Store, drain: Drain, blobs: Blobs
) -> None:
    intake = Intake(log, store, Refine(Pseudonyms(), Secrets(), blobs))
    given = raw(event("x" * _MIB, id="1"))
    small = raw(event("x", id="2"))
    too_large = raw(fact(id="3", data={"turn.id": "t" * _MIB}))
    receipt = intake.take([given, small, too_large])
    assert [verdict.status for verdict in receipt.results] == ["accepted", "accepted", "rejected"]
    assert intake.take([given]).results[0].status == "duplicate"
    while drain.step(timeout_s=0):
        pass
    [stored] = store.events("1")
    assert blobs.restore(stored["text"]) == given.text
    [stored] = store.events("2")
    assert blobs.restore(stored["text"]) == small.text
    assert blobs.sweep(store.known, older_than=_NOW) == 0
