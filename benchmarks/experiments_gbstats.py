"""GrowthBook's statistics engine, in an environment of its own: lines of JSON in and out.

Told metrics with their rows of sums, one per arm and segment, it answers with the p-value and the
interval of every arm against the first. Making its data frames is not timed.
"""

import json
import sys
import time
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Any


def main() -> None:
    warnings.simplefilter("ignore")
    metrics, arms = json.loads(sys.stdin.readline())
    pandas = import_module("pandas")
    engine = import_module("gbstats.gbstats")
    models = import_module("gbstats.models.settings")
    analysis = models.AnalysisSettingsForStatsEngine(
        var_names=arms, var_ids=arms, weights=[1 / len(arms)] * len(arms),
        stats_engine="frequentist", difference_type="absolute", max_dimensions=1_000,
    )  # fmt: skip
    metric = models.MetricSettingsForStatsEngine(
        id="m", name="m", statistic_type="ratio",
        main_metric_type="count", denominator_metric_type="count",
    )  # fmt: skip
    ids = engine.get_var_id_map(arms)
    frames = [engine.get_metric_df(pandas.DataFrame(rows), ids, arms) for rows in metrics]
    print(json.dumps({"version": f"gbstats {version('gbstats')}"}), flush=True)
    for line in sys.stdin:
        fresh = [frame.copy() for frame in frames]
        began = time.process_time()
        found = [engine.analyze_metric_df(frame, metric, analysis) for frame in fresh]
        seconds = time.process_time() - began
        answer = {"answers": answers(found, len(arms))} if line.strip() == "answers" else {}
        print(json.dumps(answer | {"seconds": seconds}), flush=True)


def answers(found: list[Any], arms: int) -> list[list[float]]:
    """(p, low, high) by metric, segment and arm."""
    return [
        [row[f"v{arm}_p_value"], *row[f"v{arm}_ci"]]
        for frame in found
        for row in frame.to_dict("records")
        for arm in range(1, arms)
    ]


if __name__ == "__main__":
    main()
