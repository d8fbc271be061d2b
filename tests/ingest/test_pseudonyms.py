"""With a key, no user's name reaches the log, and facts still join by user."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest._pseudonyms import Pseudonyms
from ingest.errors import BadInput
from ingest.wire import Raw, read_one
from tests.facts import fact

_KEY = "k" * 32


@pytest.fixture
def pseudonyms(tmp_path: Path) -> Pseudonyms:
    key = tmp_path / "keys" / "users"
    key.parent.mkdir()
    key.write_text(_KEY)
    return Pseudonyms.open(str(key), data=tmp_path / "data")


def kept(pseudonyms: Pseudonyms, *facts: dict[str, Any]) -> list[dict[str, Any]]:
    batch = pseudonyms([read_one(json.dumps(each).encode()) for each in facts])
    assert all(raw.value == json.loads(raw.text) for raw in batch)
    return [raw.value for raw in batch]


def test_one_user_has_one_pseudonym_in_all_kinds_of_facts(pseudonyms: Pseudonyms) -> None:
    alice = pseudonyms.of("alice@example.com")
    assert re.fullmatch("u_[0-9a-f]{32}", alice)
    exposure = {"assignment": "a", "unit_type": "user", "unit": "alice@example.com"}
    turn, vote, exposed = kept(
        pseudonyms,
        fact(user="alice@example.com"),
        fact("feedback.submitted", data={"rater": "alice@example.com"}),
        fact(
            "experiment.exposed",
            user="alice@example.com",
            partitionkey="alice@example.com",
            data=exposure,
        ),
    )
    assert turn["user"] == vote["data"]["rater"] == alice
    assert exposed["user"] == exposed["partitionkey"] == exposed["data"]["unit"] == alice
    assert pseudonyms.of("bob") != alice


def test_what_names_no_user_stays(pseudonyms: Pseudonyms) -> None:
    given = [
        fact(subject="t1", partitionkey="c1", organization="acme"),
        fact("feedback.submitted", data={"rater": "key:0a1b"}),
        fact("experiment.exposed", data={"unit_type": "organization", "unit": "acme"}),
        fact("tool.called", data={"gen_ai.tool.call.arguments": {"user": "root", "unit": "x"}}),
        fact(user=""),
    ]
    assert kept(pseudonyms, *given) == given


def test_a_pseudonym_is_not_changed_again(pseudonyms: Pseudonyms) -> None:
    once = kept(pseudonyms, fact(user="alice"))
    assert kept(pseudonyms, *once) == once


def test_a_made_up_pseudonym_is_a_user_like_any_other(pseudonyms: Pseudonyms) -> None:
    real = pseudonyms.of("alice")
    forged = real[:-1] + ("0" if real[-1] != "0" else "1")
    assert pseudonyms.of(forged) not in (forged, real)


@given(st.text(min_size=1))
def test_any_name_gets_a_pseudonym_that_stays(name: str) -> None:
    pseudonyms = Pseudonyms(_KEY.encode())
    assert re.fullmatch("u_[0-9a-f]{32}", pseudonyms.of(name))
    assert pseudonyms.of(pseudonyms.of(name)) == pseudonyms.of(name)


def test_another_key_gives_other_pseudonyms(pseudonyms: Pseudonyms) -> None:
    other = Pseudonyms(b"o" * 32)
    alice = pseudonyms.of("alice")
    assert other.of("alice") != alice
    assert other.of(alice) != alice


@pytest.mark.parametrize(
    "text",
    [
        '{ "user" : "alice", "n": 1.0e+2, "data": {"t": "\\u00e9\\/ alice", "rater":"alice"}}',
        '{"data": {"rater": "alice", "messages": [{"role": "user", "user": "alice"}]}, "user": "alice"}',
        '{"us\\u0065r": "al\\u0069ce", "data": "alice"}',
    ],
)
def test_only_the_names_of_users_change_in_the_text(pseudonyms: Pseudonyms, text: str) -> None:
    [raw] = pseudonyms([read_one(text.encode())])
    alice = f'"{pseudonyms.of("alice")}"'
    expected = re.sub(
        r'("user" ?|"rater"|"us\\u0065r"): ?"al(i|\\u0069)ce"', _replaced(alice), text
    )
    assert raw.text == expected.replace(
        f'"role": "user", "user": {alice}', '"role": "user", "user": "alice"'
    )
    assert raw.value == json.loads(raw.text)


def _replaced(new: str) -> Any:
    return lambda found: re.sub(r'"al(i|\\u0069)ce"$', new, found[0])


@pytest.mark.parametrize(
    "text",
    [
        '{"data":{"rater":"alice","rater":"bob"}}',
        '{"user":"bob","data":{"rater":"alice","unit":1},"data":{}}',
        '{"data":{"unit_type":"user","unit":"alice","unit":"alice"}}',
    ],
)
def test_a_field_said_twice_hides_no_user(pseudonyms: Pseudonyms, text: str) -> None:
    [raw] = pseudonyms([read_one(text.encode())])
    assert "alice" not in raw.text


def test_an_imported_history_does_not_name_its_user(pseudonyms: Pseudonyms) -> None:
    [imported] = kept(pseudonyms, fact(user="al/ice", source="/import/aider/al%2Fice"))
    assert imported["source"] == f"/import/aider/{pseudonyms.of('al/ice')}"
    assert imported["source"] == pseudonyms.of_source("/import/aider/al%2Fice")
    assert kept(pseudonyms, imported) == [imported]


def test_without_a_key_users_are_kept_as_sent(tmp_path: Path) -> None:
    pseudonyms = Pseudonyms.open("", data=tmp_path)
    batch = [Raw('{"user":"alice"}', {"user": "alice"})]
    assert pseudonyms(batch) is batch
    assert pseudonyms.of("alice") == "alice"
    assert pseudonyms.of_source("/import/aider/alice") == "/import/aider/alice"


def test_a_missing_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: Pseudonyms.open(str(file), data=tmp_path / "d"), range(8)))
    assert len({each.of("alice") for each in opened}) == 1
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_the_key_is_refused_inside_the_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.symlink_to(data / "deep" / "key")
    for file in (data / "key", data / "deep" / ".." / "key", outside):
        with pytest.raises(BadInput, match=r"pseudonyms: .* keep the key elsewhere"):
            Pseudonyms.open(str(file), data=data)


def test_a_key_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret")
    for name in ("short", "short/key"):
        with pytest.raises(BadInput, match="pseudonyms: "):
            Pseudonyms.open(str(tmp_path / name), data=tmp_path / "data")
