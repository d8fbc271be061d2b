import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from ingest._dead_letters import DeadLetters
from ingest._rows import DEAD_COLUMNS, WHOLE_RECORD
from ingest.drain import Drain
from ingest.errors import BadInput, NotFound, TooLarge, Unavailable
from ingest.intake import Intake
from ingest.log import Entry, Log
from ingest.store import Store
from tests.facts import fact
from tests.running import Running


@dataclass(frozen=True)
class Mailbag:
    """Dead letters as a drain of any version writes them."""

    store: Store
    letters: DeadLetters
    drain: Drain

    def add(self, raw: bytes | object, *, at: int, index: int = 0, reason: str = "broken") -> str:
        content = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
        row = (f"local/0/{at}", index, reason, content)
        self.store.insert("dead_letters", DEAD_COLUMNS, [row], token=f"{at}/{index}")
        return f"local:0:{at}:{'whole' if index == WHOLE_RECORD else index}"

    def stored(self) -> list[str]:
        while self.drain.step(timeout_s=0):
            pass
        rows = self.store.rows("SELECT id FROM events FINAL ORDER BY position, sequence")
        return [row["id"] for row in rows]

    def status(self, id: str) -> tuple[str, str | None, str]:
        letter = self.letters.show(id)
        return letter["status"], letter["verdict"], letter["reason"]


@pytest.fixture
def bag(store: Store, intake: Intake, drain: Drain) -> Mailbag:
    return Mailbag(store, DeadLetters(store, intake), drain)


def test_what_a_drain_could_not_read_is_listed_newest_first_without_its_bytes(
    bag: Mailbag, log: Log
) -> None:
    log.append([Entry("k", b"\xff\x00 not ours")])
    head = json.dumps({"received_at": "2026-11-30T00:00:00+00:00", "sent_at": None})
    log.append([Entry("k", f'{head}\n[7, {{"id": "x"}}]'.encode())])
    bag.stored()
    listed, after = bag.letters.newest(limit=10)
    assert after is None
    assert {letter["id"] for letter in listed} == {
        "local:0:1:whole", "local:0:2:0", "local:0:2:1",
    }  # fmt: skip
    whole = next(letter for letter in listed if letter["fact"] is None)
    assert (whole["size"], whole["status"], whole["verdict"]) == (11, "waiting", None)
    assert all(letter["reason"] for letter in listed)
    assert all("raw" not in letter for letter in listed)


def test_raw_bytes_are_shown_as_they_were(bag: Mailbag) -> None:
    odd = b"\xff\x00 \x80 not text"
    text = '{"a": "\\ud800 \N{SNOWMAN}\x00"}'.encode()
    shown = bag.letters.show(bag.add(odd, at=1))
    assert (shown["encoding"], base64.b64decode(shown["raw"])) == ("base64", odd)
    shown = bag.letters.show(bag.add(text, at=2))
    assert (shown["encoding"], shown["raw"].encode()) == ("utf-8", text)


def test_pages_hold_every_letter_once(bag: Mailbag) -> None:
    ids = {bag.add(b"x", at=at) for at in range(1, 26)}
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        listed, after = bag.letters.newest(limit=7, after=after)
        seen += [letter["id"] for letter in listed]
    assert sorted(seen) == sorted(ids)
    with pytest.raises(BadInput, match="after"):
        bag.letters.newest(limit=7, after="nonsense")


def test_a_letter_that_is_a_fact_after_all_is_resolved_and_stored(bag: Mailbag) -> None:
    event = fact()
    letter = bag.add(event, at=5, index=3)
    assert bag.letters.replay(letter).verdict == "accepted"
    assert bag.stored() == [event["id"]]
    assert bag.status(letter) == ("resolved", "accepted", "broken")
    assert bag.letters.counts() == {"waiting": 0, "resolved": 1}


def test_replaying_twice_changes_nothing_more(bag: Mailbag, log: Log) -> None:
    letter = bag.add(fact(), at=5)
    first = bag.letters.replay(letter)
    lag = log.lag("store")
    assert bag.letters.replay(letter) == first
    assert log.lag("store") == lag


