"""Which facts count for whom, and as of when."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from experiments.assign import ExperimentSpec
from experiments.metrics import METRICS, read
from experiments.scan import scan
from ingest.store import Store
from tests.experiments.worlds import SPEC, Tell, World, day
from tests.facts import fact

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)

ALL = list(METRICS.values())


def exposed(unit: str, arm: str = "a", **changes: Any) -> dict[str, Any]:
    data = {
        "assignment": unit, "experiment": "e1", "version": 1, "unit_type": "user", "unit": unit,
        "assigned": arm, "received": arm, "propensity": 0.5, "reason": "randomised",
    } | changes  # fmt: skip
    return fact("experiment.exposed", data=data)


def served(unit: str, name: str, **changes: Any) -> dict[str, Any]:
    data = {
        "completion.id": name, "turn.id": f"turn-{name}", "checkpoint": "m1", "experiment": "e1",
        "version": 1, "variant": "a", "reason": "randomised", "outcome": "ok",
    } | changes  # fmt: skip
    return fact("completion.finished", user=unit, data=data)


def thumb(target: str, value: float | str, **changes: Any) -> dict[str, Any]:
    kind = changes.pop("kind", "completion")
    data = {
        "target": {"kind": kind, "id": target},
        "gen_ai.evaluation.score.value": value,
        "rater": "ann",
    }
    identity = {"id": changes.pop("id")} if "id" in changes else {}
    return fact("feedback.submitted", data=data | changes, **identity)


def sums(store: Store, at: datetime = NOON, key: str = "thumbs_net") -> tuple[float, float]:
    """(numerator, denominator) of all units of arm a."""
    arm = read(store, SPEC, [METRICS[key]], as_of=at).arms["a"]
    moments = arm.moments[key]
    return moments.mean * moments.n, moments.den_mean * moments.n


def test_what_was_known_then_is_exact_to_the_microsecond(store: Store, tell: Tell) -> None:
    moment = NOON + timedelta(microseconds=500_000)
    tell(exposed("u"), served("u", "c1"), at=moment)
    tell(served("u", "c2"), at=moment + timedelta(microseconds=1))
    assert read(store, SPEC, ALL, as_of=moment - timedelta(microseconds=1)).arms == {}
    assert sums(store, moment) == (0, 1)
    assert sums(store, moment + timedelta(microseconds=1)) == (0, 2)


def test_another_time_zone_means_the_same_moment(store: Store, tell: Tell) -> None:
    tell(exposed("u"), served("u", "c1"))
    tell(served("u", "c2"), at=NOON + timedelta(hours=1))
    tokyo = NOON.astimezone(tz=datetime.fromisoformat("2026-11-30T21:00:00+09:00").tzinfo)
    assert sums(store, tokyo) == (0, 1)


def test_feedback_counts_from_when_it_came_and_until_it_is_withdrawn(
    store: Store, tell: Tell
) -> None:
    def later(minutes: int) -> datetime:
        return NOON + timedelta(minutes=minutes)

    tell(exposed("u"), served("u", "c1"))
    tell(thumb("c1", 1, id="first", revision=1), at=later(1))
    tell(thumb("c1", 0, id="second", revision=2, supersedes="first"), at=later(2))
    tell(fact("feedback.withdrawn", data={"supersedes": "second"}), at=later(3))
    assert [sums(store, later(minute))[0] for minute in range(4)] == [0, 1, -1, 0]


def test_feedback_may_come_before_its_target_or_years_after(store: Store, tell: Tell) -> None:
    years = NOON + timedelta(days=2_000)
    tell(exposed("u"), thumb("c1", 1))
    assert sums(store) == (0, 0)
    tell(served("u", "c1"), at=NOON + timedelta(minutes=1))
    tell(thumb("c1", 1, rater="bob"), at=years)
    assert sums(store, NOON + timedelta(minutes=1)) == (1, 1)
    assert sums(store, years) == (2, 1)


def test_each_rater_has_one_voice_and_only_thumbs_are_thumbs(store: Store, tell: Tell) -> None:
    tell(exposed("u"), served("u", "c1"))
    tell(
        *(thumb("c1", 1, rater=rater) for rater in ("ann", "bob")),
        thumb("c1", -1, rater="a client that says -1 for down"),
        thumb("c1", 1, rater="ann", revision=2),
        thumb("c1", "great", rater="cleo"),
        thumb("c1", 1, rater="dan", **{"gen_ai.evaluation.name": "correctness"}),
    )
    assert sums(store) == (2 - 1, 1)
    assert sums(store, key="thumbs_response") == (3, 1)


def test_only_what_this_experiment_served_at_random_counts(store: Store, tell: Tell) -> None:
    tell(exposed("u"), served("u", "c1"))
    others: dict[str, dict[str, Any]] = {
        "pinned": {"reason": "pinned"},
        "fallback": {"reason": "fallback"},
        "old": {"version": 2},
        "other": {"experiment": "e2"},
    }
    for name, changes in others.items():
        tell(served("u", name, **changes), thumb(name, 1))
        tell(fact("diff.proposed", data={"diff.id": f"d-{name}", "completion.id": name}))
    tell(exposed("v", reason="pinned"), exposed("w", version=2), exposed("x", experiment="e2"))
    assert sums(store) == (0, 1)
    assert sums(store, key="undo_rate") == (0, 0)
    assert read(store, SPEC, ALL, as_of=NOON).arms["a"].units == 1


def test_a_turn_that_two_people_named_alike_counts_for_neither(store: Store, tell: Tell) -> None:
    for unit in ("u", "v"):
        tell(exposed(unit), served(unit, f"c-{unit}", **{"turn.id": "t1"}))
    tell(thumb("t1", 1, kind="turn"))
    assert sums(store) == (0, 2)


def test_an_edit_counts_once_however_often_it_is_proposed_and_undone(
    store: Store, tell: Tell
) -> None:
    tell(exposed("u"), served("u", "c1"))
    for _ in range(3):
        tell(fact("diff.proposed", data={"diff.id": "d1", "completion.id": "c1"}))
        tell(fact("diff.reverted", data={"diff.id": "d1", "by": "undo"}))
    tell(fact("diff.reverted", data={"by": "undo"}))
    assert sums(store, key="undo_rate") == (1, 1)


def test_an_edit_claimed_by_two_answers_belongs_to_the_same_one_in_any_order(
    store: Store, tell: Tell
) -> None:
    tell(exposed("u", "a"), served("u", "c1"), exposed("v", "b"), served("v", "c2"))
    for diff, names in (("d1", ("c1", "c2")), ("d2", ("c2", "c1"))):
        for name in names:
            data = {"diff.id": diff, "completion.id": name}
            tell(fact("diff.proposed", id=f"{diff}-{name}", data=data))
    arms = read(store, SPEC, [METRICS["undo_rate"]], as_of=NOON).arms
    edits = [arms[arm].moments["undo_rate"].den_mean for arm in "ab"]
    assert sorted(edits) == [0, 2]


def test_a_unit_that_met_two_arms_is_excluded_and_counted(store: Store, tell: Tell) -> None:
    tell(exposed("u", "a"), exposed("u", "b"), served("u", "c1"), thumb("c1", 1))
    tell(exposed("v", "a"), served("v", "c2"))
    found = read(store, SPEC, [METRICS["thumbs_net"]], as_of=NOON)
    assert found.excluded_units == 1
    assert {key: arm.units for key, arm in found.arms.items()} == {"a": 1}
    assert sums(store) == (0, 1)


def test_a_unit_that_was_served_nothing_is_a_unit_all_the_same(store: Store, tell: Tell) -> None:
    tell(exposed("u"), exposed("v"), served("v", "c1"), thumb("c1", 1))
    moments = read(store, SPEC, [METRICS["thumbs_net"]], as_of=NOON).arms["a"].moments
    assert (moments["thumbs_net"].n, moments["thumbs_net"].mean) == (2, 0.5)
    assert moments["thumbs_net"].var == pytest.approx(0.5)
    assert moments["thumbs_net"].cov == pytest.approx(0.5)


def test_an_organisation_can_be_the_unit(store: Store, tell: Tell) -> None:
    spec = ExperimentSpec("e1", 1, "organization", SPEC.variants, "salt")
    tell(exposed("acme", unit_type="organization"))
    tell(served("u", "c1") | {"organization": "acme"}, served("v", "c2") | {"organization": "acme"})
    moments = read(store, spec, [METRICS["thumbs_net"]], as_of=NOON).arms["a"].moments
    assert (moments["thumbs_net"].n, moments["thumbs_net"].den_mean) == (1, 2)


def test_the_last_words_are_those_of_the_view_for_any_history(store: Store, tell: Tell) -> None:
    draw, made, ids = Random(7), World(), [f"w{number}" for number in range(120)]
    for number in range(6):
        made.expose(0, f"u{number}")
        made.serve(0, f"u{number}", f"c{number}")
    for name in ids:
        on, source = draw.choice((1, 2, 3)), f"/ext/{draw.randrange(3)}/s"
        rated = {
            "target": {"kind": "completion", "id": f"c{draw.randrange(6)}"},
            "gen_ai.evaluation.score.value": draw.choice((1, 0, "up", "down", "fine", 0.5)),
            "revision": 1 + draw.randrange(3), **draw.choice(({}, {"rater": "ann"})),
        }  # fmt: skip
        shown = {"id": name, "source": source, "sequence": draw.randrange(5)}
        if draw.random() < 0.25:
            data = {"supersedes": draw.choice(ids), **draw.choice(({}, {"rater": "ann"}))}
            made.days[on].append(fact("feedback.withdrawn", data=data, **shown))
        else:
            made.days[on].append(fact("feedback.submitted", data=rated, **shown))
    made.tell(tell)
    for on in (1, 2, 3):
        words = store.rows(
            "SELECT countIf(value > 0) AS up, countIf(value <= 0) AS down FROM "
            "current_feedback(as_of = {as_of:DateTime64(6, 'UTC')}) WHERE name = 'thumb'",
            as_of=day(on),
        )[0]
        found = scan(store, SPEC, [METRICS["thumbs_net"]], as_of=day(on)).arms["a"]
        counts = found.samples["thumbs_net"].feedback
        assert counts
        assert [n * counts.n for n in counts.mean[:2]] == pytest.approx(
            [words["up"], words["down"]]
        )
        assert words["up"] > 0
