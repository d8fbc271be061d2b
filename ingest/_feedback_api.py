"""HTTP: ratings given, read and withdrawn; which turns to ask about."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from ingest._feedback_history import FeedbackHistory
from ingest._sampler import Question, Sampler
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


class HistoryApi:
    """The route that reads a rating back."""

    def __init__(self, history: FeedbackHistory, keys: Keys) -> None:
        self._history, self._keys = history, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["feedback"])
        router.add_api_route(
            "/v1/feedback/{id}", self._read(requires(self._keys, "ingest")), methods=["GET"]
        )
        return router

    def _read(self, may_send: Any) -> Any:  # noqa: ANN401 - FastAPI reads the signature
        def read(id: str, who: Annotated[Principal, Depends(may_send)]) -> dict[str, Any]:
            """What counts now and how it came about; comments for a key with scope analyst too."""
            return dict(self._history.of(id, comments="analyst" in who.scopes))

        return read


class AskApi:
    """The route that says which turns to ask about."""

    def __init__(self, sampler: Sampler, keys: Keys) -> None:
        self._sampler, self._keys = sampler, keys

    def router(self) -> APIRouter:
        router = APIRouter(tags=["feedback"])
        router.add_api_route(
            "/v1/feedback/ask",
            self.ask,
            methods=["POST"],
            dependencies=[Depends(requires(self._keys, "ingest"))],
        )
        return router

    def ask(self, question: Question) -> dict[str, Any]:
        """Whether the turn's developer is to be asked for a rating, and with which probability."""
        return {"ask": self._sampler.ask(question), "propensity": self._sampler.share}
