import gzip
import json
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ingest.drain import Drain
from ingest.errors import BadInput
from ingest.events import CONSENT_LEVELS, Consent
from ingest.importers import NotAHistory, read_history
from ingest.intake import Intake
from ingest.store import Store
from ingest.wire import split_batch
from tests.facts import fact

ODD = (
    '{"specversion":"1.0","id":"a","source":"/x","type":"t","data":{"b":1.0,"a":1e2,"c":"\\u00e9"}}',
    ' {"type" : "t", "specversion": "1.0", "source":"/x","id":"b", "data": "\\ud83d", "data2":[]}',
    '{"specversion":"1.0","id":"c","source":"/x","type":"t","data":{"n":123456789012345678901}}',
    '{"specversion":"1.0","id":"d","source":"/x","type":"t","data":"naïve 🤫  two  spaces"}',
)


def texts(path: Path, consent: Consent = "training") -> list[str]:
    found = list(read_history("events", path).events(consent=consent))
    assert all(isinstance(each, str) for each in found)
    return [str(each) for each in found]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_each_line_is_sent_in_its_own_words(file: Path) -> None:
    for end in ("\n", "\r\n", "\n\n \n"):
        file.write_bytes(end.join(ODD).encode())
        assert texts(file) == [line.strip() for line in ODD]
    file.write_bytes(b"\xef\xbb\xbf" + "\n".join(ODD).encode() + b"\n")
    assert texts(file)[0] == ODD[0]


def test_what_is_sent_is_what_is_stored(
    file: Path, intake: Intake, drain: Drain, store: Store
) -> None:
    file.write_text("\n".join(ODD))
    batch = f"[{','.join(texts(file))}]".encode()
    assert intake.take(split_batch(batch)).count("accepted") == len(ODD)
    drain.step(timeout_s=0)
    rows = store.rows("SELECT if(raw = '', body, raw) AS text FROM events ORDER BY id")
    assert [row["text"] for row in rows] == [line.strip() for line in ODD]
    assert intake.take(split_batch(batch)).count("duplicate") == len(ODD)


def test_gzip_and_xz_hold_the_same_events(file: Path) -> None:
    plain = "\n".join(ODD).encode()
    for packed in (gzip.compress(plain[:90]) + gzip.compress(plain[90:]), lzma.compress(plain)):
        file.write_bytes(packed)
        assert texts(file) == [line.strip() for line in ODD]


def spoken(consent: str | None) -> dict[str, Any]:
    data = {
        "diff.id": "d", "before": "hush", "hunks": [{"id": "h", "after": "hush", "lines_added": 2}],
        "unknown": "hush", "size": 3,
    }  # fmt: skip
    event = fact("diff.proposed", data=data)
    return event if consent is None else event | {"consent": consent}


@pytest.mark.parametrize("most", CONSENT_LEVELS)
def test_consent_is_capped_and_never_raised(file: Path, most: Consent) -> None:
    own = [None, "metrics", "code", "training"]
    file.write_text("\n".join(json.dumps(spoken(each)) for each in own))
    found = [json.loads(text).get("consent") for text in texts(file, most)]
    level = CONSENT_LEVELS.index(most)
    assert found == [None, *(min(each, most, key=CONSENT_LEVELS.index) for each in CONSENT_LEVELS)]
    assert texts(file, most)[: 2 + level] == file.read_text().split("\n")[: 2 + level]


def test_an_event_lowered_to_metrics_has_no_content_left(file: Path) -> None:
    other = {"specversion": "1.0", "id": "1", "source": "/x", "type": "their.own", "consent": "code",
             "data": {"text": "hush", "nested": {"text": "hush"}, "n": 1}}  # fmt: skip
    broken = spoken("training") | {"source": ""}
    file.write_text("\n".join(json.dumps(each) for each in (spoken("code"), other, broken)))
    known, unknown, invalid = map(json.loads, texts(file, "metrics"))
    assert known["data"] == {"diff.id": "d", "hunks": [{"id": "h", "lines_added": 2}], "size": 3}
    assert unknown["data"] == {"n": 1}
    assert invalid["data"] == {"size": 3}
    assert {each["consent"] for each in (known, unknown, invalid)} == {"metrics"}


def test_what_the_server_would_refuse_is_named_with_its_line_and_sent_all_the_same(
    file: Path,
) -> None:
    lines = [json.dumps(fact()), json.dumps(fact() | {"id": 5}), '{"a": NaN}', "{}"]
    file.write_text("\n".join(lines))
    summary = read_history("events", file).summary
    assert texts(file) == lines
    assert {line for tally in summary.not_understood.values() for line in tally.lines} == {2, 3, 4}
    assert summary.counts["events"] == 4


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b'{"a": 1}\n{"b": ', "line 2 is no JSON object"),
        (b'{"a": 1}\n[]\n', "line 2 is no JSON object"),
        (b'{"a": 1}\n\n{"b": "\xff"}\n', "line 3 is no JSON object"),
        (b'{"a": 1} {"b": 2}\n', "line 1 is no JSON object"),
        (b"PK\x03\x04", "zip"),
        (gzip.compress(b'{"a": 1}\n' * 99)[:-9], "damaged or cut off"),
    ],
)
def test_a_file_that_is_no_whole_list_of_events_is_refused_by_name(
    file: Path, content: bytes, what: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_history("events", file)
    assert str(file) in caught.value.detail
    assert what in caught.value.detail


def test_no_such_file_a_folder_and_a_user_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_history("events", file)
    with pytest.raises(BadInput, match="folder"):
        read_history("events", tmp_path)
    file.write_text(json.dumps(fact()))
    with pytest.raises(BadInput, match="carry their own user"):
        read_history("events", file).events(consent="code", user="ann")
    with pytest.raises(BadInput, match="is none of"):
        read_history("events", file).events(consent="all")  # type: ignore[arg-type]


def test_a_long_file_is_read_a_piece_at_a_time(file: Path) -> None:
    with gzip.open(file, "wb", compresslevel=1) as out:
        for number in range(40_000):
            out.write(json.dumps(fact(id=str(number), note="x" * 2_000)).encode() + b"\n")
    tracemalloc.start()
    count = sum(1 for _ in read_history("events", file).events(consent="training"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 40_000
    assert peak < 16 << 20


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_bomb_without_a_line_end_never_fills_the_memory(file: Path, pack: type[bytes]) -> None:
    file.write_bytes(pack(b"{" + b" " * (200 << 20)))
    tracemalloc.start()
    with pytest.raises(BadInput, match="line 1 is longer than 20 MiB"):
        read_history("events", file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_lines_added_after_the_check_wait_for_the_next_import(file: Path) -> None:
    file.write_text(json.dumps(fact()) + "\n")
    history = read_history("events", file)
    with file.open("a") as out:
        out.write('{"half')
    assert len(list(history.events(consent="code"))) == 1
    with pytest.raises(NotAHistory):
        read_history("events", file)
