from datetime import UTC, datetime, timedelta

import pytest
from scipy.stats import binomtest

from experiments.assign import ExperimentSpec, Switchback, Variant, assign
from ingest.errors import BadInput

START = datetime(2026, 1, 1, tzinfo=UTC)
HOURLY = Switchback(START, block_s=3600)
ARMS = (Variant("a", "m1", 1), Variant("b", "m2", 3))
SPEC = ExperimentSpec("e1", 1, "user", ARMS, "e1/1/", switchback=HOURLY)


def after(**time: float) -> datetime:
    return START + timedelta(**time)


def test_within_a_block_everybody_has_one_arm_and_blocks_are_drawn_apart() -> None:
    schedule = HOURLY.schedule(2_000, SPEC.salt, SPEC.weights)
    assert binomtest(sum(schedule), 2_000, 0.75).pvalue > 1e-4
    # Drawn apart, and not in turns: a b follows a b as often as anything else.
    follows = [schedule[i + 1] for i in range(1_999) if schedule[i] == 1]
    assert binomtest(sum(follows), len(follows), 0.75).pvalue > 1e-4
    for block in range(30):
        for minute in (0, 59):
            dealt = {assign(SPEC, unit, at=after(hours=block, minutes=minute)) for unit in "uvw"}
            variants = {each.variant for each in dealt if each}
            assert variants == {"ab"[schedule[block]]}


def test_an_assignment_is_of_a_unit_in_a_block() -> None:
    first, same, later = (assign(SPEC, "u", at=after(minutes=m)) for m in (1, 59, 61))
    assert first == same
    assert first is not None
    assert later is not None
    assert first.assignment_id != later.assignment_id
    assert first.propensity == {"a": 0.25, "b": 0.75}[first.variant]
    assert assign(SPEC, "u", at=after(minutes=-1)) is None


def test_clock_changes_do_not_move_a_block() -> None:
    elsewhere = after(hours=5).astimezone(tz=None)
    assert HOURLY.block(elsewhere) == 5


def test_what_cannot_be_scheduled_names_its_field() -> None:
    for field, build in (
        ("block_s", lambda: Switchback(START, 0)),
        ("starts_at", lambda: Switchback(datetime(2026, 1, 1), 60)),  # noqa: DTZ001
        ("at", lambda: HOURLY.block(datetime(2026, 1, 1))),  # noqa: DTZ001
        ("at", lambda: assign(SPEC, "u")),
    ):
        with pytest.raises(BadInput, match=field):
            build()
