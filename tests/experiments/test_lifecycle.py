"""What an experiment may become, and what its units see of it."""

import json
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from experiments.assign import assign
from experiments.lifecycle import Phase
from experiments.registry import Experiments, Plan
from ingest.control import open_control
from ingest.errors import BadInput, Conflict, NotFound, ThumbwheelError

UNITS = [f"u{number}" for number in range(2_000)]
GERMAN = {"attribute": "country", "operator": "equals", "value": "de"}


def plan(key: str = "e1", **changes: Any) -> Plan:
    variants = [{"key": arm, "checkpoint": f"m-{arm}"} for arm in "ab"]
    return Plan.model_validate({"key": key, "variants": variants} | changes)


@pytest.fixture
def experiments(control: Engine) -> Experiments:
    return Experiments(control)


def begun(experiments: Experiments, key: str = "e1", **changes: Any) -> None:
    experiments.create(plan(key, **changes))
    experiments.start(key)


def arms(experiments: Experiments, key: str = "e1", **attributes: Any) -> dict[str, str]:
    """Of the units that the running experiment has."""
    spec = next((each for each in experiments.running() if each.key == key), None)
    found = {unit: assign(spec, unit, attributes) for unit in UNITS} if spec else {}
    return {unit: each.variant for unit, each in found.items() if each}


def test_a_pause_ends_nothing_and_moves_nobody(experiments: Experiments) -> None:
    begun(experiments, coverage=0.5)
    before, slots = arms(experiments), experiments.get("e1").slots
    assert experiments.pause("e1").status == "paused"
    assert arms(experiments) == {}
    begun(experiments, "e2", coverage=0.5)
    assert experiments.get("e2").slots == (5_000, 10_000)
    again = experiments.start("e1")
    assert (again.status, again.version, again.slots) == ("running", 1, slots)
    assert arms(experiments) == before


def test_a_ramp_lets_units_in_and_moves_nobody(experiments: Experiments) -> None:
    """Report 5, growthbook-js#22."""
    begun(experiments, coverage=0.01, ramp_to=0.5)
    seen = arms(experiments)
    for coverage in (0.01, 0.1, 0.5, 1.0):
        wider = experiments.ramp("e1", coverage)
        assert (wider.plan.coverage, wider.version) == (coverage, 1)
        now = arms(experiments)
        assert seen.items() <= now.items()
        seen = now
    assert len(seen) == len(UNITS)


def test_room_for_a_ramp_is_nobody_elses(experiments: Experiments) -> None:
    begun(experiments, "e1", coverage=0.1, ramp_to=0.5)
    begun(experiments, "e2", coverage=0.2)
    assert experiments.get("e2").slots == (5_000, 7_000)
    assert experiments.ramp("e1", 0.5).slots == (0, 5_000)
    with pytest.raises(Conflict, match=r"no room for 0\.6 before 'e2'; stop what is in the way"):
        experiments.ramp("e1", 0.6)
    experiments.stop("e2")
    assert experiments.ramp("e1", 0.6).slots == (0, 6_000)
    begun(experiments, "e3", coverage=0.1)
    with pytest.raises(Conflict, match="the end of the layer"):
        experiments.ramp("e3", 0.5)


def test_less_coverage_is_refused_with_what_to_do_instead(experiments: Experiments) -> None:
    begun(experiments, coverage=0.5)
    with pytest.raises(Conflict, match=r"pause 'e1', or begin a new phase with POST .*/phase"):
        experiments.ramp("e1", 0.2)
    assert experiments.get("e1").plan.coverage == 0.5


@pytest.mark.parametrize(
    ("changes", "field", "instead"),
    [
        ({"variants": [{"key": "a", "checkpoint": "m-a", "weight": 3},
                       {"key": "b", "checkpoint": "m-b"}]}, "variants", "/phase"),
        ({"targeting": [GERMAN, {**GERMAN, "attribute": "plan"}]}, "targeting", "/phase"),
        ({"coverage": 0.2}, "coverage", "/phase"),
        ({"alpha": 0.1}, "alpha", "/phase"),
        ({"planned_units": 9}, "planned_units", "/phase"),
        ({"reading": "fixed"}, "reading", "/phase"),
        ({"metrics": {"goals": ["undo_rate"]}}, "metrics", "/phase"),
        ({"segments": ["language"]}, "segments", "/phase"),
        ({"layer": "other"}, "layer", "create another"),
        ({"unit": "organization"}, "unit", "create another"),
        ({"sticky": True}, "sticky", "create another"),
    ],
)  # fmt: skip
def test_a_change_that_would_move_units_is_refused_and_says_what_to_do_instead(
    experiments: Experiments, changes: dict[str, Any], field: str, instead: str
) -> None:
    as_is: dict[str, Any] = {"coverage": 0.5, "targeting": [GERMAN]}
    begun(experiments, **as_is)
    before = experiments.get("e1")
    with pytest.raises(Conflict) as refused:
        experiments.change("e1", plan(**(as_is | changes)))
    assert [each.field for each in refused.value.errors] == [field]
    assert instead in refused.value.detail
    assert experiments.get("e1") == before


