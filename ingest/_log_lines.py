"""Log lines: JSON for machines, plain for a terminal. Neither shows what an error was about.

An exception's own text may quote what a client sent, so a line has its type and where it came from.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

_Failure = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _Plain(logging.Formatter):
    def formatException(self, ei: _Failure) -> str:  # noqa: N802 - logging's own name
        return "\n".join(_places(ei))


class _Json(logging.Formatter):
    """One object a line: time, level, logger, message, and `error` with `at` where one is told."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0]:
            line["error"], *line["at"] = _places(record.exc_info)
        return json.dumps(line)


def _places(failure: _Failure) -> list[str]:
    """The error's type, then each frame from the outermost on."""
    kind, _, where = failure
    frames = traceback.extract_tb(where)
    return [
        kind.__name__ if kind else "",
        *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames),
    ]


def configure_logging(stream: TextIO = sys.stderr) -> None:
    """Every line of this process goes to `stream`: JSON, unless a person watches it there."""
    lines = logging.StreamHandler(stream)
    plain = "%(asctime)s %(levelname)s %(name)s %(message)s"
    lines.setFormatter(_Plain(plain) if stream.isatty() else _Json())
    logging.basicConfig(level=logging.INFO, handlers=[lines], force=True)
    # Its warnings hold whole urls, and those the values that questions to the store are bound to.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
