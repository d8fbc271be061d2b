"""One suite for every log: batches that stay the same, and records that are done and go."""

from collections import defaultdict
from collections.abc import Iterator

import pytest

from ingest.log import Entry, Log, Record, open_log, position
from tests.ingest.brokers import append_singly
from tests.ingest.logs import GROUP, poll, read, reading

# tansu keeps no metadata of commits, which is where Kafka keeps what is intended, and hangs up when
# it is asked to delete records.
complete = pytest.mark.parametrize("log_url", ["sqlite", "kafka"], indirect=True)

TEN = [Entry("a", b"%d" % n) for n in range(10)]


@pytest.fixture
def log(log_url: str) -> Iterator[Log]:
    opened = open_log(log_url)
    yield opened
    opened.close()


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value) for record in records]


def test_the_records_of_one_poll_are_of_one_partition(log: Log) -> None:
    log.append([Entry(f"{n % 40}", b"%d" % n) for n in range(400)])
    found: list[list[Record]] = []
    with reading(log) as consumer:
        while sum(len(records) for records in found) < 400:
            found.append(poll(consumer, max_records=30))
    assert all(len({record.partition for record in records}) == 1 for records in found)
    places: dict[int, list[int]] = defaultdict(list)
    for records in found:
        places[records[0].partition] += [record.offset for record in records]
    assert all(offsets == sorted(set(offsets)) for offsets in places.values())
    assert sorted(number for records in found for number in numbers(records)) == list(range(400))


@complete
def test_an_intended_batch_is_the_same_after_a_rewind_whatever_the_limits(log: Log) -> None:
    append_singly(log, TEN)
    with reading(log) as consumer:
        assert numbers(poll(consumer, max_records=4)) == [0, 1, 2, 3]
        consumer.intend()
        for limits in ({"max_records": 500}, {"max_records": 1}, {"max_bytes": 1}):
            consumer.rewind()
            assert numbers(poll(consumer, **limits)) == [0, 1, 2, 3]
        assert log.lag(GROUP) == 10
        assert numbers(poll(consumer, max_records=3)) == [4, 5, 6]


@complete
def test_an_intended_batch_is_the_same_after_reopening(log_url: str) -> None:
    first = open_log(log_url)
    append_singly(first, TEN[:4])
    with reading(first) as consumer:
        read(consumer, 4)
        consumer.intend()
    append_singly(first, TEN[4:])
    first.close()
    second = open_log(log_url)
    with reading(second) as consumer:
        assert numbers(poll(consumer)) == [0, 1, 2, 3]
        consumer.commit()
        assert numbers(read(consumer, 6)) == [4, 5, 6, 7, 8, 9]
    second.close()


@complete
def test_an_intended_batch_is_the_groups_own(log: Log) -> None:
    append_singly(log, TEN)
    with reading(log, "one") as one, reading(log, "other") as other:
        poll(one, max_records=4)
        one.intend()
        assert numbers(poll(other, max_records=7)) == [0, 1, 2, 3, 4, 5, 6]


@complete
def test_a_commit_ends_the_intended_batch(log: Log) -> None:
    append_singly(log, TEN)
    with reading(log) as consumer:
        poll(consumer, max_records=4)
        consumer.intend()
        consumer.commit()
        assert log.lag(GROUP) == 6
        assert numbers(poll(consumer, max_records=2)) == [4, 5]
        consumer.rewind()
        assert numbers(poll(consumer, max_records=3)) == [4, 5, 6]


@complete
def test_intending_anew_replaces_the_batch(log: Log) -> None:
    append_singly(log, TEN)
    with reading(log) as consumer:
        poll(consumer, max_records=2)
        consumer.intend()
        poll(consumer, max_records=3)
        consumer.intend()
        consumer.rewind()
        assert numbers(poll(consumer, max_records=1)) == [0, 1, 2, 3, 4]


@complete
def test_what_several_polls_brought_is_one_batch_of_each_partition(log: Log) -> None:
    log.append([Entry(f"{n % 40}", b"%d" % n) for n in range(400)])
    with reading(log) as consumer:
        intended: dict[int, list[Record]] = defaultdict(list)
        for _ in range(6):
            records = poll(consumer, max_records=20)
            intended[records[0].partition] += records
        consumer.intend()
        consumer.rewind()
        again: dict[int, list[Record]] = {}
        while not intended.keys() <= again.keys():
            records = poll(consumer, max_records=1)
            again.setdefault(records[0].partition, records)
    assert {place: again[place] for place in intended} == intended


@complete
def test_intending_tells_whether_the_batch_was_intended_before(log_url: str) -> None:
    log = open_log(log_url)
    append_singly(log, TEN)
    with reading(log) as consumer:
        poll(consumer, max_records=3)
        assert not consumer.intend()
        consumer.rewind()
        poll(consumer)
        assert consumer.intend()
        consumer.commit()
        poll(consumer, max_records=2)
        consumer.rewind()
        poll(consumer, max_records=2)
        assert not consumer.intend()
    log.close()
    reopened = open_log(log_url)
    with reading(reopened) as consumer:
        assert numbers(poll(consumer)) == [3, 4]
        assert consumer.intend()
        consumer.commit()
        poll(consumer)
        assert not consumer.intend()
    reopened.close()


@complete
def test_intending_and_committing_nothing_changes_nothing(log: Log) -> None:
    append_singly(log, TEN[:2])
    with reading(log) as consumer:
        consumer.intend()
        consumer.commit()
        assert numbers(read(consumer, 2)) == [0, 1]


@complete
def test_a_trim_takes_what_the_group_has_committed_and_no_more(log: Log) -> None:
    append_singly(log, TEN)
    assert log.trim(GROUP) == 0
    with reading(log) as consumer:
        poll(consumer, max_records=4)
        assert log.trim(GROUP) == 0
        consumer.commit()
        poll(consumer, max_records=3)
        consumer.intend()
        assert log.trim(GROUP) == 4
        assert log.trim(GROUP) == 0
        assert log.lag(GROUP) == 6
    with reading(log, "new") as other:
        assert numbers(read(other, 6)) == [4, 5, 6, 7, 8, 9]


@complete
def test_positions_go_on_after_a_trim_of_everything_and_reopening(log_url: str) -> None:
    first = open_log(log_url)
    append_singly(first, TEN)
    with reading(first) as consumer:
        read(consumer, 10)
        consumer.commit()
    assert first.trim(GROUP) == 10
    assert (first.lag(GROUP), first.lag("new")) == (0, 0)
    first.close()
    second = open_log(log_url)
    assert (second.lag(GROUP), second.lag("new")) == (0, 0)
    place = second.append([Entry("a", b"11")])
    assert second.lag(GROUP) == 1
    with reading(second) as consumer, reading(second, "new") as other:
        for each in (consumer, other):
            [record] = read(each, 1)
            assert (position(record), record.value) == (place, b"11")
            assert record.offset in {10, 11}  # Kafka counts from 0
    second.close()


@complete
def test_a_reader_that_a_trim_overtook_goes_on_after_it(log: Log) -> None:
    append_singly(log, TEN)
    with reading(log) as consumer, reading(log, "slow") as slow:
        assert numbers(poll(slow, max_records=2)) == [0, 1]
        slow.intend()
        read(consumer, 10)
        consumer.commit()
        assert log.trim(GROUP) == 10
        slow.rewind()
        log.append([Entry("a", b"10")])
        assert numbers(read(slow, 1)) == [10]
