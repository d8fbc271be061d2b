"""Simulated developers at work on the real endpoints, with a ledger of what was acknowledged."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx

from ingest.events import SCHEMA_URI
from thumbwheel.demo.population import Decision, Developer, Population, is_right, prompt

_AT_ONCE = 16
_PATIENCE_S = 60


@dataclass
class Ledger:
    """(source, id) of every fact the server acknowledged, and what was sent in vain."""

    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    completions: int = 0
    retries: int = 0


@dataclass
class Traffic:
    """Every request is repeated until the server answers: a server may die and come back."""

    population: Population
    url: str
    key: str
    ledger: Ledger = field(default_factory=Ledger)
    on_turn: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """All developers have done all their turns."""
        headers = {"Authorization": f"Bearer {self.key}"}
        gate = asyncio.Semaphore(_AT_ONCE)
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30) as http:

            async def one(developer: Developer) -> None:
                async with gate:
                    for turn in range(developer.turns):
                        await self._turn(http, developer, turn)
                        self.on_turn()

            await asyncio.gather(*(one(each) for each in self.population.developers()))

    async def _turn(self, http: httpx.AsyncClient, developer: Developer, turn: int) -> None:
        completion, text = await self._ask(http, developer, turn)
        decision = self.population.decide(developer, turn, right=is_right(text))
        facts = list(turn_facts(developer, turn, completion, text, decision))
        answer = await self._until_answered(http, "/v1/events", json.dumps(facts), {})
        for fact, verdict in zip(facts, answer.json()["results"], strict=True):
            if verdict["status"] == "rejected":
                raise ValueError(f"the server refused {verdict}")
            self.ledger.acknowledged.append((fact["source"], fact["id"]))
        if decision.thumb is not None:
            rating = {
                "target": {"kind": "completion", "id": completion},
                "value": decision.thumb,
                "rater": developer.name,
            }
            answer = await self._until_answered(http, "/v1/feedback", json.dumps(rating), {})
            self.ledger.acknowledged.append(("/feedback", answer.json()["event"]))

    async def _ask(
        self, http: httpx.AsyncClient, developer: Developer, turn: int
    ) -> tuple[str, str]:
        """(completion id, answer); every third turn is streamed."""
        stream = turn % 3 == 2
        body = {
            "model": "agent",
            "stream": stream,
            "messages": [{"role": "user", "content": prompt(developer, turn)}],
        }
        headers = {
            "x-thumbwheel-user": developer.name,
            "x-thumbwheel-conversation": f"{developer.name}-work",
            "x-thumbwheel-turn": turn_id(developer, turn),
            "x-thumbwheel-consent": "training",
            "x-thumbwheel-simulated": "true",
        }
        answer = await self._until_answered(
            http, "/v1/chat/completions", json.dumps(body), headers, whole=_whole_stream
        )
        completion = answer.headers["x-thumbwheel-completion-id"]
        self.ledger.completions += 1
        if not stream:
            # A streamed answer ends before its record is durable; any other is recorded first.
            self.ledger.acknowledged.append(("/serving", f"{completion}-finished"))
            return completion, answer.json()["choices"][0]["message"]["content"]
        return completion, "".join(_deltas(answer.text))

    async def _until_answered(
        self,
        http: httpx.AsyncClient,
        path: str,
        body: str,
        headers: dict[str, str],
        *,
        whole: Callable[[httpx.Response], bool] = lambda _: True,
    ) -> httpx.Response:
        pause, waited = 0.05, 0.0
        while True:
            try:
                answer = await http.post(
                    path, content=body, headers={"Content-Type": "application/json", **headers}
                )
                if answer.status_code < 500:
                    answer.raise_for_status()
                    if whole(answer):
                        return answer
            except httpx.TransportError:
                if waited > _PATIENCE_S:
                    raise
            self.ledger.retries += 1
            await asyncio.sleep(pause)
            waited += pause
            pause = min(pause * 2, 1.0)


def turn_id(developer: Developer, turn: int) -> str:
    return f"{developer.name}-turn-{turn}"


def turn_facts(
    developer: Developer, turn: int, completion: str, text: str, decision: Decision
) -> Iterator[dict[str, Any]]:
    """What the editor of a simulated developer reports of one turn."""
    diff = f"{turn_id(developer, turn)}-{completion}"
    common = {"turn.id": turn_id(developer, turn), "simulated": True}
    edit = {"diff.id": diff, **common}
    asked = prompt(developer, turn)
    said: list[tuple[str, dict[str, Any]]] = [
        ("turn.submitted", {"prompt": asked, "prompt_u16": len(asked), **common}),
        ("diff.proposed", {"completion.id": completion, "after": text, **edit}),
        ("diff.decided", {"outcome": "accepted", **edit}),
    ]
    if decision.undo:
        said.append(("diff.reverted", {"by": "undo", **edit}))
    for number, (kind, data) in enumerate(said, start=1):
        yield {
            "specversion": "1.0",
            "id": str(uuid5(NAMESPACE_URL, f"{diff}/{kind}")),
            "source": f"/ext/simulated/{developer.name}",
            "type": f"thumbwheel.{kind}.v1",
            "time": datetime.now(UTC).isoformat(),
            "dataschema": SCHEMA_URI,
            "sequence": turn * 10 + number,
            "consent": "training",
            "user": developer.name,
            "partitionkey": f"{developer.name}-work",
            "data": data,
        }


def _whole_stream(answer: httpx.Response) -> bool:
    """A server that died while streaming leaves a stream without its end."""
    is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
    return not is_stream or "data: [DONE]" in answer.text


def _deltas(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                yield choice["delta"].get("content") or ""
