"""kill -9, ten times at random moments of the demo's traffic."""

from pathlib import Path

import pytest

from tests.journeys.killing import traffic_with_kills


@pytest.mark.slow
def test_ten_kills_lose_nothing_double_nothing_and_change_no_number(tmp_path: Path) -> None:
    outcome = traffic_with_kills(tmp_path, developers=420, kills=10, seed=7)
    print(
        f"\nkills {outcome.kills}, facts acknowledged {outcome.acknowledged:,}, lost {outcome.lost}, "
        f"doubled {outcome.doubled}, requests repeated by clients {outcome.retries}"
    )
    assert outcome.kills == 10
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.disturbed == outcome.undisturbed
