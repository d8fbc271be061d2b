"""What became of the facts, from the server's own answer and from the rows of its store."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from ingest.store import Store
from tests.chaos.traffic import Sent

_AT_ONCE = 5_000


@dataclass(frozen=True)
class Audit:
    missing: int
    repeated: int


def audit(url: str, key: str, facts: Sequence[Sent], *, within_s: float) -> Audit:
    """As soon as nothing is missing any more, or at the end of the time."""
    deadline = time.monotonic() + within_s
    while True:
        found = _audit(url, key, facts)
        if found.missing == 0 or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _audit(url: str, key: str, facts: Sequence[Sent]) -> Audit:
    missing = repeated = 0
    for start in range(0, len(facts), _AT_ONCE):
        part = facts[start : start + _AT_ONCE]
        try:
            answer = httpx.post(
                f"{url}/v1/events/audit",
                json={"facts": [{"source": fact.source, "id": fact.id} for fact in part]},
                headers={"Authorization": f"Bearer {key}"},
                timeout=30,
            )
        except httpx.TransportError:
            missing += len(part)
            continue
        if answer.status_code != 200:
            missing += len(part)
            continue
        missing += len(answer.json()["missing"])
        repeated += len(answer.json()["repeated"])
    return Audit(missing, repeated)


@dataclass(frozen=True)
class Rows:
    """Of all facts of a deployment: what its store says itself."""

    lost: int
    doubled: int
    strange: int
    """Rows of facts that nobody sent in full."""
    disordered: int
    """Facts whose place in the log is before that of an earlier one of their conversation."""


def rows(store: Store, acknowledged: Sequence[Sent]) -> Rows:
    """Every acknowledged fact has one row, and the order of its conversation."""
    found = store.rows(
        "SELECT source, id, any(conversation) AS conversation, any(sequence) AS sequence, "
        "any(position) AS position, count() AS n FROM events FINAL "
        "WHERE startsWith(source, '/chaos/') GROUP BY source, id ORDER BY conversation, sequence"
    )
    kept = {(row["source"], row["id"]) for row in found}
    wanted = {(fact.source, fact.id) for fact in acknowledged}
    last: dict[str, tuple[int, int]] = {}
    disordered = 0
    for row in found:
        conversation = str(row["conversation"])
        place = _place(str(row["position"]))
        before = last.get(conversation, place)
        if place[0] != before[0] or place[1] < before[1]:
            disordered += 1
        last[conversation] = max(place, before, key=lambda each: each[1])
    return Rows(
        lost=len(wanted - kept),
        doubled=sum(row["n"] > 1 for row in found),
        strange=sum(row["id"] != f"{row['conversation']}-{row['sequence']}" for row in found),
        disordered=disordered,
    )


def _place(position: str) -> tuple[int, int]:
    """Partition and offset."""
    found = re.search(r"/(\d+)/(\d+)$", position)
    assert found, position
    return int(found[1]), int(found[2])
