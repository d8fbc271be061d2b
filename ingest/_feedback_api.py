"""HTTP: ratings given and withdrawn."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from ingest.feedback import Feedback, Rating
from ingest.keys import Keys, Principal
from ingest.web import requires


class FeedbackApi:
    """The routes of feedback, bound to what they need."""

    def __init__(self, feedback: Feedback, keys: Keys) -> None:
        self._feedback, self._keys = feedback, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["feedback"])
        may_send = requires(self._keys, "ingest")
        router.add_api_route("/v1/feedback", self._rate(may_send), methods=["POST"])
        router.add_api_route(
            "/v1/feedback/{id}", self.withdraw, methods=["DELETE"], dependencies=[Depends(may_send)]
        )
        return router

    def _rate(self, may_send: Any) -> Any:  # noqa: ANN401 - FastAPI reads the signature
        def rate(rating: Rating, who: Annotated[Principal, Depends(may_send)]) -> dict[str, Any]:
            """The rating is durable, as the rater's current one for this target and name."""
            given = self._feedback.give(rating, rater=rating.rater or f"key:{who.key_id}")
            return {"id": given.id, "revision": given.revision, "event": given.event}

        return rate

    def withdraw(self, id: str) -> dict[str, Any]:
        """The rating no longer counts."""
        given = self._feedback.withdraw(id)
        return {"id": given.id, "revision": given.revision, "withdrawn": True}