def test_a_letter_that_is_still_no_fact_waits_on_with_the_new_reason(bag: Mailbag) -> None:
    letter = bag.add(fact(time="noon"), at=5, reason="an older reason")
    outcome = bag.letters.replay(letter)
    assert outcome.verdict == "rejected"
    assert outcome.reason.startswith("time: ")
    assert bag.status(letter) == ("waiting", "rejected", outcome.reason)
    assert bag.stored() == []


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"", b"7", b"[[1]", b"{", b"\x00", b"[" * 100_000])
def test_bytes_that_are_no_json_wait_on(bag: Mailbag, raw: bytes) -> None:
    for index in (0, WHOLE_RECORD):
        outcome = bag.letters.replay(bag.add(raw, at=9, index=index))
        assert outcome.verdict == "rejected"
        assert outcome.reason


def test_a_whole_record_may_be_one_event_or_an_array_of_them(bag: Mailbag) -> None:
    one, two, three = (fact(sequence=number) for number in range(3))
    assert bag.letters.replay(bag.add(one, at=1, index=WHOLE_RECORD)).verdict == "accepted"
    assert bag.letters.replay(bag.add([two, three], at=2, index=WHOLE_RECORD)).verdict == "accepted"
    assert bag.stored() == [one["id"], two["id"], three["id"]]
    empty = bag.letters.replay(bag.add(b"[]", at=3, index=WHOLE_RECORD))
    assert (empty.verdict, empty.reason) == ("rejected", "holds no event")


def test_of_an_array_the_good_ones_are_taken_and_the_letter_waits_for_the_bad(bag: Mailbag) -> None:
    good = fact()
    letter = bag.add([good, {"id": "bad"}, 7], at=1, index=WHOLE_RECORD)
    outcome = bag.letters.replay(letter)
    assert outcome.verdict == "rejected"
    assert outcome.reason.startswith("2 of 3 events: ")
    assert bag.letters.replay(letter).verdict == "rejected"
    assert bag.stored() == [good["id"]]


class _DiesAfterTaking:
    """The real store until a replay is to be marked."""

    def __init__(self, store: Store) -> None:
        self.rows = store.rows

    def insert(self, *_: Any, **__: Any) -> None:
        raise Unavailable("store: the process died here")


def test_a_crash_between_taking_and_marking_is_repeated_without_a_second_row(
    bag: Mailbag, intake: Intake, log: Log, store: Store
) -> None:
    event = fact()
    letter = bag.add(event, at=1)
    dying = DeadLetters(_DiesAfterTaking(store), intake)  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        dying.replay(letter)
    assert bag.status(letter)[0] == "waiting"
    assert bag.stored() == [event["id"]]
    after_restart = DeadLetters(store, Intake(log, store))
    assert after_restart.replay(letter).verdict == "duplicate"
    assert bag.status(letter)[:2] == ("resolved", "duplicate")
    assert bag.stored() == [event["id"]]


def test_a_letter_that_the_drain_writes_again_stays_resolved(bag: Mailbag) -> None:
    event = fact()
    letter = bag.add(event, at=1)
    bag.letters.replay(letter)
    row = ("local/0/1", 0, "broken", json.dumps(event).encode())
    bag.store.insert("dead_letters", DEAD_COLUMNS, [row], token="a batch of another cut")
    assert bag.status(letter)[0] == "resolved"
    assert bag.letters.replay_some() == ([], None)


def all_chunks(letters: DeadLetters) -> tuple[list[str], int]:
    """The verdicts, and how many chunks it took."""
    verdicts: list[str] = []
    after: str | None = ""
    chunks = 0
    while after is not None:
        outcomes, after = letters.replay_some(after)
        verdicts += [outcome.verdict for outcome in outcomes]
        chunks += 1
    return verdicts, chunks


