"""CloudEvents, one a line: whatever wrote them, each is sent in its own words."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import ValidationError

from ingest._facts import Data
from ingest.errors import BadInput
from ingest.events import CONSENT_LEVELS, CONTENT_FIELDS, Consent, parse
from ingest.importers._history import Summary, Tallies
from ingest.importers._lines import Line, Lines, checked

ORIGIN = "events"


@dataclass(frozen=True)
class EventFile:
    """A file whose every line is JSON; nothing has been sent yet."""

    summary: Summary
    lines: Lines

    def events(self, *, consent: Consent, user: str = "unknown") -> Iterator[str]:
        """Each event as its line has it, in their order.

        Only one whose own consent goes beyond `consent` is written anew: with that consent, and
        without content where that is `metrics`. No consent is ever raised.

        Raises: BadInput for an unknown consent level, or a user: events carry their own.
        """
        if user != "unknown":
            raise BadInput.of("user", "events carry their own user; leave --user out")
        return self._events(checked(consent))

    def _events(self, most: Consent) -> Iterator[str]:
        # The file may have grown since it was checked.
        for line in islice(self.lines, self.summary.counts["events"]):
            yield _lowered(line, most) if _goes_beyond(line, most) else line.raw.text


def event_file(lines: Lines) -> EventFile:
    """A file of events, every line of it read once.

    What is no valid event is named in the summary and sent all the same: the server judges.
    """
    types: Counter[str] = Counter()
    consents: Counter[str] = Counter()
    unclear = Tallies()
    for line in lines:
        types[str(line.fields.get("type"))] += 1
        consents[str(line.fields.get("consent", "metrics"))] += 1
        if problem := _problem(line):
            unclear.add(problem, line.number)
    counts = {"events": types.total()}
    counts |= {f"consent {name}": count for name, count in sorted(consents.items())}
    counts |= {f"type {name}": count for name, count in sorted(types.items())}
    summary = Summary(ORIGIN, lines.path, lines.sha256, counts, {}, unclear, ())
    return EventFile(summary, lines)


def _problem(line: Line) -> str | None:
    if line.raw.problem:
        return line.raw.problem
    try:
        parse(line.raw.clean)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        names = (str(part) for part in first["loc"] if "thumbwheel." not in str(part))
        return f"{'.'.join(names) or 'event'}: {first['msg'].lower()}"
    return None


def _goes_beyond(line: Line, most: Consent) -> bool:
    own = line.fields.get("consent")
    return own in CONSENT_LEVELS and CONSENT_LEVELS.index(own) > CONSENT_LEVELS.index(most)


def _lowered(line: Line, most: Consent) -> str:
    event = line.fields | {"consent": most}
    if most == "metrics":
        event["data"] = _measures(event)
    return json.dumps(event)


def _measures(event: Mapping[str, Any]) -> dict[str, Any]:
    """What of the data is known to be no content, and numbers."""
    data = event.get("data")
    if not isinstance(data, Mapping):
        return {}
    known = _fields_of(event) - CONTENT_FIELDS
    return {
        name: _without_content(value)
        for name, value in data.items()
        if name in known or isinstance(value, int | float)
    }


def _fields_of(event: Mapping[str, Any]) -> set[str]:
    """What the schema knows of the data; nothing where it does not know the event."""
    try:
        body = getattr(parse(event), "data", None)
    except ValidationError:
        return set()
    if not isinstance(body, Data):
        return set()
    return {field.alias or name for name, field in type(body).model_fields.items()}


def _without_content(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        return {n: _without_content(v) for n, v in value.items() if n not in CONTENT_FIELDS}
    return [_without_content(each) for each in value] if isinstance(value, list) else value
