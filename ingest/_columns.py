"""What the store has columns for of a fact, read without making objects of the rest."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder
from pydantic import TypeAdapter

from ingest.events import conversation_of

_INTEGER: TypeAdapter[int] = TypeAdapter(int)


# Neither holds what could hold it, so the garbage collector need not look at a hundred thousand.
class Data(Struct, frozen=True, gc=False):
    """Of what the fact is about."""

    conversation: str | None = field(default=None, name="gen_ai.conversation.id")
    turn: str | None = field(default=None, name="turn.id")
    completion: str | None = field(default=None, name="completion.id")
    diff: str | None = field(default=None, name="diff.id")
    experiment: str | None = None
    assigned: str | None = None
    variant: str | None = None


class Named(Struct, frozen=True, gc=False):
    """Of the envelope; None and "" are the same to the store."""

    source: str
    id: str
    type: str
    time: str | None = None
    sequence: int | None = None
    subject: str | None = None
    user: str | None = None
    organization: str | None = None
    partitionkey: str | None = None
    consent: str | None = None
    data: Data | None = None

    def texts(self) -> tuple[str, ...]:
        """From the column `subject` to the column `consent`."""
        data = self.data or _NOTHING
        return (
            self.subject or "",
            self.user or "",
            self.organization or "",
            self.partitionkey or data.conversation or "",
            data.turn or "",
            data.completion or "",
            data.diff or "",
            data.experiment or "",
            data.assigned or data.variant or "",
            self.consent or "metrics",
        )


_NOTHING = Data()

read_all = Decoder(list[Named]).decode
"""Every fact of an array. Raises: ValueError when one of them holds what its column cannot."""


def read_loosely(wire: Mapping[str, Any]) -> Named:
    """The same of one decoded fact; what is no text where one belongs stands for nothing.

    Raises: KeyError, TypeError or ValueError for what is no fact.
    """
    for name in ("source", "id", "type"):
        if not isinstance(wire[name], str):
            raise TypeError(f"{type(wire[name]).__name__} where a name belongs")
    given = wire.get("data")
    data: Mapping[str, Any] = given if isinstance(given, dict) else {}
    return Named(
        wire["source"],
        wire["id"],
        wire["type"],
        time=wire.get("time"),
        sequence=_INTEGER.validate_python(wire.get("sequence") or 0),
        subject=_text(wire, "subject"),
        user=_text(wire, "user"),
        organization=_text(wire, "organization"),
        partitionkey=conversation_of(wire),
        consent=_text(wire, "consent"),
        data=Data(
            turn=_text(data, "turn.id"),
            completion=_text(data, "completion.id"),
            diff=_text(data, "diff.id"),
            experiment=_text(data, "experiment"),
            assigned=_text(data, "assigned"),
            variant=_text(data, "variant"),
        ),
    )


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) else None