def test_all_that_wait_are_replayed_in_bounded_chunks(
    bag: Mailbag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest._dead_letters.MAX_CHUNK", 10)
    good = [fact(sequence=number) for number in range(20)]
    for number, event in enumerate(good):
        bag.add(event, at=number + 1)
    for number in range(5):
        bag.add(fact(time="noon"), at=100 + number)
    bag.add(good[0], at=200)
    verdicts, chunks = all_chunks(bag.letters)
    assert chunks == 3
    assert verdicts.count("accepted") == 21  # what the log has and the store has not is sent again
    assert verdicts.count("rejected") == 5
    assert sorted(bag.stored()) == sorted(event["id"] for event in good)
    assert all_chunks(bag.letters)[0] == ["rejected"] * 5


def test_large_letters_make_small_chunks(bag: Mailbag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest._dead_letters.MAX_CHUNK_BYTES", 1_000)
    for number in range(4):
        bag.add(fact(data={"turn.id": "t" * 700}), at=number + 1)
    verdicts, chunks = all_chunks(bag.letters)
    assert (verdicts, chunks) == (["accepted"] * 4, 4)


class _NarrowLog:
    """A log whose record holds one small fact."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def append(self, entries: Sequence[Entry]) -> str:
        if any(len(entry.value) > 700 for entry in entries):
            raise TooLarge("more than the log can hold")
        return self._log.append(entries)


def test_what_is_too_large_together_is_sent_one_by_one(
    bag: Mailbag, log: Log, store: Store
) -> None:
    small = [bag.add(fact(), at=number + 1) for number in range(4)]
    large = bag.add(fact(data={"turn.id": "t" * 900}), at=9)
    letters = DeadLetters(store, Intake(_NarrowLog(log), store))  # type: ignore[arg-type]
    outcomes, _ = letters.replay_some()
    assert {outcome.id: outcome.verdict for outcome in outcomes} == {
        **dict.fromkeys(small, "accepted"), large: "rejected",
    }  # fmt: skip


def test_what_only_a_server_mints_can_be_replayed(bag: Mailbag) -> None:
    exposure = {
        "assignment": "a", "experiment": "e", "version": 1, "unit_type": "user", "unit": "u",
        "assigned": "b", "received": "b", "propensity": 0.5, "reason": "randomised",
    }  # fmt: skip
    event = fact("experiment.exposed", source="/serving", data=exposure)
    assert bag.letters.replay(bag.add(event, at=1)).verdict == "accepted"


@pytest.mark.parametrize("id", ["", "x", "local/0/1", "local:0:1", "local:0:1:9", "a:b:c:d"])
def test_an_unknown_id_is_not_found(bag: Mailbag, id: str) -> None:
    bag.add(b"x", at=1)
    with pytest.raises(NotFound, match="dead-letters list"):
        bag.letters.show(id)
    with pytest.raises(NotFound):
        bag.letters.replay(id)


def test_an_operator_sees_shows_and_replays_over_http(running: Running) -> None:
    store = running.server.ingest.store
    event, broken = fact(), fact(time="noon")
    for at, content in enumerate((event, broken), start=1):
        row = (f"local/0/{at}", 0, "broken", json.dumps(content).encode())
        store.insert("dead_letters", DEAD_COLUMNS, [row], token=str(at))
    page = running.http.get("/v1/dead-letters", params={"status": "waiting"}).json()
    assert [letter["id"] for letter in page["dead_letters"]] == ["local:0:2:0", "local:0:1:0"]
    shown = running.http.get("/v1/dead-letters/local:0:1:0").json()
    assert json.loads(shown["raw"]) == event
    once = running.http.post("/v1/dead-letters/local:0:1:0/replay").json()
    assert once == {"id": "local:0:1:0", "verdict": "accepted", "reason": None}
    rest = running.http.post("/v1/dead-letters/replay").json()
    assert rest == {"accepted": 0, "duplicate": 0, "rejected": 1, "after": None}
    assert running.http.get("/v1/dead-letters/nowhere").status_code == 404
    noted = running.http.get("/v1/audit").json()["entries"][:2]
    assert [(each["target"], each["outcome"]) for each in noted] == [
        ("waiting", "0 accepted, 0 duplicate, 1 rejected"), ("local:0:1:0", "accepted"),
    ]  # fmt: skip
    with running.with_scopes("ingest", "serve", "analyst", "ml") as others:
        for path in ("/v1/dead-letters", "/v1/dead-letters/local:0:1:0"):
            assert others.get(path).status_code == 403
        assert others.post("/v1/dead-letters/replay").status_code == 403
