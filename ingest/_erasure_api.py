"""HTTP: erasing a person, and the proof of it."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from ingest._erasure import Erasures
from ingest.keys import Keys, Principal
from ingest.web import requires


class Wanted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    user: Annotated[str, Field(min_length=1, max_length=800)]
    """As facts name them, or their pseudonym."""


class ErasureApi:
    """The routes of erasure, bound to what they need."""

    def __init__(self, erasures: Erasures, keys: Keys) -> None:
        self._erasures, self._keys = erasures, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["erasure"])
        may_erase = requires(self._keys, "admin")
        sees = [Depends(may_erase)]
        begin = self._begin(may_erase)
        router.add_api_route("/v1/erasures", begin, methods=["POST"], status_code=202)
        router.add_api_route("/v1/erasures", self.erasures, dependencies=sees)
        router.add_api_route("/v1/erasures/{id}", self.erasure, dependencies=sees)
        return router

    def _begin(self, may_erase: Any) -> Any:  # noqa: ANN401 - FastAPI reads the signature
        def begin(wanted: Wanted, who: Annotated[Principal, Depends(may_erase)]) -> dict[str, Any]:
            """It is durably asked for, and carried out in the background."""
            erasure = self._erasures.begin(wanted.user, by=who.key_id)
            self._erasures.start()
            return {"id": erasure, "state": "running"}

        return begin

    def erasures(self) -> dict[str, Any]:
        """Every erasure, newest first, without its proof."""
        return {"erasures": self._erasures.all()}

    def erasure(self, id: str) -> dict[str, Any]:
        """How far it is; once done, with its proof."""
        return self._erasures.state(id)
