"""The facts and fields that a metric may count, and the columns they are read from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ingest.events import CONTENT_FIELDS, DATA_TYPES

_PREFIX, _SUFFIX = "thumbwheel.", ".v1"

FEEDBACK = "feedback"
"""The last words of raters: not a fact but what many of them add up to."""

# Elements of the column `data`, which is filled when a row is written. Any other field is read from
# the event's text: right, but some twenty times slower.
STORED = frozenset(
    {
        "outcome", "reason", "state", "trigger", "actor", "end", "received", "simulated", "version",
        "thumbwheel.language_id", "checkpoint_s", "kept_ratio", "duration_s", "decision_s",
        "visible_s", "after_s", "time_to_edit_s", "time_to_first_token_s",
        "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "cost_usd", "similarity",
    }
)  # fmt: skip
_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "turn.submitted": ("similarity",),
    "inference.completed": (*_TOKENS, "duration_s", "cost_usd"),
    "completion.finished": (*_TOKENS, "duration_s", "time_to_first_token_s"),
    **dict.fromkeys(("turn.completed", "turn.cancelled", "tool.called"), ("duration_s",)),
    "diff.proposed": ("lines_added", "lines_removed"),
    **dict.fromkeys(
        (
            "diff.shown", "completion.shown", "completion.accepted",
            "completion.partially_accepted", "completion.ended",
        ),
        ("visible_s",),
    ),
    "diff.decided": ("decision_s",),
    "diff.first_edit": ("time_to_edit_s",),
    "diff.survival": ("kept_ratio", "checkpoint_s"),
    "diff.reverted": ("after_s",),
    "diff.committed": ("after_s", "kept_ratio"),
}  # fmt: skip
"""What the elements of the column `numbers` are for each kind of fact. They are never NULL, but NaN."""


@dataclass(frozen=True)
class Field:
    """One field of a kind of fact."""

    name: str
    kind: Literal["number", "text", "flag"]
    whole: bool = False
    """An integer: summed as it is. Other numbers are summed in millionths."""
    words: tuple[str, ...] = ()
    """All it can say, where that is a closed list."""
    default: str | None = None
    """What it means where it is left out."""


_RATING = {
    "name": Field("name", "text"),
    "score": Field("score", "number"),
}
_LINES = {name: Field(name, "number", whole=True) for name in NUMBERS["diff.proposed"]}


@cache
def facts() -> Mapping[str, Mapping[str, Field]]:
    """Fields of each kind of fact, by its name without `thumbwheel.` and `.v1`; no content."""
    found: dict[str, Mapping[str, Field]] = {FEEDBACK: _RATING}
    for type_, data in DATA_TYPES.items():
        name = type_.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        fields = (_field(key, each) for key, each in data.model_fields.items())
        found[name] = {field.name: field for field in fields if field}
    found["diff.proposed"] = {**found["diff.proposed"], **_LINES}
    return found


def type_of(fact: str) -> str:
    """The event type of a kind of fact."""
    return f"{_PREFIX}{fact}{_SUFFIX}"


def _field(key: str, info: FieldInfo) -> Field | None:
    """None for what cannot be counted: content, lists and objects."""
    kinds = [each for each in _members(info.annotation) if each is not NoneType]
    name = info.alias or key
    if len(kinds) != 1 or name in CONTENT_FIELDS:
        return None
    (kind,) = kinds
    if kind is str or get_origin(kind) is Literal:
        default = info.default if isinstance(info.default, str) else None
        return Field(name, "text", words=get_args(kind), default=default)
    if kind is bool:
        return Field(name, "flag")
    return Field(name, "number", whole=kind is int) if kind in (int, float) else None


def _members(kind: Any) -> Iterator[Any]:  # noqa: ANN401 - a type, as written
    """The alternatives of a union, without what is annotated to them."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _members(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for each in get_args(kind):
            yield from _members(each)
    else:
        yield kind
