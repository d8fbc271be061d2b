import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.importers import History, read_history
from tests.ingest.importers.picking import Facts

SAMPLE = Path("ingest/importers/sample/aider-history.md")


@pytest.fixture(scope="session")
def sample_path(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / SAMPLE


@pytest.fixture(scope="session")
def sample(sample_path: Path) -> History:
    return read_history("aider", sample_path)


@pytest.fixture(scope="session")
def real_folder() -> Path:
    """The folder of real histories; they are too large for the repository."""
    named = os.environ.get("THUMBWHEEL_TEST_DATA")
    if named is None:
        if os.environ.get("CI") == "true":
            pytest.fail("THUMBWHEEL_TEST_DATA is not set; CI must check the real histories")
        pytest.skip("THUMBWHEEL_TEST_DATA names no folder with the real histories")
    return Path(named)


@pytest.fixture(scope="session")
def real(real_folder: Path) -> History:
    return read_history("aider", real_folder / "aider-chat-history.md.xz")


@pytest.fixture(scope="session", params=["sample", "real"])
def any_history(request: pytest.FixtureRequest) -> History:
    """Every property of the sample must hold for the whole real history too."""
    history: History = request.getfixturevalue(request.param)
    return history


@pytest.fixture
def facts_of(tmp_path: Path) -> Callable[[str], Facts]:
    """Facts of a history given as text."""

    def read(text: str) -> Facts:
        path = tmp_path / "history.md"
        path.write_bytes(text.encode())
        return list(read_history("aider", path).events(consent="training", user="ada"))

    return read
