"""HTTP: ask for a dataset, wait for its manifest, fetch its files."""

import json
import logging
import re
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict

from datagen.erased import mark
from datagen.export import JSONL, MANIFEST, PARQUET, export
from datagen.traces import Filter
from ingest.errors import NotFound, ThumbwheelError
from ingest.keys import Keys
from ingest.store import Store
from ingest.web import requires

log = logging.getLogger(__name__)
_ID = re.compile(r"[a-z]{1,10}-[0-9a-f]{12}")


class Selection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    checkpoint: str | None = None
    experiment: str | None = None


class Wanted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["sft", "kto"]
    filter: Selection = Selection()


@dataclass
class Exports:
    """Datasets being built and built, each in a folder of its own under `root`."""

    store: Store
    root: Path
    _state: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _builds: dict[str, threading.Thread] = field(default_factory=dict, init=False)

    def begin(self, wanted: Wanted) -> str:
        """The id of a dataset that is being built."""
        dataset = f"{wanted.format}-{uuid4().hex[:12]}"
        self._state[dataset] = {"id": dataset, "status": "building", "answers_read": 0}
        build = threading.Thread(target=self._build, args=(dataset, wanted), daemon=True)
        self._builds[dataset] = build
        build.start()
        return dataset

    def erase(self, erasure: str, facts: Collection[str]) -> list[str]:
        """The datasets made from these facts, which the store has no more; their rows are gone.

        Those that are being built are waited for: they may have read the facts.
        """
        for build in list(self._builds.values()):
            build.join()
        return mark(self.root, erasure, facts, building=self._is_building)

    def _is_building(self, dataset: str) -> bool:
        return dataset in self._builds and self._builds[dataset].is_alive()

    def state(self, dataset: str) -> dict[str, Any]:
        """Its manifest once ready. Raises: NotFound."""
        manifest = self.root / dataset / MANIFEST
        if not _ID.fullmatch(dataset) or not (dataset in self._state or manifest.is_file()):
            raise NotFound(f"no dataset {dataset!r}")
        if dataset in self._state and self._state[dataset]["status"] != "ready":
            return dict(self._state[dataset])
        return {"id": dataset, "status": "ready", **json.loads(manifest.read_text())}

    def file(self, dataset: str, name: str) -> Path:
        """Raises: NotFound for all but the files of a ready dataset."""
        state = self.state(dataset)
        if name not in (JSONL, PARQUET, MANIFEST) or state["status"] != "ready":
            raise NotFound(f"dataset {dataset!r} has no file {name!r}")
        if state.get("stale") and name != MANIFEST:
            raise NotFound(f"dataset {dataset!r}: {state['why']}")
        return self.root / dataset / name

    def _build(self, dataset: str, wanted: Wanted) -> None:
        state = self._state[dataset]

        def progress(number: int) -> None:
            state["answers_read"] = number

        try:
            chosen = Filter(**wanted.filter.model_dump())
            export(self.store, wanted.format, chosen, self.root / dataset, progress=progress)
            state["status"] = "ready"
        except ThumbwheelError as error:
            state.update(status="failed", detail=error.detail)
        except BaseException:
            state.update(status="failed", detail="something broke here; the log has the details")
            log.exception("dataset %s", dataset)
            raise


class DatagenApi:
    """The routes of this room, bound to what they need."""

    def __init__(self, exports: Exports, keys: Keys) -> None:
        self._exports, self._keys = exports, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["datasets"], dependencies=[Depends(requires(self._keys, "ml"))])
        router.add_api_route("/v1/datasets", self.begin, methods=["POST"], status_code=202)
        router.add_api_route("/v1/datasets/{id}", self.state)
        router.add_api_route("/v1/datasets/{id}/files/{name}", self.file)
        return router

    def begin(self, wanted: Wanted) -> dict[str, Any]:
        return {"id": self._exports.begin(wanted)}

    def state(self, id: str) -> dict[str, Any]:
        return self._exports.state(id)

    def file(self, id: str, name: str) -> FileResponse:
        return FileResponse(self._exports.file(id, name))
