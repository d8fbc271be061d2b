"""What an import gives: facts in their order, and a summary a person can check."""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ingest.errors import BadInput
from ingest.events import CONSENT_LEVELS, CONTENT_FIELDS, SCHEMA_URI, Consent, parse

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:thumbwheel:import")
# What the schema does not know as content yet and a person or a model wrote all the same.
_CONTENT = CONTENT_FIELDS | {"gen_ai.system_instructions"}
_EXAMPLES = 3


def id_of(*parts: object) -> str:
    """The same id for the same parts, on every machine and in every import."""
    return str(uuid.uuid5(_NAMESPACE, "\x1f".join(map(str, parts))))


@dataclass(frozen=True)
class Tally:
    """How often a reason came up, and the first lines where it did."""

    count: int = 0
    lines: tuple[int, ...] = ()

    def and_line(self, line: int) -> "Tally":
        return Tally(self.count + 1, (*self.lines, line)[:_EXAMPLES])


class Tallies(dict[str, Tally]):
    """Tallies while a file is read."""

    def add(self, reason: str, line: int) -> None:
        self[reason] = self.get(reason, Tally()).and_line(line)


@dataclass(frozen=True)
class Summary:
    """What a file held. `events.*` counts facts; all other counts are of the file itself."""

    origin: str
    file: Path
    file_sha256: str
    """Of the decompressed bytes."""
    counts: dict[str, int]
    understood: dict[str, Tally]
    not_understood: dict[str, Tally]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        rows = [f"{self.origin} history {self.file} (sha256 {self.file_sha256[:12]}…)"]
        rows += [f"  {count:>8,}  {name}" for name, count in self.counts.items()]
        for title, tallies in ("read", self.understood), ("not understood", self.not_understood):
            rows += [
                f"  {title}: {tally.count:,} × {reason} (line {', '.join(map(str, tally.lines))})"
                for reason, tally in tallies.items()
            ]
        return "\n".join([*rows, *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class Draft:
    """A fact before consent and user are known."""

    type: str
    """The noun and verb: `turn.submitted`."""
    key: str
    """Says which fact this is within `origin`; its id comes from it."""
    data: Mapping[str, Any]
    """By wire names; None stands for not known and is left out."""
    time: str | None = None
    subject: str | None = None
    conversation: str | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class History:
    """A file that was read, checked and understood in full; nothing has been sent yet."""

    summary: Summary
    drafts: tuple[Draft, ...] = field(repr=False)

    def events(self, *, consent: Consent, user: str = "unknown") -> Iterator[dict[str, Any]]:
        """All facts as CloudEvents, in the order in which they happened.

        At consent `metrics` nothing that a person or a model wrote is in them.

        Raises: BadInput for an unknown consent level or an empty user.
        """
        if consent not in CONSENT_LEVELS:
            raise BadInput.of("consent", f"{consent!r} is none of {', '.join(CONSENT_LEVELS)}")
        if not user.strip():
            raise BadInput.of("user", "is empty; say whose history this is")
        return self._events(consent, user)

    def _events(self, consent: Consent, user: str) -> Iterator[dict[str, Any]]:
        origin = self.summary.origin
        source = f"/import/{origin}/{quote(user, safe='@+', errors='surrogatepass')}"
        for draft in self.drafts:
            attributes = {
                "specversion": "1.0",
                "id": id_of(origin, draft.type, draft.key),
                "source": source,
                "type": f"thumbwheel.{draft.type}.v1",
                "time": draft.time,
                "subject": draft.subject,
                "dataschema": SCHEMA_URI,
                "datacontenttype": "application/json",
                "sequence": draft.sequence,
                "consent": consent,
                "partitionkey": draft.conversation,
                "user": user,
                "data": _stated(draft.data, keep_content=consent != "metrics"),
            }
            yield {name: value for name, value in attributes.items() if value is not None}


def _stated(value: Any, *, keep_content: bool) -> Any:  # noqa: ANN401  JSON
    """JSON without what is not known and, below consent, without content at any depth."""
    if isinstance(value, Mapping):
        return {
            name: _stated(inner, keep_content=keep_content)
            for name, inner in value.items()
            if inner is not None and (keep_content or name not in _CONTENT)
        }
    if isinstance(value, list | tuple):
        return [_stated(inner, keep_content=keep_content) for inner in value]
    return value


def finished(summary: Summary, drafts: list[Draft]) -> History:
    """The history with one import.recorded at its end and every fact held against the schema."""
    counts = summary.counts | {
        f"events.{name}": count for name, count in Counter(one.type for one in drafts).items()
    }
    recorded = {
        "origin": summary.origin,
        "file_sha256": summary.file_sha256,
        "counts": counts,
        "not_understood": {why: tally.count for why, tally in summary.not_understood.items()},
    }
    drafts = [*drafts, Draft("import.recorded", summary.file_sha256, recorded)]
    counts = counts | {"events.import.recorded": 1, "events": len(drafts)}
    history = History(
        Summary(
            summary.origin, summary.file, summary.file_sha256, counts,
            summary.understood, summary.not_understood, summary.notes,
        ),
        tuple(drafts),
    )  # fmt: skip
    for event in history.events(consent="training"):
        parse(event)
    return history
