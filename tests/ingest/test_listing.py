import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from ingest._listing import END, Listing, Wanted
from ingest._rows import COLUMNS
from ingest.errors import BadInput
from ingest.store import Store
from tests.facts import fact
from tests.running import Running

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
Put = Callable[..., str]


@pytest.fixture
def put(store: Store) -> Put:
    """Stores one fact at a place of the log, as a drain does, and gives its id."""

    def putting(position: str, *, at: datetime = AT, **named: Any) -> str:
        event = fact(**named)
        row = dict.fromkeys(COLUMNS, "") | {
            "source": event["source"], "id": event["id"], "type": event["type"], "time": None,
            "sent_at": None, "received_at": at, "sequence": event.get("sequence", 0),
            "user": event.get("user", ""), "conversation": event.get("partitionkey", ""),
            "position": position, "body": json.dumps(event),
        }  # fmt: skip
        token = f"{position} {event['id']}"
        store.insert("events", COLUMNS, [[row[name] for name in COLUMNS]], token=token)
        return str(event["id"])

    return putting


def pages(
    listing: Listing, after: str = "", *, limit: int = 3, wanted: Wanted | None = None
) -> Iterator[list[str]]:
    """The ids of each page until there is no more."""
    more = True
    while more:
        page = listing.page(wanted or Wanted(), after=after, limit=limit)
        after, more = page.after, page.more
        yield [json.loads(text)["id"] for text in page.facts]


def listed(listing: Listing, after: str = "", **how: Any) -> list[str]:
    return [each for page in pages(listing, after, **how) for each in page]


def test_facts_come_in_the_order_of_the_log_whatever_the_clocks_say(store: Store, put: Put) -> None:
    days = [0, 1, -1, 3, -2, 0, 0]
    ids = [
        put(f"local/0/{offset}", at=AT + timedelta(days=day))
        for offset, day in enumerate(days, start=8)
    ]
    assert listed(Listing(store)) == ids


def test_offsets_are_numbers_and_not_words(store: Store, put: Put) -> None:
    ids = {offset: put(f"local/0/{offset}") for offset in (9, 10, 100, 99)}
    assert listed(Listing(store)) == [ids[9], ids[10], ids[99], ids[100]]


def test_one_record_larger_than_a_page_loses_and_repeats_nothing(store: Store, put: Put) -> None:
    ids = [put("local/0/7", sequence=number % 4) for number in range(11)]
    found = listed(Listing(store), limit=2)
    assert sorted(found) == sorted(ids)


def test_a_fact_that_becomes_queryable_late_is_not_skipped(store: Store, put: Put) -> None:
    """A partition whose drain was away fills up behind the others, with older times of receipt."""
    listing = Listing(store)
    first = [put(f"t/0/{offset}", at=AT) for offset in range(5)]
    page = listing.page(Wanted(), after="", limit=100)
    assert [json.loads(text)["id"] for text in page.facts] == first
    late = [put(f"t/1/{offset}", at=AT - timedelta(hours=1)) for offset in range(5)]
    more = [put(f"t/0/{offset}", at=AT - timedelta(days=1)) for offset in range(5, 8)]
    assert sorted(listed(listing, page.after)) == sorted(late + more)


@pytest.mark.parametrize("seed", range(2))
def test_a_reader_beside_several_drains_gets_every_fact_once_in_its_partitions_order(
    store: Store, put: Put, seed: int
) -> None:
    random = Random(seed)
    partitions = {number: iter(range(12)) for number in range(3)}
    listing, after = Listing(store), ""
    written: dict[int, list[str]] = {number: [] for number in partitions}
    read: list[str] = []
    for _ in range(25):
        number = random.choice(list(partitions))
        at = AT + timedelta(seconds=random.randrange(-90_000, 90_000))
        for offset in (next(partitions[number], None) for _ in range(random.randrange(4))):
            if offset is not None:
                written[number].append(put(f"t/{number}/{offset}", at=at))
        page = listing.page(Wanted(), after=after, limit=random.randrange(1, 5))
        after = page.after
        read += [json.loads(text)["id"] for text in page.facts]
    read += listed(listing, after)
    assert len(read) == len(set(read))
    for ids in written.values():
        assert [each for each in read if each in set(ids)] == ids


def test_from_the_end_only_what_comes_is_listed_also_of_new_partitions(
    store: Store, put: Put
) -> None:
    listing = Listing(store)
    put("t/0/5")
    end = listing.page(Wanted(), after=END, limit=10)
    assert (end.facts, end.more) == ([], False)
    assert listed(listing, end.after) == []
    new = [put("t/0/6"), put("t/1/0")]
    assert sorted(listed(listing, end.after)) == sorted(new)


