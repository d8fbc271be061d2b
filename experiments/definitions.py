"""The files that define metrics: their schema, and why one is refused.

A file is YAML: named `measures` that metrics refer to, `metrics`, and `segments`. `json_schema()` is
its JSON Schema; docs/metrics.md explains it. A definition is data: names come from closed lists or
fit a pattern, and every value is bound, so nothing in a file can become SQL.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NoReturn, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from experiments._measures import Each, Take
from ingest.errors import BadInput, FieldError

FORMAT = 1
_LONGEST = 1 << 18
_DEEPEST = 32

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
_Text = Annotated[str, Field(min_length=1, max_length=2_000)]
_Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e9, le=1e9)]
_Word = Annotated[str, Field(max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Bounds(_Strict):
    """Of a number: `min` and `max` are within, `above` and `below` are not."""

    min: _Number | None = None
    above: _Number | None = None
    max: _Number | None = None
    below: _Number | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        lows = [each for each in (self.min, self.above) if each is not None]
        highs = [each for each in (self.max, self.below) if each is not None]
        if lows and highs and max(lows) > min(highs):
            raise ValueError("no number is that high and that low")
        return self


def _shape(value: object) -> str:
    shapes = {bool: "~flag", int: "~number", float: "~number", str: "~word", list: "~words"}
    return shapes.get(type(value), "~bounds")


Condition = Annotated[
    Annotated[bool, Tag("~flag")]
    | Annotated[_Number, Tag("~number")]
    | Annotated[_Word, Tag("~word")]
    | Annotated[Annotated[list[_Word], Field(min_length=1, max_length=1_000)], Tag("~words")]
    | Annotated[Bounds, Tag("~bounds")],
    Discriminator(_shape),
]
Conditions = dict[str, Condition]
_Where = Annotated[
    Annotated[Conditions, Tag("~all")]
    | Annotated[Annotated[list[Conditions], Field(min_length=1, max_length=32)], Tag("~any")],
    Discriminator(lambda value: "~any" if isinstance(value, list) else "~all"),
]


class FactMeasure(_Strict):
    """Facts of one kind: how many, or the sum of one of their fields."""

    fact: str
    """An event type without `thumbwheel.` and `.v1`, or `feedback`: the last words of raters."""
    where: _Where = {}
    """Every field must fit; of a list, one entry must."""
    value: str | None = None
    """The field to sum; without it facts are counted."""
    each: Each = "fact"
    """`target`: an edit, else a completion, else a turn counts once, whatever is said of it."""
    take: Take | None = None
    """Of several values of one target; the last if not said."""


class SumMeasure(_Strict):
    plus: Annotated[list["Measured"], Field(min_length=1, max_length=32)]
    minus: Annotated[list["Measured"], Field(max_length=32)] = []


class ProductMeasure(_Strict):
    """The product for each target, then their sum; every factor has `each: target`."""

    times: Annotated[list["Measured"], Field(min_length=2, max_length=3)]


# Tags start with ~, so that they never look like a field in the path of an error.
def _form(value: object) -> str:
    if not isinstance(value, dict | _Strict):
        return "~name"
    keys = set(value if isinstance(value, dict) else type(value).model_fields)
    return "~sum" if "plus" in keys else "~product" if "times" in keys else "~fact"


Measured = Annotated[
    Annotated[Name, Tag("~name")]
    | Annotated[FactMeasure, Tag("~fact")]
    | Annotated[SumMeasure, Tag("~sum")]
    | Annotated[ProductMeasure, Tag("~product")],
    Discriminator(_form),
]


class CapFile(_Strict):
    """The most a unit's numerator counts: one of the two."""

    at: Annotated[float, Field(ge=1e-6, le=1e9)] | None = None
    quantile: Annotated[float, Field(ge=0.5, lt=1)] | None = None


class _Metric(_Strict):
    version: Annotated[int, Field(ge=1)] = 1
    """Raised whenever the numbers may change."""
    title: _Text
    definition: _Text
    good: Literal["up", "down"]
    unit: Annotated[str, Field(max_length=40)] = ""
    window: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}[mhd]$")] | None = None
    """Minutes, hours or days since the unit's first exposure, as in 7d."""
    minimum: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    """Units that an arm needs before its numbers should be shown."""


