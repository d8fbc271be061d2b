import io
import json
import logging
from collections.abc import Iterator

import pytest

from ingest.app import configure_logging


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def _fail(content: str) -> None:
    log = logging.getLogger("ingest.drain")
    log.warning("two lines\nof %s", "words")
    try:
        int(content)
    except ValueError:
        log.exception("it broke")


def test_lines_for_machines_are_json_with_where_it_broke_and_never_about_what() -> None:
    out = io.StringIO()
    configure_logging(out)
    _fail("a prompt that somebody typed")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["level"], first["logger"]) == ("warning", "ingest.drain")
    assert first["message"] == "two lines\nof words"
    assert first["time"].endswith("+00:00")
    assert second["error"] == "ValueError"
    assert any(place.endswith(" _fail") for place in second["at"])
    assert "somebody typed" not in out.getvalue()


def test_lines_for_a_person_are_plain_and_say_no_content_either() -> None:
    out = Screen()
    configure_logging(out)
    _fail("a prompt that somebody typed")
    assert "WARNING ingest.drain two lines" in out.getvalue()
    assert "ValueError" in out.getvalue()
    assert "somebody typed" not in out.getvalue()
