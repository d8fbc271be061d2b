"""What planned looks have to go by: the planned units' share that each whole day ended with."""

from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from experiments.assign import ExperimentSpec
from ingest.store import Store

# Nearer looks than this are the same look to the bounds.
_LEAST_STEP = 1e-3

_BY_DAY = """
SELECT intDiv(toUnixTimestamp64Micro(first) - toUnixTimestamp64Micro({began:DateTime64(6, 'UTC')}),
              86400000000) AS day, count() AS n
FROM (
    SELECT JSONExtractString(body, 'data', 'unit') AS unit, min(received_at) AS first
    FROM events FINAL
    WHERE type = 'thumbwheel.experiment.exposed.v1' AND experiment = {key:String}
      AND JSONExtractUInt(body, 'data', 'version') = {version:UInt32}
      AND JSONExtractString(body, 'data', 'reason') = 'randomised'
    GROUP BY unit
)
WHERE first >= {began:DateTime64(6, 'UTC')}
GROUP BY day
"""


class Looks(NamedTuple):
    """Of one experiment, the last one being the newest."""

    shares: tuple[float, ...]
    """Of the planned units; ascending."""
    days: int
    """Whole days until the last look."""


def looks_by_day(
    store: Store, spec: ExperimentSpec, began: datetime, days: int, planned_units: int
) -> Looks:
    """A day that brought next to nobody is no look. Raises: Unavailable."""
    rows = store.rows(_BY_DAY, key=spec.key, version=spec.version, began=began)
    met = {int(row["day"]): int(row["n"]) for row in rows}
    looks, last = [0.0], 0
    for day, units in enumerate(accumulate(met.get(day, 0) for day in range(days)), start=1):
        if units / planned_units >= looks[-1] + _LEAST_STEP:
            looks.append(units / planned_units)
            last = day
    return Looks(tuple(looks[1:]), last)
