"""The folder of a table of the store's engine, in which no part can be committed for a while."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PART = re.compile(r"all_\d+_(\d+)_\d+")
_AHEAD = 200


@contextmanager
def no_part_can_be_committed(table: Path) -> Iterator[None]:
    """Files are where its next parts belong, so inserts fail at the last of their steps, a rename.

    By then the engine has noted their tokens, as if it had been killed before that step. The table
    has parts, or never had any: a part's name tells which ones come next.
    """
    found = [_PART.fullmatch(each.name) for each in table.iterdir()]
    last = max((int(part[1]) for part in found if part), default=0)
    ours = []
    for number in range(last + 1, last + _AHEAD):
        for level in (0, 1):
            # The engine may have committed a part there since.
            with suppress(FileExistsError):
                (file := table / f"all_{number}_{number}_{level}").touch(exist_ok=False)
                ours.append(file)
    try:
        yield
    finally:
        for file in ours:
            file.unlink(missing_ok=True)
