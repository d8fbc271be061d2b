"""One suite for every log: what the protocol promises holds on each of them."""

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest.errors import BadInput, TooLarge, Unavailable
from ingest.log import MAX_ENTRY_BYTES, Entry, Log, Record, open_log, position
from tests.ingest.brokers import append_singly
from tests.ingest.logs import GROUP, by_key, read, reading

ABC = [Entry("a", b"1"), Entry("b", b"2"), Entry("a", b"3")]


@pytest.fixture
def log(log_url: str) -> Iterator[Log]:
    opened = open_log(log_url)
    yield opened
    opened.close()


def test_what_was_appended_is_read_in_order_of_each_key(log: Log) -> None:
    expected = {key: [b"%d" % n for n in range(20)] for key in ("a", "b", "c")}
    for n in range(0, 20, 2):
        log.append([Entry(key, b"%d" % m) for m in (n, n + 1) for key in expected])
    with reading(log) as consumer:
        assert by_key(read(consumer, 60)) == expected


def test_offsets_of_a_partition_rise(log: Log) -> None:
    log.append(ABC * 20)
    with reading(log) as consumer:
        places = defaultdict(list)
        for record in read(consumer, 60):
            places[record.partition].append(record.offset)
    assert all(offsets == sorted(set(offsets)) for offsets in places.values())


def test_a_committed_batch_is_not_read_again_after_reopening(log_url: str) -> None:
    first = open_log(log_url)
    first.append(ABC)
    with reading(first) as consumer:
        read(consumer, 3)
        consumer.commit()
    first.close()
    second = open_log(log_url)
    second.append([Entry("a", b"new")])
    with reading(second) as consumer:
        assert [record.value for record in read(consumer, 1)] == [b"new"]
    second.close()


def test_an_uncommitted_batch_is_read_again_after_reopening(log_url: str) -> None:
    first = open_log(log_url)
    first.append(ABC)
    with reading(first) as consumer:
        before = read(consumer, 3)
    first.close()
    second = open_log(log_url)
    with reading(second) as consumer:
        assert sorted(read(consumer, 3)) == sorted(before)
    second.close()


def test_rewinding_reads_again_what_came_after_the_last_commit(log: Log) -> None:
    log.append(ABC)
    with reading(log) as consumer:
        before = read(consumer, 3)
        consumer.rewind()
        assert sorted(read(consumer, 3)) == sorted(before)
        consumer.commit()
        log.append([Entry("a", b"new")])
        assert [record.value for record in read(consumer, 1)] == [b"new"]
        consumer.rewind()
        assert [record.value for record in read(consumer, 1)] == [b"new"]


def test_groups_do_not_take_records_from_each_other(log: Log) -> None:
    append_singly(log, ABC)
    with reading(log, "one") as one, reading(log, "other") as other:
        assert len(read(one, 3)) == 3
        one.commit()
        assert log.lag("other") == 3
        assert len(read(other, 3)) == 3


def test_lag_counts_what_the_group_has_not_committed(log: Log) -> None:
    assert log.lag(GROUP) == 0
    append_singly(log, ABC)
    assert log.lag(GROUP) == 3
    with reading(log) as consumer:
        read(consumer, 3)
        assert log.lag(GROUP) == 3
        consumer.commit()
        assert log.lag(GROUP) == 0
        log.append([Entry("a", b"4")])
        assert log.lag(GROUP) == 1


def test_a_commit_does_not_cover_what_was_not_polled(log: Log) -> None:
    append_singly(log, [Entry("a", b"%d" % n) for n in range(10)])
    with reading(log) as consumer:
        polled: list[Record] = []
        while not polled:
            polled = consumer.poll(max_records=4, max_bytes=1 << 20, timeout_s=1)
        assert [record.value for record in polled] == [b"0", b"1", b"2", b"3"]
        consumer.commit()
        assert log.lag(GROUP) == 6
        consumer.rewind()
        assert [record.value for record in read(consumer, 6)] == [b"%d" % n for n in range(4, 10)]


def test_values_of_one_poll_stay_within_max_bytes_but_for_one_larger_record(log: Log) -> None:
    log.append([Entry("a", bytes(size)) for size in (400, 400, 400, 3000, 100)])
    sizes: list[list[int]] = []
    with reading(log) as consumer:
        while sum(map(len, sizes)) < 5:
            polled = consumer.poll(max_records=10, max_bytes=1000, timeout_s=1)
            sizes += [[len(record.value) for record in polled]] if polled else []
    assert sizes == [[400, 400], [400], [3000], [100]]


def test_a_record_of_5_mib_goes_through(log: Log) -> None:
    value = random.Random(5).randbytes(5 << 20)
    log.append([Entry("a", b"small"), Entry("a", value)])
    with reading(log) as consumer:
        assert [record.value for record in read(consumer, 2)] == [b"small", value]


def test_an_entry_larger_than_the_log_holds_is_refused(log: Log) -> None:
    with pytest.raises(TooLarge):
        log.append([Entry("a", bytes(MAX_ENTRY_BYTES + 1))])
    assert log.append([Entry("a", b"1")])


def test_appending_nothing_has_no_position_and_leaves_nothing(log: Log) -> None:
    assert log.append([]) == ""
    assert log.lag(GROUP) == 0


def test_bytes_and_keys_come_back_as_they_went_in(log: Log) -> None:
    # An editor written in JavaScript may cut a session's name in the middle of a surrogate pair.
    keys = ["", "a\x00b", "é", "\N{ROCKET}", "half \ud83d", "\udc00"]
    values = [b"", b"\x00\xff", bytes(range(256))]
    log.append([Entry(key, value) for key in keys for value in values])
    with reading(log) as consumer:
        assert by_key(read(consumer, 18)) == dict.fromkeys(keys, values)


def test_the_position_of_a_record_is_what_append_said(log: Log) -> None:
    said = {log.append([Entry("x", b"0"), Entry(key, key.encode())]): key for key in "abcdef"}
    with reading(log) as consumer:
        found = {position(record): record.key for record in read(consumer, 12)}
    assert {place: found[place] for place in said} == said


def test_all_that_8_threads_append_arrives_once_and_in_order(log: Log) -> None:
    def append(key: str) -> None:
        for n in range(25):
            log.append([Entry(key, b"%d" % n)])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(append, "abcdefgh"))
    with reading(log) as consumer:
        values = by_key(read(consumer, 200))
    assert values == {key: [b"%d" % n for n in range(25)] for key in "abcdefgh"}


def test_closing_twice_does_nothing_and_leaves_no_thread(log_url: str) -> None:
    before = set(threading.enumerate())
    log = open_log(log_url)
    log.append(ABC)
    consumer = log.consumer(GROUP)
    consumer.poll(max_records=1, max_bytes=1, timeout_s=0.1)
    consumer.close()
    consumer.close()
    log.close()
    log.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(Unavailable):
        log.append(ABC)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "log.db",
        "sqlite://log.db",
        "sqlite:///folder/",
        "redis://127.0.0.1/x",
        "kafka://127.0.0.1:9092",
        "kafka:///topic",
        "kafka://127.0.0.1:9092/..",
        "kafka://127.0.0.1:9092/a/b",
    ],
)
def test_a_url_of_no_log_is_named(url: str) -> None:
    with pytest.raises(BadInput, match="kafka://") as refused:
        open_log(url)
    assert f'"{url}"' in refused.value.detail
