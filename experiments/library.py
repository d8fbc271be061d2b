"""The metrics there are: ready ones for coding agents, and those of a folder that a user names."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments._measures import Cap, Measure, Metric, Segment, Term, Where
from experiments._resolve import Resolver, Terms, fields_of, measure_of, with_value
from experiments.definitions import (
    ConversionMetric,
    Definitions,
    FactMeasure,
    FeedbackMetric,
    Measured,
    MetricFile,
    ProductMeasure,
    QuantileMetric,
    RatioMetric,
    SegmentFile,
    parse,
)
from ingest.errors import BadInput

_READY = "library.yaml"
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
_THUMBS = {"net": "up - down", "up": "up", "down": "down", "response": "up + down"}
_COMPLETIONS = (Term(1, (Measure("completion.finished"),)),)


@dataclass(frozen=True)
class Library:
    metrics: Mapping[str, Metric]
    segments: Mapping[str, Segment]


def load(*folders: Path) -> Library:
    """The ready metrics and those in `*.yaml` and `*.yml` files of the folders.

    All files share their measures; a name may be given once.
    Raises: BadInput naming file and field.
    """
    ready = (files("experiments") / _READY).read_text(encoding="utf-8")
    found = _Collected()
    found.add(parse(ready, _READY), _READY)
    for file in (file for folder in folders for file in _files(folder)):
        found.add(parse(_read(file), str(file)), str(file))
    return found.library()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadInput.of("metrics", f"{folder} is no folder")
    return sorted(file for file in folder.iterdir() if file.suffix in {".yaml", ".yml"})


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput.of(str(file), f"cannot be read: {type(error).__name__}") from error


class _Collected:
    """Everything from all files, by where it is."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], str] = {}
        self._measures: dict[str, Measured] = {}
        self._metrics: dict[str, MetricFile] = {}
        self._segments: dict[str, SegmentFile] = {}

    def add(self, definitions: Definitions, file: str) -> None:
        sections: tuple[tuple[str, dict[str, Any], Mapping[str, Any]], ...] = (
            ("measures", self._measures, definitions.measures),
            ("metrics", self._metrics, definitions.metrics),
            ("segments", self._segments, definitions.segments),
        )
        for section, known, more in sections:
            for name in more:
                if first := self._files.get((section, name)):
                    raise BadInput.of(f"{file}: {section}.{name}", f"is in {first} already")
                self._files[section, name] = file
            known.update(more)

    def library(self) -> Library:
        resolver = Resolver(self._measures)
        for name, measured in self._measures.items():
            resolver.terms(measured, self._at("measures", name), (name,))
        return Library(
            metrics={
                key: _metric(key, each, resolver, self._at("metrics", key))
                for key, each in self._metrics.items()
            },
            segments={
                key: _segment(key, each, self._at("segments", key))
                for key, each in self._segments.items()
            },
        )

    def _at(self, section: str, name: str) -> str:
        return f"{self._files[section, name]}: {section}.{name}"


def _segment(key: str, segment: SegmentFile, at: str) -> Segment:
    field = fields_of(segment.fact, f"{at}.fact").get(segment.field)
    if field is None or field.kind != "text":
        raise BadInput.of(f"{at}.field", f"{segment.fact} has no text of that name to split by")
    return Segment(key, segment.title, segment.fact, segment.field)


def _metric(key: str, each: MetricFile, resolver: Resolver, at: str) -> Metric:
    top, bottom = _sums(each, resolver, at)
    window, cap = each.window, getattr(each, "cap", None)
    if cap and (cap.at is None) == (cap.quantile is None):
        raise BadInput.of(f"{at}.cap", "give either at or quantile")
    return Metric(
        key=key,
        title=each.title,
        definition=" ".join(each.definition.split()),
        numerator=_THUMBS[each.score] if isinstance(each, FeedbackMetric) else _words(each.numerator),
        denominator=_denominator(each),
        good=each.good,
        kind=each.kind,
        version=each.version,
        unit=each.unit,
        window_s=int(window[:-1]) * _SECONDS[window[-1]] if window else None,
        minimum=each.minimum,
        cap=Cap(cap.at, cap.quantile) if cap else None,
        at_least=each.at_least if isinstance(each, ConversionMetric) else 1,
        quantile=each.quantile if isinstance(each, QuantileMetric) else None,
        timeout=each.timeout if isinstance(each, QuantileMetric) else None,
        score=each.score if isinstance(each, FeedbackMetric) else None,
        top=top,
        bottom=bottom,
    )  # fmt: skip


def _sums(each: MetricFile, resolver: Resolver, at: str) -> tuple[Terms, Terms]:
    if isinstance(each, FeedbackMetric):
        return _thumbs(each.name), _COMPLETIONS
    if isinstance(each, RatioMetric):
        numerator = resolver.terms(each.numerator, f"{at}.numerator")
        return numerator, resolver.terms(each.denominator, f"{at}.denominator")
    if each.kind == "mean" or isinstance(each, QuantileMetric):
        measure = measure_of(each.numerator, f"{at}.numerator")
        if measure.value is None:
            raise BadInput.of(f"{at}.numerator.value", "which field of the fact")
        if isinstance(each, QuantileMetric) and measure.each != "fact":
            raise BadInput.of(f"{at}.numerator.each", "a quantile is one of facts: leave it out")
        return (Term(1, (measure,)),), (Term(1, (with_value(measure),)),)
    return resolver.terms(each.numerator, f"{at}.numerator"), ()


def _thumbs(name: str) -> Terms:
    """Up, then down, both added: what a score makes of them comes later."""
    said = Where("name", words=(name,))
    up, down = Where("score", low=(0.0, False)), Where("score", high=(0.0, True))
    return tuple(
        Term(1, (Measure("feedback", where=((said, score),)),)) for score in (up, down)
    )  # fmt: skip


def _denominator(each: MetricFile) -> str:
    if isinstance(each, FeedbackMetric):
        return "completions"
    if isinstance(each, RatioMetric):
        return _words(each.denominator)
    return "units" if each.kind in {"count", "conversion"} else "facts that have it"


def _words(measured: Measured) -> str:
    if isinstance(measured, str):
        return measured.replace("_", " ")
    if isinstance(measured, FactMeasure):
        return f"{measured.value} of {measured.fact}" if measured.value else measured.fact
    if isinstance(measured, ProductMeasure):
        return " × ".join(map(_words, measured.times))
    taken = "".join(f" - {_words(part)}" for part in measured.minus)
    return " + ".join(map(_words, measured.plus)) + taken
