import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest

from ingest.errors import BadInput
from ingest.importers import Format, NotAHistory, read_history
from tests.ingest.importers.aider_writer import Aider, edit

WHOLE = Aider().starts().is_asked("do it").answers_with(edit("a.py", "1\n", "2\n")).text
TRAJECTORY = '[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]'
BOTH: tuple[Format, ...] = ("aider", "mini-swe-agent")


def refusal(path: Path, kind: Format = "aider", *, max_bytes: int = 1 << 20) -> str:
    """The text of the error, which must always name the file."""
    with pytest.raises(BadInput) as caught:
        read_history(kind, path, max_bytes=max_bytes)
    assert str(path) in caught.value.detail
    return caught.value.detail


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history"


@pytest.mark.parametrize("kind", BOTH)
def test_an_empty_file_is_no_history(file: Path, kind: Format) -> None:
    file.write_bytes(b" \n\n")
    assert "empty" in refusal(file, kind)
    file.write_bytes(gzip.compress(b""))
    assert "empty" in refusal(file, kind)


@pytest.mark.parametrize("kind", BOTH)
def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path, kind: Format) -> None:
    assert "no such file" in refusal(tmp_path / "nowhere", kind)
    assert "folder" in refusal(tmp_path, kind)
    assert "cannot be read" in refusal(tmp_path / ("x" * 300), kind)


def test_binary_and_foreign_encodings_are_refused_with_the_place(file: Path) -> None:
    file.write_bytes(WHOLE.encode() + b"\0\n")
    assert "binary" in refusal(file)
    file.write_bytes(b"# fine\n\xe4hm\n")
    assert "not UTF-8 at line 2" in refusal(file)
    for packed, what in (
        (b"PK\x03\x04..", "zip"),
        (b"BZh9..", "bzip2"),
        (b"\xff\xfea\0", "UTF-16"),
    ):
        file.write_bytes(packed)
        assert what in refusal(file)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_compressed_files_cut_anywhere_are_refused(file: Path, pack: type[bytes]) -> None:
    packed = pack(WHOLE.encode())
    for end in range(7, len(packed), 5):
        file.write_bytes(packed[:end])
        assert "damaged or cut off" in refusal(file)
    file.write_bytes(packed + b"junk behind it")
    assert "damaged" in refusal(file)
    middle = len(packed) // 2
    file.write_bytes(packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :])
    assert "damaged" in refusal(file)


def test_several_compressed_members_are_one_file(file: Path) -> None:
    text = Aider().starts().is_asked("a").answers_with("b" * 50_000).is_asked("/exit").text.encode()
    for pack in (gzip.compress, lzma.compress):
        file.write_bytes(pack(text[:500]) + pack(text[500:]))
        assert read_history("aider", file).summary.counts["answers"] == 1


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_bomb_never_fills_the_memory(file: Path, pack: type[bytes]) -> None:
    file.write_bytes(pack(bytes(200 << 20)))
    tracemalloc.start()
    detail = refusal(file, max_bytes=4 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "limit of 4 MiB" in detail
    assert "split" in detail
    assert peak < 32 << 20


def test_a_file_right_at_the_limit_is_taken(file: Path) -> None:
    text = WHOLE.encode()
    file.write_bytes(text)
    assert read_history("aider", file, max_bytes=len(text)).summary.counts["sessions"] == 1
    assert "limit" in refusal(file, max_bytes=len(text) - 1)


def test_a_text_without_a_session_header_is_no_history(file: Path) -> None:
    file.write_text("# A README\n\n#### do it  \n> Tokens: 1 sent  \n")
    with pytest.raises(NotAHistory, match="is no aider history"):
        read_history("aider", file)
    file.write_text(TRAJECTORY + "\n")
    assert "mini-swe-agent" in refusal(file)


def test_half_a_history_is_refused_whole(file: Path) -> None:
    """Cut in a line, or inside an edit block; nothing of it is imported."""
    file.write_text(WHOLE[:-1])
    assert "middle of a line" in refusal(file)
    head, tail = WHOLE.split("=======\n")
    for cut in (head, head + "=======\n", head + "=======\n" + tail[:2]):
        file.write_text(cut)
        assert "open SEARCH/REPLACE block" in refusal(file)


def test_an_answer_the_developer_broke_off_is_no_half_history(file: Path) -> None:
    broken = edit("a.py", "1\n", "2\n").split("=======")[0]
    aider = Aider().starts().is_asked("a").says("^C again to exit").answers_with(broken, tokens="")
    file.write_text(aider.text)
    assert read_history("aider", file).summary.counts["answers"] == 1


@pytest.mark.parametrize("end", range(5, len(TRAJECTORY) - 1, 7))
def test_half_a_trajectory_is_refused_whole(file: Path, end: int) -> None:
    file.write_text(TRAJECTORY[:end])
    detail = refusal(file, "mini-swe-agent")
    assert "cut in the middle" in detail or "is no JSON" in detail


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", "neither a list of messages"),
        ('{"messages": {}}', "neither a list of messages"),
        ("[]", "no answer of a model"),
        ('[{"role": "user", "content": "x"}]', "no answer of a model"),
        ("[1]", "message 1 is no object"),
        ('[{"role": "assistant", "x": NaN}]', "NaN is no JSON number"),
        ("[" * 100_000, "JSON that no trajectory is made of"),
        ("# aider chat started at 2024-08-05 19:33:32\n", "is no JSON"),
    ],
)
def test_json_of_another_kind_is_no_trajectory(file: Path, text: str, what: str) -> None:
    file.write_text(text)
    with pytest.raises(NotAHistory):
        read_history("mini-swe-agent", file)
    assert what in refusal(file, "mini-swe-agent")
