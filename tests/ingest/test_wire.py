import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import Unreadable
from ingest.wire import read_one, split_batch

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(_json), st.sampled_from([None, 2]), st.booleans())
def test_each_element_keeps_its_own_text(
    values: list[Any], indent: int | None, ascii: bool
) -> None:
    texts = [json.dumps(value, indent=indent, ensure_ascii=ascii) for value in values]
    raws = split_batch((" [\n" + " ,\t".join(texts) + "\r\n] ").encode())
    assert [raw.text for raw in raws] == texts
    assert [raw.value for raw in raws] == values


def test_a_lone_surrogate_keeps_its_text_and_has_a_clean_twin() -> None:
    (raw,) = split_batch(rb'["half \ud83d, whole \ud83d\ude00, nul \u0000"]')
    assert raw.text == r'"half \ud83d, whole \ud83d\ude00, nul \u0000"'
    assert raw.clean == "half \ufffd, whole \U0001f600, nul \0"


def test_nan_spoils_its_own_event_only() -> None:
    good, bad = split_batch(b'[{"a": 1}, {"a": NaN}]')
    assert good.problem is None
    assert bad.problem == "NaN is not JSON; leave the field out"


def test_numbers_beyond_all_bounds_are_read() -> None:
    (raw,) = split_batch(b"[" + b"9" * 10_000 + b"]")
    assert raw.text == "9" * 10_000


def test_a_byte_order_mark_is_no_error() -> None:
    assert read_one(b'\xef\xbb\xbf{"a": 1}').value == {"a": 1}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "expected an array"),
        (b'{"id": "1"}', "expected an array"),
        (b'["\xff"]', "byte 2 is not UTF-8"),
        ('["a"]'.encode("utf-16"), "not UTF-8"),
        (b"[1, ]", "Expecting value at character 4"),
        (b"[1 2]", "expected ',' or ']' at character 3"),
        (b"[1] 2", "more text after the end"),
        (b"[1", "expected ',' or ']'"),
        (b"[" * 200_000, "does not end"),
    ],
)
def test_what_is_no_array_is_refused_with_the_place(body: bytes, says: str) -> None:
    with pytest.raises(Unreadable, match=says.replace("[", r"\[")):
        split_batch(body)
