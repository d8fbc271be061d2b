"""Clients that send facts as an outbox does, and what was acknowledged to them."""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import httpx

_TIMEOUT_S = 4.0
_AGAIN_S = (0.05, 0.3)
_TAKEN = {"accepted", "duplicate"}


class Sent(NamedTuple):
    source: str
    id: str
    conversation: str
    sequence: int


class Batch(NamedTuple):
    facts: tuple[Sent, ...]
    body: bytes


@dataclass
class Ledger:
    """What clients know: these facts were acknowledged, in this order within a conversation."""

    acknowledged: list[Sent] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Answers that no client should ever get."""
    counts: Counter[str] = field(default_factory=Counter)
    """`repeated`: requests sent again for want of an answer. `replayed`: facts sent again although
    they were acknowledged. `duplicates`: facts that the server said it had already."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, **more: int) -> None:
        with self.lock:
            self.counts.update(more)


class Client(threading.Thread):
    """One sender with conversations of its own. It sends the next batch when it has an answer."""

    def __init__(self, name: str, url: str, key: str, ledger: Ledger, draw: Random) -> None:
        super().__init__(name=name, daemon=True)
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=_TIMEOUT_S
        )
        self._ledger, self._draw = ledger, draw
        self._sequences: dict[str, int] = {f"{name}-c{number}": 0 for number in range(3)}
        self._old: list[Batch] = []
        self.goes, self.rests, self.over = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            if not self.goes.is_set():
                self.rests.set()
                self.goes.wait(0.05)
                continue
            self.rests.clear()
            batch = self._batch()
            if self._until_acknowledged(batch):
                self._keep(batch)
                if self._draw.random() < 0.2:
                    self._replay()
            self.over.wait(self._draw.uniform(0, 0.04))
        self._http.close()

    def _batch(self) -> Batch:
        facts = []
        for _ in range(self._draw.randint(1, 30)):
            conversation = self._draw.choice(list(self._sequences))
            self._sequences[conversation] += 1
            sequence = self._sequences[conversation]
            facts.append(
                Sent(f"/chaos/{self.name}", f"{conversation}-{sequence}", conversation, sequence)
            )
        return Batch(tuple(facts), json.dumps([_wire(fact) for fact in facts]).encode())

    def _until_acknowledged(self, batch: Batch) -> bool:
        while not self.over.is_set():
            if self._send(batch):
                return True
            self._ledger.count(repeated=1)
            self.over.wait(self._draw.uniform(*_AGAIN_S))
        return False

    def _send(self, batch: Batch) -> bool:
        try:
            answer = self._http.post("/v1/events", content=batch.body)
        except httpx.TransportError:
            return False
        if answer.status_code in (429, 503):
            return False
        if answer.status_code != 200:
            self._is_wrong(f"{answer.status_code}: {answer.text[:300]}")
            return False
        verdicts = Counter(result["status"] for result in answer.json()["results"])
        if set(verdicts) - _TAKEN or verdicts.total() != len(batch.facts):
            self._is_wrong(f"{verdicts} of {len(batch.facts)} facts: {answer.text[:300]}")
        self._ledger.count(duplicates=verdicts["duplicate"])
        return True

    def _is_wrong(self, said: str) -> None:
        with self._ledger.lock:
            self._ledger.wrong.append(said)

    def _keep(self, batch: Batch) -> None:
        with self._ledger.lock:
            self._ledger.acknowledged += batch.facts
        self._old.append(batch)

    def _replay(self) -> None:
        """Some batches that were acknowledged come again, shuffled; once, answered or not."""
        for batch in self._draw.sample(self._old, min(3, len(self._old))):
            facts = json.loads(batch.body)
            self._draw.shuffle(facts)
            self._send(Batch(batch.facts, json.dumps(facts).encode()))
            self._ledger.count(replayed=len(facts))


def _wire(fact: Sent) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": fact.id,
        "source": fact.source,
        "type": "thumbwheel.turn.submitted.v1",
        "time": "2026-11-30T12:00:00Z",
        "sequence": fact.sequence,
        "data": {
            "turn.id": f"{fact.conversation}-t{fact.sequence}",
            "gen_ai.conversation.id": fact.conversation,
            "padding": "x" * 200,
        },
    }


class Traffic:
    """Some clients that go and rest together."""

    def __init__(self, url: str, key: str, *, prefix: str, seed: int, clients: int = 3) -> None:
        self.ledger = Ledger()
        self._clients = [
            Client(f"{prefix}-{number}", url, key, self.ledger, Random(f"{seed}/{number}"))
            for number in range(clients)
        ]
        for client in self._clients:
            client.start()

    def goes(self) -> None:
        for client in self._clients:
            client.rests.clear()
            client.goes.set()

    def rests(self, *, within_s: float) -> bool:
        """Every client has the answer to its last request. False: somebody still waits for one."""
        deadline = time.monotonic() + within_s
        for client in self._clients:
            client.goes.clear()
        return all(
            client.rests.wait(max(0, deadline - time.monotonic())) for client in self._clients
        )

    def ends(self) -> None:
        for client in self._clients:
            client.over.set()
            client.goes.set()
        for client in self._clients:
            client.join(timeout=_TIMEOUT_S * 3)