class CountMetric(_Metric):
    """The sum per unit."""

    kind: Literal["count"]
    numerator: Measured
    cap: CapFile | None = None


class ConversionMetric(_Metric):
    """The share of units whose sum is `at_least` so much."""

    kind: Literal["conversion"]
    numerator: Measured
    at_least: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class MeanMetric(_Metric):
    """The mean of a field over the facts, or targets, that have it."""

    kind: Literal["mean"]
    numerator: FactMeasure
    cap: CapFile | None = None


class RatioMetric(_Metric):
    kind: Literal["ratio"]
    numerator: Measured
    denominator: Measured
    cap: CapFile | None = None


class QuantileMetric(_Metric):
    """A quantile of a field over facts, clustered by unit. It takes no cap."""

    kind: Literal["quantile"]
    numerator: FactMeasure
    quantile: Annotated[float, Field(ge=0.0001, le=0.9999)]
    timeout: Annotated[float, Field(ge=1e-6, le=1e9)] | None = None
    """Facts at or above it ended there: they are counted as censored."""


class FeedbackMetric(_Metric):
    """Thumbs as three outcomes: up, down, silence; per completion served."""

    kind: Literal["feedback"]
    name: Annotated[str, Field(min_length=1, max_length=200)] = "thumb"
    score: Literal["net", "up", "down", "response"] = "net"


def _kind(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"~{kind}"


MetricFile = Annotated[
    Annotated[CountMetric, Tag("~count")]
    | Annotated[ConversionMetric, Tag("~conversion")]
    | Annotated[MeanMetric, Tag("~mean")]
    | Annotated[RatioMetric, Tag("~ratio")]
    | Annotated[QuantileMetric, Tag("~quantile")]
    | Annotated[FeedbackMetric, Tag("~feedback")],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message="kind must be count, conversion, mean, ratio, quantile or feedback",
    ),
]


class SegmentFile(_Strict):
    title: _Text
    fact: str
    field: str


class Definitions(_Strict):
    """A file of definitions."""

    format: Literal[1]
    measures: dict[Name, Measured] = {}
    metrics: dict[Name, MetricFile] = {}
    segments: dict[Name, SegmentFile] = {}


def json_schema() -> JsonSchemaValue:
    """JSON Schema of a file of definitions."""
    schema = Definitions.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def parse(text: str, file: str) -> Definitions:
    """The definitions in a file, names and values checked, references not yet.

    Raises: BadInput whose `errors` name the file and the field.
    """
    if len(text) > _LONGEST:
        raise BadInput.of(file, f"larger than {_LONGEST} characters; split it")
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{file}: line {mark.line + 1}" if mark else file
        raise BadInput.of(at, str(getattr(error, "problem", None) or error)) from error
    try:
        return Definitions.model_validate(document)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        raise refusal(
            FieldError(f"{file}: {_path(problem['loc'])}", problem["msg"].lower())
            for problem in problems[:20]
        ) from error


def refusal(problems: Iterable[FieldError]) -> BadInput:
    """One error for all of them."""
    found = tuple(problems)
    return BadInput("; ".join(f"{each.field}: {each.detail}" for each in found), errors=found)


def _path(location: tuple[int | str, ...]) -> str:
    """Where in the file it is; tags say which form was read, and have names of their own."""
    parts = (str(part) for part in location)
    return ".".join(part for part in parts if part[:1] not in {"~", "["}) or "file"


class _Loader(yaml.SafeLoader):
    """YAML without objects, in which a key that is said twice is an error, not a silent loss.

    Nor has it aliases, by which ten lines could say more than fits in memory.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            self._refuse("an alias: name a measure, and refer to it by its name", mark)
        if self._depth > _DEEPEST:
            self._refuse(f"nested more than {_DEEPEST} deep", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a date that is none, an integer of thousands of digits
            return self._refuse(str(error), node.start_mark)

    @staticmethod
    def _refuse(why: str, mark: yaml.Mark) -> NoReturn:
        raise yaml.constructor.ConstructorError(None, None, why, mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        said = [key.value for key, _ in node.value]
        if twice := [key for key in said if said.count(key) > 1]:
            self._refuse(f"{twice[0]!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)
