"""A/A matrix: do the tests err, cover and find as often as they say? `python -m benchmarks.aa`.

Every cell is 2,000 experiments with users drawn from one pool, so that nothing differs but what is
put in. A cell out of bounds is simulated again, once, with four times the experiments and other
random numbers; it is a fault only if it is out of the narrower bounds too. Among some two thousand
checks a few are out by chance; what is really wrong is out twice. The exit code is 1 for a fault,
or for a control that is known to be wrong and was not seen to be. Bounds are 3 standard errors.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import chain

from benchmarks.aa_answers import ALPHA
from benchmarks.aa_cells import METRICS, Cell, Users, cells, groups
from benchmarks.aa_controls import bandits, controls

AGAIN = 4
_HEADER = (
    "metric       users          icc  split  arms    1 %    5 %   10 %     KS"
    "    seq     LD  daily    +0 %  +10 % +100 %   power"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aa", description=__doc__)
    parser.add_argument("--replicates", type=int, default=2000, help="experiments a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    start = time.perf_counter()
    print("SIMULATED. Errors of the fixed test at 1, 5 and 10 %, p of uniform p values; errors at")
    print("any look of the confidence sequence, of Lan-DeMets, and of the fixed test, at 5 %;")
    print("truths that 95 % intervals miss at three effects; power where 80 % was planned.\n")
    print(_HEADER)
    faults, suspects, seen = [], 0, 0
    for users in groups():
        for cell, again in judged(users, replicates=given.replicates, seed=given.seed):
            seen += 1
            print(row(cell), flush=True)
            if again is not None:
                suspects += 1
                verdict = ", ".join(again.faults) or "within bounds"
                print(f"{row(again)}   again: {verdict}", flush=True)
                faults += [f"{name(again)}: {each}" for each in again.faults]
    wrong = show_controls(replicates=given.replicates, seed=given.seed)
    print(f"\n{seen} cells; {suspects} were simulated again; {len(faults)} faults")
    for fault in (*faults, *wrong):
        print(f"  {fault}")
    print(f"{time.perf_counter() - start:.0f} s, {time.process_time():.0f} s of them on a core")
    return 1 if faults or wrong else 0


def judged(users: Users, *, replicates: int, seed: int) -> Iterator[tuple[Cell, Cell | None]]:
    """The users' cells, each with its second simulation if it was out of bounds."""
    for cell in cells(users, METRICS, replicates=replicates, seed=seed):
        if not cell.faults:
            yield cell, None
            continue
        [again] = cells(users, [cell.metric], replicates=AGAIN * replicates, seed=seed + 1)
        yield cell, again


def name(cell: Cell) -> str:
    users = cell.users
    return f"{cell.metric:12} {users.shape:14} {users.icc:.1f}  {users.split:6} {users.arms:3}"


def row(cell: Cell) -> str:
    errors = " ".join(f"{each.observed:6.2%}" for each in cell.errors)
    uniform = "     –" if cell.ks_p is None else f"{cell.ks_p:6.3f}"
    looks = " ".join(
        f"{each:6.2%}" for each in (cell.sequence.observed, cell.spending.observed, cell.daily)
    )
    misses = " ".join(f"{each.observed:6.2%}" for each in cell.misses)
    return f"{name(cell)}  {errors} {uniform} {looks}  {misses}  {1 - cell.lost.observed:6.2%}"


def show_controls(*, replicates: int, seed: int) -> list[str]:
    """The names of those that did not do what they should."""
    print(f"\n{'errors at 5 % where nothing differs':38} observed")
    wrong = []
    several = controls, bandits
    for each in chain(*(each(replicates=replicates, seed=seed) for each in several)):
        said = "FAILS, as it must" if each.fails else "holds"
        if not each.as_expected:
            said = "was not seen to fail" if each.fails else f"ERRS above {ALPHA:.0%}"
            wrong.append(f"{each.name}: {said}")
        print(
            f"{each.name:38} {each.rate.observed:6.2%} ± {each.rate.std_error:.2%}   {said}",
            flush=True,
        )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