def test_an_empty_store_has_an_end_too(store: Store, put: Put) -> None:
    listing = Listing(store)
    end = listing.page(Wanted(), after=END, limit=10).after
    assert listed(listing, end) == []
    assert listed(listing, end) == []
    new = put("local/0/1")
    assert listed(listing, end) == [new]


def test_filters_choose_and_the_cursor_goes_on(store: Store, put: Put) -> None:
    listing = Listing(store)
    mine = [put(f"local/0/{o}", user="u1", partitionkey=f"c{o % 2}") for o in range(1, 7)]
    put("local/0/7", kind="turn.completed", user="u2")
    assert listed(listing, wanted=Wanted(user="u1")) == mine
    assert listed(listing, wanted=Wanted(user="u1", conversation="c0")) == mine[1::2]
    assert listed(listing, wanted=Wanted(type="thumbwheel.turn.submitted.v1")) == mine
    assert listed(listing, wanted=Wanted(user="' OR 1=1 --\\")) == []
    assert listed(listing, wanted=Wanted(since=AT + timedelta(microseconds=1))) == []
    assert len(listed(listing, wanted=Wanted(since=AT))) == 7


def test_a_page_stays_within_its_bytes_and_a_large_fact_still_comes(
    store: Store, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest._listing.MAX_PAGE_BYTES", 2_000)
    sizes = [100, 100, 5_000, 100, 1_900, 1_900]
    ids = [put(f"local/0/{n}", data={"x": "x" * size}) for n, size in enumerate(sizes)]
    found = list(pages(Listing(store), limit=10))
    assert [each for page in found for each in page] == ids
    assert [len(page) for page in found] == [2, 1, 1, 1, 1]


@pytest.mark.parametrize("after", ["x", "e30=x", "W10", "eyJhIjogWy0xLCAwLCAwXX0", "é", "\x00"])
def test_a_cursor_that_is_none_is_refused_by_name(store: Store, after: str) -> None:
    with pytest.raises(BadInput, match="after"):
        Listing(store).page(Wanted(), after=after, limit=1)


def test_facts_come_over_http_as_they_are_stored(running: Running) -> None:
    odd = fact(user="u1", data={"turn.id": "t", "x": "\ud800 \N{SNOWMAN}"})
    plain = [fact(user="u1", sequence=number + 1) for number in range(3)]
    end = running.http.get("/v1/events", params={"after": "end"}).json()
    assert (end["events"], end["more"]) == ([], False)
    running.http.post("/v1/events", content=json.dumps([odd, *plain]))
    running.until_stored()
    answer = running.http.get("/v1/events", params={"after": end["after"], "user": "u1"})
    page = json.loads(answer.text)
    assert [each["id"] for each in page["events"]] == [odd["id"], *(e["id"] for e in plain)]
    assert odd.items() <= page["events"][0].items()
    assert page["events"][0]["received_at"].endswith("+00:00")
    assert page["events"][0]["position"]


def test_following_facts_leaves_single_facts_where_they_were(running: Running) -> None:
    event = fact()
    running.http.post("/v1/events", json=[event])
    running.until_stored()
    assert running.http.get(f"/v1/events/{event['id']}").json()["id"] == event["id"]
    assert running.http.post("/v1/events/audit", json={"facts": []}).status_code == 422
    assert [e["id"] for e in running.http.get("/v1/events").json()["events"]] == [event["id"]]
    with running.with_scopes("ingest", "admin") as others:
        assert others.get("/v1/events").status_code == 403


@pytest.mark.parametrize(
    "query",
    [{"limit": "0"}, {"limit": "1001"}, {"after": "x"}, {"since": "noon"}, {"sicne": "now"}],
)
def test_a_wrong_question_names_its_field(running: Running, query: dict[str, str]) -> None:
    answer = running.http.get("/v1/events", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == next(iter(query))


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"])
def test_times_beyond_what_the_store_holds_are_answered(running: Running, since: str) -> None:
    assert running.http.get("/v1/events", params={"since": since}).json()["events"] == []


@pytest.mark.parametrize("odd", ["\x00", "a\tb\\n'\"", "\\", "{x:String}", "%", "\U0001f600"])
def test_odd_filters_are_values_and_nothing_else(running: Running, odd: str) -> None:
    event = fact(user=odd)
    running.http.post("/v1/events", json=[event, fact(user="other")])
    running.until_stored()
    found = running.http.get("/v1/events", params={"user": odd}).json()["events"]
    assert [each["id"] for each in found] == [event["id"]]
