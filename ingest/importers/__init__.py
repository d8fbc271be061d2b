"""Histories of terminal agents, read into facts."""

from datetime import UTC, tzinfo
from pathlib import Path
from typing import Literal

from ingest.importers._aider import aider_history
from ingest.importers._history import History, Summary, Tally
from ingest.importers._mini_swe_agent import mini_swe_agent_history
from ingest.importers._reading import MAX_BYTES, NotAHistory, read_text

__all__ = ["MAX_BYTES", "Format", "History", "NotAHistory", "Summary", "Tally", "read_history"]

Format = Literal["aider", "mini-swe-agent"]


def read_history(
    format: Format,
    path: Path,
    *,
    timezone: tzinfo = UTC,
    max_bytes: int = MAX_BYTES,
) -> History:
    """The whole history, read, checked and understood before any fact of it is handed out.

    The file may be plain, gzip or xz. `timezone` is where an aider history was written: its times
    name none. Importing a history again, also a copy, a compressed copy or a later and longer
    state of it, gives the same ids to the same things.

    Raises: BadInput naming the file, what is wrong, and what to do; NotAHistory where the file is
        readable and is none.
    """
    source = read_text(path, max_bytes=max_bytes)
    if format == "aider":
        return aider_history(source, timezone=timezone)
    return mini_swe_agent_history(source)
