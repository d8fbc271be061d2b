import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import _mentions
from ingest._mentions import Mentions


@given(
    name=st.text(min_size=1).filter(lambda name: name.isprintable()),
    escape=st.booleans(),
)
def test_a_name_is_found_however_json_writes_it(name: str, *, escape: bool) -> None:
    text = json.dumps({"to": [name]}, ensure_ascii=escape)
    assert Mentions((name,)).in_text(text)


def test_the_name_of_a_field_and_part_of_a_word_are_no_mention() -> None:
    mentions = Mentions(("id", "ann"))
    assert not mentions.in_text('{"id" : 1, "note": "ann was here"}')
    assert mentions.in_text('{"note": "id"}')
    assert mentions.in_text("ann")
    assert Mentions(("jürgen",)).in_text('{"note": "j\\u00FCrgen"}')


@pytest.mark.parametrize("block", [1, 7, 4 << 20])
def test_every_mention_in_a_stream_counts_once(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mentions, "_BLOCK", block)
    data = b'\xff\x00"ann"\x00' * 40 + b'"ann": 1' + b" " * 200 + b'"ann"'
    assert Mentions(("ann", "bob")).count(io.BytesIO(data)) == (len(data), 41)
