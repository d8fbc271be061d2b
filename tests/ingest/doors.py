"""The doors of other tools over a real socket, and what came through them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from ingest._doors_api import DoorsApi
from ingest.app import create_app
from ingest.drain import Drain
from ingest.room import Ingest
from ingest.wire import read_one


@dataclass(frozen=True)
class Door:
    http: httpx.Client
    api: DoorsApi
    room: Ingest
    drain: Drain

    @classmethod
    def open(cls, room: Ingest, drain: Drain, serve: Callable[[FastAPI], str]) -> "Door":
        api = DoorsApi(room.intake, room.keys)
        url = serve(create_app("doors", [api.router()], ready={}))
        _, secret = room.keys.create(("ingest",))
        headers = {"Authorization": f"Bearer {secret}"}
        return cls(httpx.Client(base_url=url, headers=headers, timeout=30), api, room, drain)

    def facts(self, kind: str = "%") -> list[dict[str, Any]]:
        """All that is stored, by type without `thumbwheel.` and `.v1`, in the order of their ids."""
        while self.drain.step(timeout_s=0):
            pass
        rows = self.room.store.rows(
            "SELECT body FROM events FINAL WHERE type LIKE {a:String} OR type LIKE {b:String}"
            " ORDER BY id, source",
            a=kind,
            b=f"thumbwheel.{kind}.v1",
        )
        return [read_one(row["body"].encode()).value for row in rows]

    def data(self, kind: str) -> list[dict[str, Any]]:
        return [fact["data"] for fact in self.facts(kind)]
