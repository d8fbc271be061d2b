"""Development data of Continue, an editor extension, told as facts."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ingest._dev_event import DevEvent, Json, digest
from ingest._dev_facts import OTHER, Said, told
from ingest.errors import BadInput
from ingest.events import SCHEMA_URI, Consent

SOURCE = "/continue"
_MAX_NAME = 200


def posted(body: object, *, consent: Consent, user: str | None) -> DevEvent:
    """What a destination is sent: `{"name", "data", "schema", "level", "profileId"}`.

    Only level `all` can hold code; at any other the report is of consent `metrics`.

    Raises: BadInput naming the field.
    """
    fields = body if isinstance(body, Mapping) else {}
    name, data = fields.get("name"), fields.get("data")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise BadInput.of("name", f"the event's name, of 1 to {_MAX_NAME} characters, is missing")
    if not isinstance(data, Mapping):
        raise BadInput.of("data", "the event's data, an object, is missing")
    if fields.get("level", "all") != "all":
        consent = "metrics"
    return DevEvent(name, data, consent, user)


def facts_of(event: DevEvent) -> list[dict[str, Any]]:
    """The facts that a report stands for; without content where consent is `metrics`."""
    return [
        _fact(event, kind, data, sequence)
        for sequence, (kind, data) in enumerate(told(event), start=1)
    ]


def _fact(event: DevEvent, kind: str, data: Json, sequence: int) -> dict[str, Any]:
    is_ours = not kind.startswith(OTHER)
    said = Said(event.data)
    attributes = {
        "specversion": "1.0",
        # A completion that was ignored and is accepted after all has two ends.
        "id": digest(kind, event.key, data.get("end")),
        "source": SOURCE,
        "type": f"thumbwheel.{kind}.v1" if is_ours else kind,
        "time": _time(event.stamp),
        "dataschema": SCHEMA_URI if is_ours else None,
        "sequence": sequence,
        "consent": event.consent,
        "partitionkey": said.text("sessionId"),
        "user": event.user or said.text("userId"),
        "data": {name: value for name, value in data.items() if value is not None},
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _time(stamp: object) -> str | None:
    """RFC 3339, where the report has a time that a calendar knows."""
    try:
        if isinstance(stamp, str) and datetime.fromisoformat(stamp).tzinfo:
            return stamp
        if isinstance(stamp, int | float) and math.isfinite(stamp):
            return datetime.fromtimestamp(stamp / 1000, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None
    return None
