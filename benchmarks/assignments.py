"""Assignments in one process, beside GrowthBook's SDK: `python -m benchmarks.assignments`.

Before it is timed, each side's work is checked: arms against GrowthBook's hash of the same key.
Rounds take turns and CPU time is counted, so that a busy machine slows both alike; a ratio is of
two medians.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from growthbook import Experiment, GrowthBook

from experiments.assign import Bucketer, Condition, ExperimentSpec, Variant, assign

UNITS = [f"user-{number}" for number in range(20_000)]
ROUNDS = 7
_ARMS = (Variant("control", "m1", 1), Variant("treatment", "m2", 1))
_GERMAN = Condition(attribute="country", operator="equals", value="de")


def spec(**fields: Any) -> ExperimentSpec:  # noqa: ANN401 - the spec names them
    return ExperimentSpec("bench", 1, "user", _ARMS, "bench/1/", **fields)


def ours_plain() -> None:
    plain = spec()
    for unit in UNITS:
        assign(plain, unit)


def ours_layered() -> None:
    half = spec(layer_range=(0, 5_000))
    for unit in UNITS:
        assign(half, unit)


def ours_targeted() -> None:
    targeted, bucketer, attributes = spec(targeting=(_GERMAN,)), Bucketer(), {"country": "de"}
    for unit in UNITS:
        bucketer.assign(targeted, unit, attributes)


def ours_growthbook_hash() -> None:
    compatible = spec(algorithm="growthbook-v2")
    for unit in UNITS:
        assign(compatible, unit)


def _theirs(**fields: Any) -> Callable[[], None]:  # noqa: ANN401 - as do they
    """`run` alone, always of one user: to set another one's attributes would cost the SDK more."""
    client = GrowthBook(attributes={"id": "user-12345", "country": "de"})
    experiment = Experiment(key="bench/1/", variations=[0, 1], hashVersion=2, **fields)

    def run() -> None:
        for _ in UNITS:
            client.run(experiment)

    return run


def _rates(works: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median assignments a CPU second of each, in turns, after one round to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 1):
        for name, work in works.items():
            began = time.process_time()
            work()
            if number:
                taken[name].append(time.process_time() - began)
    return {name: len(UNITS) / median(each) for name, each in taken.items()}


def _check() -> None:
    """Both sides give the same arms for the same hash."""
    compatible = spec(algorithm="growthbook-v2")
    experiment = Experiment(key="bench/1/", variations=[0, 1], hashVersion=2)
    for unit in UNITS[:2_000]:
        given = assign(compatible, unit)
        theirs = GrowthBook(attributes={"id": unit}).run(experiment)
        assert given is not None
        assert given.variant == _ARMS[theirs.variationId].key


OURS, PEER = "assign, one experiment", "GrowthBook SDK run, v2"


def checked_rates() -> dict[str, float]:
    """Assignments a CPU second of each, once both sides were seen to give the same arms."""
    _check()
    return _rates({
        OURS: ours_plain,
        "assign, half of a layer": ours_layered,
        "Bucketer, one condition": ours_targeted,
        "assign, GrowthBook's v2 hash": ours_growthbook_hash,
        PEER: _theirs(),
        "GrowthBook SDK run, v2, one condition": _theirs(condition={"country": "de"}),
    })  # fmt: skip


def main() -> None:
    rates = checked_rates()
    for name, rate in rates.items():
        print(f"{name:40} {rate:10,.0f} /s")
    peer, targeted = rates[PEER], "GrowthBook SDK run, v2, one condition"
    print(f"{'ratio, one experiment':40} {rates[OURS] / peer:10.1f} ×")
    ratio = rates["Bucketer, one condition"] / rates[targeted]
    print(f"{'ratio, one condition':40} {ratio:10.1f} ×")


if __name__ == "__main__":
    main()
