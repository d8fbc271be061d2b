"""Metrics, and what the facts of an experiment say of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from experiments._measures import Metric, Segment
from experiments._reading import ArmMoments, Reading, Sample
from experiments.assign import ExperimentSpec
from experiments.library import load
from experiments.scan import scan
from ingest.errors import BadInput
from ingest.store import Store

__all__ = [
    "METRICS",
    "SEGMENTS",
    "ArmMoments",
    "Metric",
    "Reading",
    "Sample",
    "Segment",
    "metric",
    "read",
    "segment",
    "use_folder",
]

_ready = load()
_metrics, _segments = dict(_ready.metrics), dict(_ready.segments)
METRICS: Mapping[str, Metric] = _metrics
SEGMENTS: Mapping[str, Segment] = _segments


def use_folder(folder: Path) -> None:
    """The metrics and segments of the folder's files are there too, for this process.

    Raises: BadInput naming file and field; then nothing has changed.
    """
    found = load(folder)
    _metrics.update(found.metrics)
    _segments.update(found.segments)


def metric(key: str, field: str) -> Metric:
    """The metric of that key. Raises: BadInput naming `field` and the keys there are."""
    if key not in METRICS:
        raise BadInput.of(field, f"no metric {key!r}; there are {', '.join(METRICS)}")
    return METRICS[key]


def segment(key: str, field: str) -> Segment:
    """The segment of that key. Raises: BadInput naming `field` and the keys there are."""
    if key not in SEGMENTS:
        raise BadInput.of(field, f"no segment {key!r}; there are {', '.join(SEGMENTS)}")
    return SEGMENTS[key]


def read(
    store: Store, spec: ExperimentSpec, metrics: Sequence[Metric], *, as_of: datetime
) -> Reading:
    """Moments of every metric for every arm, from facts received until `as_of`.

    `experiments.scan.scan` has more: segments, and units whose window is over.
    Raises: Unavailable.
    """
    return scan(store, spec, metrics, as_of=as_of)
