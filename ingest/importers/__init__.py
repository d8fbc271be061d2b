"""Histories of other tools, read into facts."""

from collections.abc import Iterator
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Literal, Protocol, overload

from ingest.events import Consent
from ingest.importers._aider import aider_history
from ingest.importers._continue import continue_file
from ingest.importers._events import event_file
from ingest.importers._history import History, Summary, Tally
from ingest.importers._lines import Lines
from ingest.importers._mini_swe_agent import mini_swe_agent_history
from ingest.importers._reading import MAX_BYTES, NotAHistory, read_text

__all__ = [
    "MAX_BYTES",
    "Format",
    "History",
    "Import",
    "NotAHistory",
    "Summary",
    "Tally",
    "read_history",
]

Whole = Literal["aider", "mini-swe-agent"]
Format = Literal["aider", "continue", "mini-swe-agent", "events"]


class Import(Protocol):
    """A file that was read and checked in full; nothing of it has been sent yet."""

    @property
    def summary(self) -> Summary: ...

    def events(
        self, *, consent: Consent, user: str = "unknown"
    ) -> Iterator[dict[str, Any]] | Iterator[str]:
        """Each fact, in order: as an object, or as the text of the event to be sent as it is."""


@overload
def read_history(
    format: Whole, path: Path, *, timezone: tzinfo = UTC, max_bytes: int = MAX_BYTES
) -> History: ...
@overload
def read_history(
    format: Format, path: Path, *, timezone: tzinfo = UTC, max_bytes: int = MAX_BYTES
) -> Import: ...
def read_history(
    format: Format,
    path: Path,
    *,
    timezone: tzinfo = UTC,
    max_bytes: int = MAX_BYTES,
) -> Import:
    """The whole history, read, checked and understood before any fact of it is handed out.

    The file may be plain, gzip or xz. `timezone` is where an aider history was written: its times
    name none. Importing a history again, also a copy, a compressed copy or a later and longer
    state of it, gives the same ids to the same things. `max_bytes` bounds aider's and
    mini-swe-agent's files, which are held whole; the others are read a line at a time.

    Raises: BadInput naming the file, what is wrong, and what to do; NotAHistory where the file is
        readable and is none.
    """
    if format == "continue":
        return continue_file(Lines(path))
    if format == "events":
        return event_file(Lines(path))
    source = read_text(path, max_bytes=max_bytes)
    if format == "aider":
        return aider_history(source, timezone=timezone)
    return mini_swe_agent_history(source)
