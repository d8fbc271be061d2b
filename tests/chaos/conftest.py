import pytest

SEED = 20261130


def pytest_addoption(parser: pytest.Parser) -> None:
    """For `pytest tests/chaos`; a run of all tests takes the defaults."""
    group = parser.getgroup("chaos")
    group.addoption(
        "--chaos-seed", type=int, default=SEED, help="draws faults, moments and traffic"
    )
    group.addoption("--chaos-rounds", type=int, default=None, help="instead of a test's own number")


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--chaos-seed", SEED))


@pytest.fixture
def given_rounds(pytestconfig: pytest.Config) -> int | None:
    rounds = pytestconfig.getoption("--chaos-rounds", None)
    return None if rounds is None else int(rounds)
