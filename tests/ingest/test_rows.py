"""Rows of the store: read all at once or one by one, a fact is the same row."""

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingest._packed import pack
from ingest._rows import COLUMNS, rows_of
from ingest.log import Record
from ingest.wire import split_batch

RECEIVED = datetime(2026, 11, 30, 12, tzinfo=UTC)
ODD = st.one_of(st.none(), st.text(max_size=8), st.integers(), st.lists(st.integers(), max_size=2))
TIMES = st.one_of(
    st.none(),
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    st.sampled_from(
        ["2026-11-30T12:00:00.1234567Z", "2026-11-30 12:00:00+09:00", "1899-01-01T00:00:00Z"]
    ),
)
TEXTS = st.one_of(st.none(), st.text(max_size=8))


@st.composite
def facts(draw: st.DrawFn) -> dict[str, Any]:
    """A good fact of a type that nobody knows, so that its data may be anything."""
    wire: dict[str, Any] = {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "com.example.odd",
    }
    for name in ("subject", "user", "organization", "partitionkey"):
        if (text := draw(TEXTS)) is not None:
            wire[name] = text
    if (time := draw(TIMES)) is not None:
        wire["time"] = time
    if draw(st.booleans()):
        wire["sequence"] = draw(st.integers(0, 2**31 - 1))
    names = [
        "gen_ai.conversation.id",
        "turn.id",
        "diff.id",
        "experiment",
        "assigned",
        "variant",
        "x",
    ]
    wire["data"] = draw(st.one_of(ODD, st.dictionaries(st.sampled_from(names), ODD)))
    return wire


def rows(value: bytes) -> list[dict[str, Any]]:
    found = rows_of([Record(0, 7, "k", value, "log")])
    assert not found.dead
    return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*found.events, strict=True)]


@given(st.lists(facts(), min_size=1, max_size=4))
def test_a_fact_is_the_same_row_whether_its_record_says_that_it_was_judged(
    wires: list[dict[str, Any]],
) -> None:
    value = pack(split_batch(json.dumps(wires).encode()), RECEIVED, None)
    head, _, body = value.partition(b"\n")
    unjudged = {name: said for name, said in json.loads(head).items() if name.endswith("_at")}
    assert rows(value) == rows(json.dumps(unjudged).encode() + b"\n" + body)


def test_a_record_from_the_end_of_time_becomes_a_dead_letter() -> None:
    head = {"received_at": "9999-12-31T23:59:59+00:00", "sent_at": None}
    found = rows_of([Record(0, 7, "k", json.dumps(head).encode() + b"\n[]", "log")])
    assert [reason for _, _, reason, _ in found.dead] == ["not a record of ours: OverflowError"]
