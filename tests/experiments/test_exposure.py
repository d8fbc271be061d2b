"""Who counts, from when on, and in which arm; and that nothing but the facts decides it."""

from dataclasses import replace
from random import Random
from typing import Any

from experiments.metrics import METRICS, Reading, Segment
from experiments.scan import scan
from ingest._rows import COLUMNS
from ingest.store import Store
from tests.experiments.worlds import SPEC, Tell, World, day
from tests.facts import fact

NET = METRICS["thumbs_net"]
WEEK = replace(NET, key="net_of_a_week", window_s=7 * 86_400)
ALL = list(METRICS.values())


def read(store: Store, on: float, *metrics: Any, **options: Any) -> Reading:
    return scan(store, SPEC, metrics or [NET], as_of=day(on), **options)


def sums(reading: Reading, key: str, arm: str = "a") -> tuple[float, float]:
    moments = reading.arms[arm].samples[key].moments
    return moments.mean * moments.n, moments.den_mean * moments.n


def test_the_value_of_a_matured_unit_stays_when_it_is_exposed_again(
    store: Store, tell: Tell
) -> None:
    """PostHog/posthog#72763: windows were anchored at the last exposure, so old values grew."""
    made = World()
    made.expose(0, "u")
    made.serve(1, "u", "c1")
    made.thumb(2, "c1", 1)
    made.serve(8, "u", "c2")
    made.thumb(8, "c2", 1)
    made.thumb(9, "c1", 0, rater="bob")
    made.expose(8, "u", received="b")
    made.tell(tell)
    assert sums(read(store, 7, WEEK), WEEK.key) == (1, 1)
    assert sums(read(store, 20, WEEK), WEEK.key) == (1, 1)
    assert sums(read(store, 20), NET.key) == (1, 2)


def test_only_units_whose_window_is_over_count_if_asked(store: Store, tell: Tell) -> None:
    made = World()
    for on, unit in ((0, "u"), (5, "v")):
        made.expose(on, unit)
        made.serve(on, unit, f"c-{unit}")
    made.tell(tell)
    at_8 = read(store, 8, NET, WEEK, matured=True).arms["a"]
    assert at_8.units == 2
    assert (at_8.samples[NET.key].moments.n, at_8.samples[WEEK.key].moments.n) == (2, 1)
    assert read(store, 12, WEEK, matured=True).arms["a"].samples[WEEK.key].moments.n == 2
    assert read(store, 8, WEEK).arms["a"].samples[WEEK.key].moments.n == 2


def test_units_that_met_two_arms_are_left_out_and_told_by_the_arm_they_met_first(
    store: Store, tell: Tell
) -> None:
    made = World()
    for number in range(8):
        made.expose(0, f"u{number}", "ab"[number % 2])
    made.expose(1, "u0", "b")
    made.expose(1, "u2", "b")
    made.expose(1, "u1", "a")
    made.tell(tell)
    found = read(store, 2)
    assert {key: arm.units for key, arm in found.arms.items()} == {"a": 2, "b": 3}
    assert found.excluded == {"a": 2, "b": 1}
    assert (found.excluded_units, found.excluded_share) == (3, 3 / 8)
    assert read(store, 0).excluded_units == 0


def test_whom_no_draw_put_in_an_arm_is_outside(store: Store, tell: Tell) -> None:
    """PostHog/posthog#60006: holdouts in the expectation made every split look mismatched."""
    made = World()
    made.expose(0, "u")
    for reason in ("pinned", "fallback", "holdout", "holdout"):
        made.expose(0, f"{reason}{len(made.days[0])}", reason=reason)
    made.expose(0, "u", "b", reason="pinned")
    made.tell(tell)
    found = read(store, 1)
    assert {key: arm.units for key, arm in found.arms.items()} == {"a": 1}
    assert found.outside == {"pinned": 1, "fallback": 1, "holdout": 2}
    assert found.excluded_units == 0


def test_a_fallback_to_another_arm_counts_where_it_was_assigned(store: Store, tell: Tell) -> None:
    made = World()
    made.expose(0, "u", received="b")
    made.expose(0, "v")
    made.serve(0, "u", "c1")
    made.tell(tell)
    arm = read(store, 1).arms["a"]
    assert (arm.units, arm.received) == (2, {"a": 1, "b": 1})
    assert sums(read(store, 1), NET.key) == (0, 1)


def test_what_came_in_before_the_first_exposure_is_the_covariate(store: Store, tell: Tell) -> None:
    made = World()
    made.serve(0, "u", "old", drawn=False)
    made.thumb(1, "old", 1)
    made.serve(1, "u", "older", drawn=False)
    made.thumb(3, "older", 1)  # too late for a covariate
    made.serve(3, "u", "between", drawn=False)  # neither before nor of this experiment
    made.expose(2, "u")
    made.expose(9, "u")
    made.serve(2, "u", "new")
    made.thumb(4, "new", 0)
    made.expose(2, "v")
    made.serve(2, "v", "first")
    made.tell(tell)
    pre = read(store, 5).arms["a"].samples[NET.key].pre
    assert pre is not None
    assert [mean * pre.n for mean in pre.mean] == [-1, 2, 1, 2]
    assert (pre.n, pre.missing) == (2, 1)


def test_what_is_said_after_exposure_of_before_changes_no_covariate(
    store: Store, tell: Tell
) -> None:
    """Else a treatment that makes people think again would move what CUPED takes as given."""
    made = World()
    made.serve(0, "u", "old", drawn=False)
    made.thumb(0, "old", 1, revision=1)
    made.days[0][-1] |= {"id": "w1"}
    made.expose(1, "u")
    made.tell(tell)
    before = read(store, 1).arms["a"].samples[NET.key].pre
    later = World()
    later.thumb(2, "old", 0, revision=2)
    later.days[3].append(fact("feedback.withdrawn", data={"supersedes": "w1"}))
    later.tell(tell)
    assert read(store, 9).arms["a"].samples[NET.key].pre == before


