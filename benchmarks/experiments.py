"""Experiments beside their rivals, in one run: `python -m benchmarks.experiments`.

Answers are compared before any time counts. Rivals that pin other versions run in environments of
their own (`--gbstats PYTHON --spotify PYTHON`) and are left out without one. `--folder` keeps the
facts of the last part, which takes minutes to make; without it there is no last part.
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import assignments, experiments_engines
from benchmarks.experiments_rounds import header, load
from benchmarks.experiments_scan import TEN, fill
from experiments.plans import Experiment, Goals, Plan, PlannedVariant
from experiments.report import Report, report
from ingest.store import Store

LOOKS = (2, 4, 8)
_BAR_S = 5
_REPORTS = 11
"""So many, as neighbours of a shared core make one of them take twice another's processor time."""
_ASSIGN_BAR = 5
_BEGAN, _DAYS = datetime(2026, 10, 1, tzinfo=UTC), 30


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiments", description=__doc__)
    parser.add_argument("--gbstats", type=Path, help="a Python that has gbstats installed")
    parser.add_argument("--spotify", type=Path, help="a Python that has spotify-confidence")
    parser.add_argument("--folder", type=Path, help="where the facts are kept between runs")
    parser.add_argument("--events", type=int, default=10_000_000)
    given = parser.parse_args()
    print(header())
    assigning()
    print("\nFrom moments to answers, equal to the rivals' before they are timed")
    for line in experiments_engines.lines(given.gbstats, given.spotify):
        print(line)
    for name in ("gbstats", "spotify"):
        if getattr(given, name) is None:
            print(f"  ({name} not measured: --{name} PYTHON)")
    if given.folder:
        scanning(given.folder, given.events)


def assigning() -> None:
    rates = assignments.checked_rates()
    ratio = rates[assignments.OURS] / rates[assignments.PEER]
    print("\nAssignments a second, arms equal for GrowthBook's hash")
    print(
        f"  ours {rates[assignments.OURS]:,.0f}   growthbook {version('growthbook')} run "
        f"{rates[assignments.PEER]:,.0f}   {ratio:.1f} ×   bar {_ASSIGN_BAR} × "
        f"{'holds' if ratio >= _ASSIGN_BAR else 'MISSED'}"
    )


@dataclass(frozen=True)
class Took:
    wall_s: float
    cpu_s: float


def scanning(folder: Path, events: int) -> None:
    store = Store.open(f"chdb://{folder / 'store'}")
    if not store.rows("SELECT 1 FROM events LIMIT 1"):
        fill(store, events)
    (size,) = store.rows("SELECT count() AS n, uniqExact(_part) AS parts FROM events")
    print(f"\nFrom {size['n']:,} facts in {size['parts']} parts to a report of {len(TEN)} metrics")
    found = [_timed(store, _end()) for _ in range(_REPORTS + 1)]
    assert len({repr(each.metrics) for each, _ in found}) == 1, "the same facts said two things"
    print(f"  {found[0][0].health.units:,} users; first {found[0][1].wall_s:.2f} s; {load()}")
    walls, cpus = zip(*((took.wall_s, took.cpu_s) for _, took in found[1:]), strict=True)
    print(
        f"  {_REPORTS} more: {median(walls):.2f} s (quickest {min(walls):.2f}, p95 "
        f"{np.quantile(walls, 0.95):.2f}), of processor time {median(cpus):.2f} s (least "
        f"{min(cpus):.2f})   bar {_BAR_S} s {'holds' if median(walls) <= _BAR_S else 'MISSED'}"
    )
    for looks in LOOKS:
        took = [_timed(store, at)[1] for at in _evenly(looks)]
        print(
            f"  {looks} looks: {sum(each.cpu_s for each in took) / looks:.2f} s of processor time "
            f"each, the last {took[-1].cpu_s:.2f} s"
        )
    store.close()


def _timed(store: Store, as_of: datetime) -> tuple[Report, Took]:
    began, used = time.perf_counter(), os.times()
    found = report(store, _experiment(), as_of=as_of)
    ended = os.times()
    cpu_s = ended.user + ended.system - used.user - used.system
    return found, Took(time.perf_counter() - began, cpu_s)


def _experiment() -> Experiment:
    arms = tuple(PlannedVariant(key=arm, checkpoint=f"model-{arm}") for arm in "ab")
    plan = Plan(key="bench", variants=arms, metrics=Goals(goals=TEN), reading="sequential")
    return Experiment(plan, "running", 1, (0, 10_000), "", None, None)


def _evenly(looks: int) -> Iterator[datetime]:
    return (_BEGAN + timedelta(days=_DAYS) * look / looks for look in range(1, looks + 1))


def _end() -> datetime:
    return _BEGAN + timedelta(days=_DAYS + 1)


if __name__ == "__main__":
    main()
