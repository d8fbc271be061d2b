"""HTTP: what an operator does: keys."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from ingest.keys import Keys
from ingest.web import requires


class NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid")

    scopes: Annotated[tuple[str, ...], Field(min_length=1)]
    label: str = ""


class OperationsApi:
    """The routes of an operator, bound to what they need."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def router(self) -> APIRouter:
        router = APIRouter(
            tags=["operations"], dependencies=[Depends(requires(self._keys, "admin"))]
        )
        router.add_api_route("/v1/keys", self.keys)
        router.add_api_route("/v1/keys", self.create_key, methods=["POST"], status_code=201)
        router.add_api_route("/v1/keys/{id}", self.revoke_key, methods=["DELETE"], status_code=204)
        return router

    def keys(self) -> dict[str, Any]:
        return {"keys": self._keys.all()}

    def create_key(self, wanted: NewKey) -> dict[str, Any]:
        """The only time the secret is shown."""
        key_id, secret = self._keys.create(wanted.scopes, label=wanted.label)
        return {"id": key_id, "key": secret, "scopes": wanted.scopes}

    def revoke_key(self, id: str) -> None:
        self._keys.revoke(id)
