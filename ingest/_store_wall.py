"""Between the engine's errors and ours: which blame the rows, which a torn part, and what is said."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from clickhouse_connect.driver.exceptions import ClickHouseError, DataError

from ingest.errors import Refused, Unavailable

log = logging.getLogger(__name__)

_CODE = re.compile(r"[Cc]ode: (\d+)")
_CODE_NAME = re.compile(r"\(([A-Z][A-Z_]+)\)")
_NEVER = frozenset({6, 25, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 131, 190, 321, 349, 675})
"""Codes of the engine that blame the rows: parse errors, types, ranges, sizes."""
_TORN = frozenset({32, 33, 40, 74, 107, 226, 228, 246, 271, 273, 740})
"""Codes of reading what was written badly: ends too early, wrong checksums, missing files."""


@contextmanager
def store_wall(doing: str) -> Iterator[None]:
    """Raises: Unavailable; Refused when rows are inserted that the store will never take."""
    try:
        yield
    except (ClickHouseError, OSError) as error:
        # The engine's own words hold the statement and its values: neither a client nor a log may
        # see them.
        code, name = _code(error), _CODE_NAME.search(str(error))
        said = f"{type(error).__name__} {code or ''} {name[1] if name else ''}"
        log.warning("store: %s: %s", doing, said.strip())
        blames = doing.startswith("inserting") and (isinstance(error, DataError) or code in _NEVER)
        kind = Refused if blames else Unavailable
        raise kind(f"store: {doing} failed{f' (Code: {code})' if code else ''}") from error


def is_torn(error: ClickHouseError) -> bool:
    """A part cannot be read any more."""
    return _code(error) in _TORN


def _code(error: Exception) -> int | None:
    found = _CODE.search(str(error))
    return int(found[1]) if found else None
