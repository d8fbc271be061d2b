"""Facts for tests: valid unless a test says otherwise."""

from typing import Any
from uuid import uuid4


def fact(kind: str = "turn.submitted", **changes: Any) -> dict[str, Any]:
    """A CloudEvent; `data` replaces the default data, other changes replace attributes."""
    return {
        "specversion": "1.0",
        "id": str(uuid4()),
        "source": "/ext/test/session",
        "type": f"thumbwheel.{kind}.v1",
        "time": "2026-11-30T12:00:00Z",
        "data": {"turn.id": "t1", "gen_ai.conversation.id": "c1"},
    } | changes
