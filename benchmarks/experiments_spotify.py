"""Spotify's group-sequential bounds, in an environment of their own: lines of JSON in and out."""

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version


def main() -> None:
    given = json.loads(sys.stdin.readline())
    numpy = import_module("numpy")
    solver = import_module("spotify_confidence.analysis.frequentist.sequential_bound_solver")
    times = numpy.array(given["information"])
    print(
        json.dumps({"version": f"spotify-confidence {version('spotify-confidence')}"}), flush=True
    )
    for line in sys.stdin:
        began = time.process_time()
        found = solver.bounds(times, alpha=given["alpha"], rho=given["phi"], ztrun=8.0, sides=1)
        seconds = time.process_time() - began
        answer = {"answers": found.bounds.tolist()} if line.strip() == "answers" else {}
        print(json.dumps(answer | {"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
