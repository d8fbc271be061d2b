"""A room with two users' facts in every place where facts are kept, to erase one of them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ingest._blobs import Blobs
from ingest._erasure import Erasures
from ingest._known import FactId
from ingest.drain import Drain
from ingest.feedback import Feedback, Rated, Rating
from ingest.log import Entry
from ingest.room import Ingest
from ingest.wire import Raw
from tests.facts import fact

ANN, BOB = "ann@example.org", "bob@example.org"
THEN = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = datetime(2026, 1, 2, tzinfo=UTC)
AFTER = datetime(2026, 1, 3, tzinfo=UTC)


def pseudonym(user: str) -> str:
    return f"u_{len(user)}"


@dataclass
class Datasets:
    """Remembers what it was asked to mark."""

    asked: list[set[FactId]] = field(default_factory=list)

    def __call__(self, _erasure: str, facts: Collection[FactId]) -> Mapping[str, Sequence[str]]:
        self.asked.append(set(facts))
        return {"datasets": ["sft-1"] if facts else []}


@dataclass
class House:
    """A room with two users' facts in every place where facts are kept."""

    room: Ingest
    drain: Drain
    blobs: Blobs
    datasets: Datasets = field(default_factory=Datasets)

    def erasures(self) -> Erasures:
        room = self.room
        return Erasures(
            room.control,
            room.store,
            room.log,
            self.blobs,
            room.settings,
            pseudonym=pseudonym,
            derived=self.datasets,
            now=lambda: ASKED,
        )

    def tell(self, *facts: dict[str, Any], at: datetime = THEN) -> None:
        self.room.intake.now = lambda: at
        receipt = self.room.intake.take([Raw(json.dumps(each), each) for each in facts])
        assert receipt.count("accepted") == len(facts), receipt

    def rate(self, rater: str, turn: str) -> None:
        target = Rated.model_validate({"kind": "turn", "id": turn})
        Feedback(self.room.control, self.room.intake).give(
            Rating(target=target, value=True), rater=rater
        )

    def store_all(self) -> None:
        while self.drain.step(timeout_s=0):
            pass

    def erase(self, user: str = ANN) -> dict[str, Any]:
        erasures = self.erasures()
        erasure = erasures.begin(user)
        erasures.resume()
        return erasures.state(erasure)

    def ids(self) -> set[str]:
        return {row["id"] for row in self.room.store.rows("SELECT id FROM events FINAL")}

    def ratings(self) -> int:
        with self.room.control.connect() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM feedback").scalar_one())


def life(house: House) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Facts of ann and of bob; all of it stored, with a rating, a blob and a dead letter each."""
    lives = []
    for user, name in ((ANN, "a"), (BOB, "b")):
        session = {"source": f"/ext/{name}/1", "user": user}
        content = {"turn.id": f"t-{name}", "prompt": "x" * ((1 << 20) + 1)}
        own = [
            fact(id=f"{name}-1", **session, consent="code", data=content),
            fact(id=f"{name}-2", source=f"/ext/{name}/1", data={"turn.id": f"t-{name}"}),
            fact(id=f"{name}-3", source="/serving", user=pseudonym(user) + name),
        ]
        house.tell(*own)
        house.rate(user, f"t-{name}")
        lives.append(own)
        broken = {"received_at": THEN.isoformat(), "sent_at": None}
        value = json.dumps(broken) + f'\n[{{"specversion":"1.0","user":{json.dumps(user)}}}]'
        house.room.log.append([Entry("k", value.encode())])
    house.store_all()
    return lives[0], lives[1]
