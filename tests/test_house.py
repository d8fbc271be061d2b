"""The walls of the house."""

import ast
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("ingest", "experiments", "serving", "datagen", "training", "thumbwheel")
MODULES = [path for room in (*ROOMS, "tests", "benchmarks") for path in (ROOT / room).rglob("*.py")]


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_distribution_owns_a_rooms_name(room: str) -> None:
    assert set(packages_distributions().get(room, [])) <= {"thumbwheel"}


def test_modules_and_functions_stay_readable() -> None:
    long = []
    for path in MODULES:
        text = path.read_text()
        if text.count("\n") > 300:
            long.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or 0) - node.lineno + 1
                if size > 40:
                    long.append(f"{path}:{node.lineno} {node.name}: {size} lines")
    assert not long, "\n".join(long)


def test_only_main_modules_read_the_environment() -> None:
    allowed = {ROOT / "thumbwheel" / "cli.py", *ROOT.rglob("__main__.py")}
    readers = [
        path
        for path in MODULES
        if path not in allowed and path.is_relative_to(ROOT) and "tests" not in path.parts
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    ]
    assert readers == []


def test_sql_values_are_bound_never_formatted() -> None:
    """f-strings and format() around SQL may only insert names that this code holds itself."""
    inserted = {
        (path.name, ast.unparse(part.value))
        for path in MODULES
        if path.parts[-2] in ROOMS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr) and "SELECT" in ast.unparse(node).upper()
        for part in node.values
        if isinstance(part, ast.FormattedValue)
    }
    assert inserted <= {("store.py", "table")}
