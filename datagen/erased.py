"""Datasets made from facts that were erased: their rows go, their manifests stay and say why."""

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from datagen.export import JSONL, MANIFEST, PARQUET

_WHY = (
    "facts that this dataset was made from have been erased, so its rows were removed; "
    "export it again, and train again what was trained on it"
)


def mark(
    root: Path,
    erasure: str,
    facts: Collection[str],
    *,
    building: Callable[[str], bool] = lambda _: False,
) -> list[str]:
    """The datasets with a row that names one of these facts; no row of them is left.

    Rows without a manifest are of exports that never ended: they go too, but for those that are
    `building`. The same erasure again gives the same datasets.

    Args:
        root: The folder with a folder for each dataset.
        erasure: Its id; the manifest keeps it.
        facts: Ids of the erased facts.
        building: Whether a dataset is being built, from what is left.
    """
    erased = frozenset(facts)
    return [
        folder.name
        for folder in sorted(path for path in root.glob("*") if path.is_dir())
        if not building(folder.name) and _mark(folder, erasure, erased)
    ]


def _mark(folder: Path, erasure: str, erased: frozenset[str]) -> bool:
    path = folder / MANIFEST
    if not path.is_file():
        _remove_rows(folder)
        return False
    manifest: dict[str, Any] = json.loads(path.read_text())
    if manifest.get("erasure") != erasure:
        named = erased & set(_facts(folder / JSONL))
        if not named:
            return False
        manifest |= {
            "stale": True,
            "why": _WHY,
            "erasure": erasure,
            "erased_facts": len(named),
            "files": [],
        }
        # First the mark, then the rows: a crash between the two is made good by the next attempt.
        marked = path.with_suffix(".new")
        marked.write_text(json.dumps(manifest, indent=2) + "\n")
        marked.replace(path)
    _remove_rows(folder)
    return True


def _remove_rows(folder: Path) -> None:
    for name in (JSONL, PARQUET):
        (folder / name).unlink(missing_ok=True)


def _facts(rows: Path) -> Iterator[str]:
    if rows.is_file():
        with rows.open() as lines:
            for line in lines:
                row = json.loads(line)
                yield from (*row["facts"], *row["evidence"])