def test_looser_targeting_and_more_coverage_let_units_in(experiments: Experiments) -> None:
    begun(experiments, coverage=0.5, targeting=[GERMAN])
    before = arms(experiments, country="de")
    assert arms(experiments, country="fr") == {}
    wider = [{**GERMAN, "operator": "in", "value": ["de", "fr"]}]
    experiments.change("e1", plan(coverage=0.75, targeting=wider))
    assert before.items() < arms(experiments, country="de").items()
    assert arms(experiments, country="fr") == arms(experiments, country="de")
    experiments.change("e1", plan(coverage=0.75))
    assert arms(experiments) == arms(experiments, country="de")


def test_a_draft_may_become_anything_but_another_key(experiments: Experiments) -> None:
    experiments.create(plan())
    other = plan(coverage=0.1, alpha=0.1, layer="other", unit="organization")
    assert experiments.change("e1", other).plan == other
    with pytest.raises(BadInput, match="key"):
        experiments.change("e1", plan("e2"))
    experiments.create(plan("e2"))
    with pytest.raises(BadInput, match="unit"):
        experiments.change("e1", plan(unit="organization"))
    with pytest.raises(Conflict, match="PUT /v1/experiments/e1"):
        experiments.ramp("e1", 0.5)
    with pytest.raises(Conflict, match="PUT /v1/experiments/e1"):
        experiments.phase("e1", Phase())


def test_a_new_phase_deals_anew_and_the_one_before_stays_readable(
    experiments: Experiments,
) -> None:
    begun(experiments, coverage=0.5)
    first, before = experiments.get("e1"), arms(experiments)
    uneven = Phase.model_validate({"coverage": 0.2, "variants": [
        {"key": "a", "checkpoint": "m-a", "weight": 0.1},
        {"key": "b", "checkpoint": "m-b", "weight": 0.9}]})  # fmt: skip
    second = experiments.phase("e1", uneven)
    assert (second.version, second.status, second.slots) == (2, "running", (0, 2_000))
    after = arms(experiments)
    moved = [unit for unit in after if before[unit] != after[unit]]
    assert 100 < len(moved) < 300  # about half of 400, whatever they had before
    old = experiments.get("e1", 1)
    assert (old.plan, old.spec, old.version) == (first.plan, first.spec, 1)
    assert old.phase_started_at == first.started_at
    assert second.started_at == first.started_at
    assert second.phase_started_at is not None
    assert second.phase_started_at > str(first.started_at)
    with pytest.raises(NotFound, match="versions 1 to 2"):
        experiments.get("e1", 3)


def test_a_stopped_experiment_runs_again_as_a_new_version_only(experiments: Experiments) -> None:
    begun(experiments)
    experiments.stop("e1")
    with pytest.raises(Conflict, match="/phase, or create a new experiment"):
        experiments.start("e1")
    again = experiments.phase("e1", Phase())
    assert (again.version, again.status, again.stopped_at) == (2, "running", None)


def test_units_of_an_earlier_phase_can_be_left_out(experiments: Experiments) -> None:
    begun(experiments, sticky=True)
    assert experiments.phase("e1", Phase(exclude_earlier=True)).spec.min_version == 2
    begun(experiments, "e2", layer="other")
    with pytest.raises(BadInput, match="exclude_earlier"):
        experiments.phase("e2", Phase(exclude_earlier=True))


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"alpha": 1.5}, "alpha"),
        ({"reading": "daily"}, "reading"),
        ({"metrics": {"goals": ["joy"]}}, "metrics"),
        ({"coverage": 0.5, "ramp_to": 0.2}, "ramp_to"),
    ],
)
def test_a_phase_is_checked_as_a_plan_is(
    experiments: Experiments, wanted: dict[str, Any], field: str
) -> None:
    begun(experiments)
    with pytest.raises(ThumbwheelError) as refused:
        experiments.phase("e1", Phase.model_validate(wanted))
    assert [each.field for each in refused.value.errors] == [field]
    assert experiments.get("e1").version == 1


