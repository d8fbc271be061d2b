"""One report of Continue, an editor extension, about its own use, and what makes it the same report.

Continue sends no id of a report. So a report is known by what is in it: Continue's own completion
id where there is one, else the code and text in it, else all of it with its time.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingest.events import Consent

_STAMPS = ("timestamp", "createdAt", "schema", "eventName")
ENVELOPE = frozenset({*_STAMPS, "userId"})
"""What the fact around the data says."""
EVENTS = frozenset(
    {
        "autocomplete", "chatFeedback", "chatInteraction", "editInteraction", "editOutcome",
        "nextEditOutcome", "nextEditWithHistory", "quickEdit", "tokensGenerated", "toolUsage",
    }
)  # fmt: skip
"""The names that Continue gives its reports; a newer one may have more."""
_COMPLETIONS = ("autocomplete", "nextEditOutcome")
_WRITTEN = ("completion", "newCode", "toolCallArgs", "afterContent")
"""One of these makes two reports of different things different, without their times."""
_NAMES = frozenset(
    {
        "completionId", "model", "modelName", "modelProvider", "modelTitle",
        "multilineCompletions", "provider", "requestId", "schema", "selectedProfileId",
        "sessionId", "timestamp", "uniqueId", "userAgent",
    }
)  # fmt: skip
"""Texts that say nothing of what a person or a model wrote."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class DevEvent:
    """One report, as posted to a destination or as a line of a file."""

    name: str
    data: Json
    consent: Consent
    user: str | None = None
    """Who it is of, where that is known better than by the report's own `userId`."""
    repeat: int = 0
    """How many equal reports without a time came before it."""

    @property
    def key(self) -> str:
        """The same for the same report, by whichever way and however often it comes."""
        if self.name in _COMPLETIONS and self.data.get("completionId"):
            return digest(self.name, self.data.get("uniqueId"), self.data["completionId"])
        said = {name: value for name, value in self.data.items() if name not in _STAMPS}
        # A thumb that goes up, down and up again is three votes: their times tell them apart.
        if self.name != "chatFeedback" and any(self.data.get(name) for name in _WRITTEN):
            return digest(self.name, said)
        return digest(self.name, said, self.stamp, self.repeat)

    @property
    def stamp(self) -> Any:  # noqa: ANN401 - Continue sends a text or a number
        return self.data.get("timestamp") or self.data.get("createdAt")


def completion_id(data: Json) -> str | None:
    """Joins a vote and an edit's outcome to their answer; None where the report holds no content."""
    prompt, completion = data.get("prompt"), data.get("completion")
    if not prompt and not completion:
        return None
    return digest("completion", data.get("sessionId"), prompt, completion)


def measures(data: Json) -> dict[str, Any]:
    """What is left of a report without anything that a person or a model wrote."""
    return {
        name: value
        for name, value in data.items()
        if isinstance(value, int | float) or (isinstance(value, str) and name in _NAMES)
    }


def digest(*parts: object) -> str:
    """The same 32 hex digits for the same JSON values."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
