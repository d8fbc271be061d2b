"""Published numbers that the statistics must reproduce, and how closely."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FILE = json.loads(Path(__file__).with_suffix(".json").read_text())
_VECTORS: dict[str, dict[str, Any]] = {each["id"]: each for each in _FILE["vectors"]}


def vector(name: str) -> dict[str, Any]:
    """`input`, `expected`, `tolerance` and `source` of one vector."""
    return _VECTORS[name]


def agrees(name: str, got: object) -> None:
    """Every number of `got` is the vector's expected one, within its tolerance."""
    tolerance = _VECTORS[name]["tolerance"]
    _agree(got, _VECTORS[name]["expected"], tolerance["rel"], tolerance["abs"], name)


def _agree(got: Any, expected: Any, rel: float, abs_: float, at: str) -> None:
    if isinstance(expected, Mapping):
        assert set(got) == set(expected), at
        for key in expected:
            _agree(got[key], expected[key], rel, abs_, f"{at}.{key}")
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert len(got) == len(expected), at
        for index, each in enumerate(expected):
            _agree(got[index], each, rel, abs_, f"{at}[{index}]")
    elif isinstance(expected, float | int) and not isinstance(expected, bool):
        assert abs(got - expected) <= max(abs_, rel * abs(expected)), f"{at}: {got}, not {expected}"
    else:
        assert got == expected, at