ACTIONS = ("start", "pause", "stop", "ramp", "change", "phase")
LEGAL = {
    "draft": {"start", "change"},
    "running": {"pause", "stop", "ramp", "change", "phase"},
    "paused": {"start", "stop", "ramp", "change", "phase"},
    "stopped": {"phase"},
}


@pytest.mark.parametrize("status", LEGAL)
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_possible_where_it_makes_sense_and_a_409_elsewhere(
    experiments: Experiments, status: str, action: str
) -> None:
    experiments.create(plan())
    ways = {"draft": (), "running": ("start",), "paused": ("start", "pause")}
    for step in ways.get(status, ("start", "stop")):
        getattr(experiments, step)("e1")
    rest = {"ramp": (1.0,), "change": (plan(),), "phase": (Phase(),)}.get(action, ())
    if action in LEGAL[status]:
        getattr(experiments, action)("e1", *rest)
        return
    with pytest.raises(Conflict) as refused:
        getattr(experiments, action)("e1", *rest)
    assert "'e1' is" in refused.value.detail


def test_everything_that_was_done_is_kept(experiments: Experiments) -> None:
    begun(experiments, coverage=0.1, ramp_to=1)
    experiments.ramp("e1", 0.2)
    experiments.pause("e1")
    experiments.phase("e1", Phase(coverage=1))
    experiments.stop("e1")
    done = [(each["action"], each["version"]) for each in experiments.changes("e1")]
    assert done == [("create", 1), ("start", 1), ("ramp", 1), ("pause", 1), ("phase", 2),
                    ("stop", 2)]  # fmt: skip


def test_pinned_units_get_their_arm_and_an_erased_one_is_named_nowhere(
    experiments: Experiments,
) -> None:
    begun(experiments, sticky=True, coverage=0.0001)
    experiments.pin("e1", "ann", "b")
    given = assign(experiments.running()[0], "ann")
    assert given is not None
    assert (given.variant, given.reason) == ("b", "pinned")
    with pytest.raises(BadInput, match="variant"):
        experiments.pin("e1", "ann", "z")
    experiments.forget("organization", "ann")
    assert experiments.get("e1").pinned == (("ann", "b"),)
    experiments.forget("user", "ann")
    assert experiments.get("e1").pinned == ()


OLD_TABLE = """
CREATE TABLE experiments (
    key VARCHAR NOT NULL PRIMARY KEY, plan TEXT NOT NULL, status VARCHAR NOT NULL,
    version INTEGER NOT NULL, layer VARCHAR NOT NULL, range_start INTEGER, range_end INTEGER,
    created_at VARCHAR NOT NULL, started_at VARCHAR, stopped_at VARCHAR)
"""
OLD_PLAN = {
    "key": "e1", "unit": "user", "layer": "default", "coverage": 0.5, "reading": "sequential",
    "variants": [{"key": "a", "checkpoint": "m1", "weight": 0.3},
                 {"key": "b", "checkpoint": "m2", "weight": 0.3}],
    "metrics": {"goals": ["thumbs_net"], "guardrails": []}, "alpha": 0.05, "planned_units": 5000,
}  # fmt: skip


def test_experiments_of_an_older_version_go_on_with_the_arms_they_had(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    old = create_engine(url)
    with old.begin() as connection:
        connection.execute(text(OLD_TABLE))
        row = {"plan": json.dumps(OLD_PLAN)}
        connection.execute(
            text(
                "INSERT INTO experiments VALUES ('e1', :plan, 'running', 1, 'default', 0, 5000, "
                "'2026-01-01', '2026-01-02', NULL)"
            ),
            row,
        )
    old.dispose()
    control = open_control(url)
    experiments = Experiments(control)
    (spec,) = experiments.running()
    assert (spec.salt, spec.layer, spec.layer_range) == ("e1/1/", "default/", (0, 5_000))
    assert experiments.ramp("e1", 0.6).slots == (0, 6_000)
    assert experiments.get("e1").phase_started_at == "2026-01-02"
    control.dispose()
