"""The facts and fields that a metric may count, and the columns they are read from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ingest.events import json_schema

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
COLUMNS = frozenset({"lines_added", "lines_removed"})
"""Columns of their own: sums over the parts of an edit."""


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
_LINES = {name: Field(name, "number", whole=True) for name in sorted(COLUMNS)}


@cache
def facts() -> Mapping[str, Mapping[str, Field]]:
    """Fields of each kind of fact, by its name without `thumbwheel.` and `.v1`; no content."""
    schema = json_schema()
    definitions = schema["$defs"]
    found: dict[str, Mapping[str, Field]] = {FEEDBACK: _RATING}
    for type_, reference in schema["discriminator"]["mapping"].items():
        data = _resolve(definitions, definitions[_last(reference)]["properties"]["data"])
        fields = {name: _field(name, part) for name, part in data["properties"].items()}
        name = type_.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        found[name] = {name: field for name, field in fields.items() if field}
    found["diff.proposed"] = {**found["diff.proposed"], **_LINES}
    return found


def type_of(fact: str) -> str:
    """The event type of a kind of fact."""
    return f"{_PREFIX}{fact}{_SUFFIX}"


def _last(reference: str) -> str:
    return reference.rsplit("/", 1)[-1]


def _resolve(definitions: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    resolved: Mapping[str, Any] = definitions[_last(part["$ref"])] if "$ref" in part else part
    return resolved


def _field(name: str, part: Mapping[str, Any]) -> Field | None:
    """None for what cannot be counted: content, lists and objects."""
    kinds = [each for each in part.get("anyOf", [part]) if each.get("type") != "null"]
    if len(kinds) != 1 or "x-thumbwheel-content" in kinds[0]:
        return None
    kind, default = kinds[0], part.get("default")
    if kind.get("type") == "string":
        words = tuple(kind.get("enum", ())) or ((kind["const"],) if "const" in kind else ())
        return Field(name, "text", words=words, default=default)
    if kind.get("type") in {"number", "integer"}:
        return Field(name, "number", whole=kind["type"] == "integer")
    return Field(name, "flag") if kind.get("type") == "boolean" else None
