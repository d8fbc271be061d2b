"""What every sticky store keeps, in memory and in the control database, and what assignment makes of it."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from experiments.assign import Bucketer, Condition, ExperimentSpec, Holdout, Variant, assign
from experiments.sticky import ControlSticky, MemorySticky, Place, StickyStore, Unchanged

UNITS = [f"u{number}" for number in range(40)]
bucketer = Bucketer()


def clock() -> Callable[[], str]:
    hours = iter(range(100_000))
    return lambda: f"2026-01-01 +{next(hours):06} h"


@pytest.fixture(params=["memory", "control"])
def store(request: pytest.FixtureRequest, control: Engine) -> StickyStore:
    return MemorySticky(clock()) if request.param == "memory" else ControlSticky(control, clock())


def spec(
    weights: tuple[int, ...] = (1, 1), *, version: int = 1, min_version: int = 0, end: int = 10_000
) -> ExperimentSpec:
    arms = tuple(Variant(str(number), f"m{number}", each) for number, each in enumerate(weights))
    return ExperimentSpec(
        "e1", version, "user", arms, f"e1/{version}/",
        layer_range=(0, end), sticky=True, min_version=min_version,
    )  # fmt: skip


def arms(of: ExperimentSpec, store: StickyStore) -> list[str | None]:
    dealt = (bucketer.assign(of, unit, {}, sticky=store) for unit in UNITS)
    return [each.variant if each else None for each in dealt]


def test_what_is_kept_first_is_kept_for_ever(store: StickyStore) -> None:
    """Report 17, posthog#72763: the value of a matured unit grew as its window moved to a later
    exposure. The time that is kept is the first one's.
    """
    place = Place("user", "u1", "e1")
    first = store.keep(place, 1, variant="a", propensity=0.5)
    assert store.keep(place, 1, variant="b", propensity=0.9) == first
    assert store.find(place) == {1: first}
    assert (first.variant, first.propensity, first.kept_at) == ("a", 0.5, "2026-01-01 +000000 h")


def test_places_do_not_touch_each_other(store: StickyStore) -> None:
    """growthbook-swift#125: the second experiment of a user overwrote what the first had kept."""
    places = [Place(t, u, e) for t in ("user", "organization") for u in "ab" for e in ("e1", "e2")]
    for number, place in enumerate(places):
        store.keep(place, 1, variant=str(number), propensity=0.5)
        store.keep(place, 2, variant=f"{number}, again", propensity=0.5)
    for number, place in enumerate(places):
        kept = {version: each.variant for version, each in store.find(place).items()}
        assert kept == {1: str(number), 2: f"{number}, again"}
    store.forget("user", "a")
    assert [place for place in places if not store.find(place)] == places[:2]


def test_an_arm_named_0_is_an_arm(store: StickyStore) -> None:
    """Report 11, growthbook-php#46: the sticky arm "0" was falsy, so its units were dealt anew."""
    before = arms(spec((1, 0)), store)
    assert set(before) == {"0"}
    assert arms(spec((0, 1)), store) == before


def test_new_weights_move_nobody_who_has_an_arm_and_keep_their_propensity(
    store: StickyStore,
) -> None:
    before = arms(spec((1, 1)), store)
    assert set(before) == {"0", "1"}
    assert arms(spec((1, 99)), store) == before
    known = bucketer.assign(spec((1, 99)), UNITS[0], {}, sticky=store)
    new = bucketer.assign(spec((1, 99)), "somebody new", {}, sticky=store)
    assert known is not None
    assert new is not None
    assert known.propensity == 0.5
    assert new.propensity in {0.01, 0.99}
    assert known.assignment_id == assign(spec(), UNITS[0]).assignment_id  # type: ignore[union-attr]


def test_units_stay_in_when_their_attributes_or_the_coverage_change(store: StickyStore) -> None:
    german = Condition(attribute="country", operator="equals", value="de")
    arms_ = (Variant("a", "m", 1), Variant("b", "m", 1))
    targeted = ExperimentSpec("e1", 1, "user", arms_, "s", targeting=(german,), sticky=True)
    assert bucketer.assign(targeted, "u", {"country": "fr"}, sticky=store) is None
    first = bucketer.assign(targeted, "u", {"country": "de"}, sticky=store)
    assert bucketer.assign(targeted, "u", {"country": "fr"}, sticky=store) == first
    before = arms(spec(end=10_000), store)
    assert arms(spec(end=1), store) == before


def test_a_new_version_deals_anew_and_a_blocked_one_leaves_its_units_out(
    store: StickyStore,
) -> None:
    first = arms(spec(), store)
    second = arms(spec(version=2), store)
    assert None not in second
    assert second != first
    assert set(arms(spec(version=3, min_version=3), store)) == {None}
    assert bucketer.assign(spec(version=3, min_version=3), "new", {}, sticky=store) is not None


def test_the_least_version_that_is_not_blocked_is_the_least_version_itself(
    store: StickyStore,
) -> None:
    """growthbook#4753: an equal version was treated as blocked."""
    before = arms(spec(version=2), store)
    assert arms(spec(version=2, min_version=2), store) == before


def test_pinned_and_held_out_units_are_not_kept(store: StickyStore) -> None:
    arms_ = (Variant("a", "m", 1), Variant("b", "m", 1))
    held = Holdout("all", 5_000, "old")
    guarded = ExperimentSpec(
        "e1", 1, "user", arms_, "s", holdouts=(held,), pinned=(("p", "b"),), sticky=True
    )
    given = {unit: bucketer.assign(guarded, unit, {}, {"o": "a"}, store) for unit in (*UNITS, "p", "o")}  # fmt: skip
    reasons = {each.reason for each in given.values() if each}
    assert reasons == {"randomised", "holdout", "pinned"}
    for unit, each in given.items():
        kept = store.find(Place("user", unit, "e1"))
        assert bool(kept) == (each is not None and each.reason == "randomised")


def test_asking_keeps_nothing(store: StickyStore) -> None:
    asked = arms(spec(), Unchanged(store))
    assert not any(store.find(Place("user", unit, "e1")) for unit in UNITS)
    assert arms(spec((0, 1)), Unchanged(store)) == ["1"] * len(UNITS)
    assert arms(spec(), store) == asked
    assert arms(spec((0, 1)), Unchanged(store)) == asked


def test_two_requests_at_once_give_a_unit_one_arm(store: StickyStore) -> None:
    """Weights move while both are under way: who is kept second gets the first one's arm."""
    together = threading.Barrier(8)
    seen: list[str] = []

    def request(number: int) -> None:
        together.wait()
        given = bucketer.assign(spec((1, 0) if number % 2 else (0, 1)), "u", {}, sticky=store)
        seen.append(given.variant if given else "")

    threads = [threading.Thread(target=request, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(set(seen)) == 1