def test_a_number_that_nothing_can_measure_is_left_out_and_breaks_no_report(
    store: Store, tell: Tell
) -> None:
    made = World()
    made.expose(0, "u")
    made.serve(1, "u", "c1", time_to_first_token_s=0.5)
    made.serve(1, "u", "c2", time_to_first_token_s=1e305, duration_s=1e305)
    made.serve(1, "u", "c3")
    made.thumb(1, "c1", 1e305)
    made.tell(tell)
    found = read(store, 2, *ALL)
    assert sums(found, "time_to_first_token") == (0.5, 1)
    assert sums(found, "thumbs_net") == (1, 3)


def test_segments_are_by_what_was_known_before_the_first_exposure(store: Store, tell: Tell) -> None:
    made = World()
    language = Segment("language", "L", "diff.proposed", "thumbwheel.language_id")
    for unit, words in {"u": ("go", "python", "rust"), "v": ("rust",), "w": ()}.items():
        made.expose(2, unit)
        made.serve(2, unit, f"c-{unit}")
        for on, word in zip((0, 1, 3), words, strict=False):
            data = {"diff.id": f"{unit}{on}", "thumbwheel.language_id": word}
            made.days[on].append(fact("diff.proposed", user=unit, data=data))
    made.thumb(3, "c-u", 1)
    made.tell(tell)
    found = read(store, 5, segment=language)
    assert {name: arms["a"].units for name, arms in found.segments.items()} == {
        "": 1, "python": 1, "rust": 1,
    }  # fmt: skip
    assert found.segments["python"]["a"].samples[NET.key].moments.mean == 1
    assert found.arms == read(store, 5).arms


class Threads:
    """The same store, asked with so many threads and blocks of another size."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._with = (
            f"\nSETTINGS max_threads = {number}, max_block_size = {8191 if number > 1 else 7}"
        )

    def rows(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        return self._store.rows(sql + self._with, **parameters)


def world(seed: int) -> World:
    """Forty users with a past, exposed on different days, and all kinds of outcomes."""
    draw, made = Random(seed), World()
    for number in range(40):
        unit, met = f"u{number}", draw.choice((2, 3))
        made.expose(met, unit, draw.choice("ab"))
        if draw.random() < 0.1:
            made.expose(met + 1, unit, draw.choice("ab"))
        for turn in range(6):
            on, name = draw.choice((0, 1, met, met + 1, 5)), f"{unit}-{turn}"
            made.serve(
                on, unit, name, drawn=on >= met, outcome=draw.choice(("ok", "error", "cancelled")),
                time_to_first_token_s=draw.choice((None, draw.random() * 3)),
                **{"gen_ai.usage.input_tokens": draw.randrange(5_000),
                   "gen_ai.conversation.id": f"k-{unit}-{turn % 2}"},
            )  # fmt: skip
            made.say(on, "turn.submitted", turn__id=f"t-{name}", similarity=draw.random())
            made.say(on, "tool.called", turn__id=f"t-{name}", outcome=draw.choice(("ok", "error")))
            made.say(
                on, "diff.proposed", diff__id=f"d-{name}", completion__id=name,
                hunks=[{"id": "h", "lines_added": draw.randrange(9)}],
            )  # fmt: skip
            made.say(on + 0.5, "diff.shown", diff__id=f"d-{name}", visible_s=draw.random() * 2)
            made.say(on + 1, "diff.decided", diff__id=f"d-{name}",
                     outcome=draw.choice(("accepted", "rejected")))  # fmt: skip
            for _ in range(2):
                made.say(on + 1, "diff.survival", diff__id=f"d-{name}", checkpoint_s=900,
                         kept_ratio=draw.random())  # fmt: skip
            made.days[on + 1].append(
                fact(
                    "diff.committed", data={"diff.ids": [f"d-{name}"], "kept_ratio": draw.random()}
                )
            )
            made.thumb(on + 1, name, draw.randrange(2), rater=unit, revision=1 + draw.randrange(3))
    return made


def test_shuffled_and_doubled_facts_and_any_number_of_threads_say_the_same(
    store: Store, tell: Tell, store_dsn: str
) -> None:
    made, draw = world(1), Random(1)
    made.tell(tell)
    expected = read(store, 9, *ALL)
    assert sums(expected, "kept_ratio_15m") != (0, 0)
    for number in (1, 4):
        assert read(Threads(store, number), 9, *ALL) == expected  # type: ignore[arg-type]
    other = Store.open(store_dsn, database=f"shuffled_{draw.randrange(10**9)}")
    other.command("SYSTEM STOP MERGES events")
    rows = copied(store)
    late = [dict(row, received_at=row["received_at"] + 10**6, user="another") for row in rows]
    shuffled = draw.sample([*rows, *rows, *late], 3 * len(rows))
    for start in range(0, len(shuffled), 700):
        part = [tuple(row.values()) for row in shuffled[start : start + 700]]
        other.insert("events", tuple(rows[0]), part, token=str(start))
    # When the store last heard anything is no fact of an experiment: a late copy counts there.
    assert replace(read(other, 9, *ALL), newest_fact=expected.newest_fact) == expected
    other.drop()


def copied(store: Store) -> list[dict[str, Any]]:
    """Facts as the drain inserts them: times in microseconds."""
    names = ", ".join(
        f"toUnixTimestamp64Micro({name}) AS {name}" if name in {"time", "received_at"} else name
        for name in COLUMNS
        if name not in {"sent_at", "raw"}
    )
    return store.rows("SELECT " + names + " FROM events")
