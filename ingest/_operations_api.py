"""HTTP: what operators do (keys, dead letters, the audit), and what analysts follow (facts)."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from ingest._dead_letters import DeadLetters
from ingest._listing import Listing, Wanted
from ingest.keys import Keys
from ingest.web import Asker, requires

MAX_RATE = 100_000
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)

_Before = Annotated[int | None, Query(ge=0, lt=2**63)]
_Limit = Annotated[int, Query(ge=1, le=1_000)]
_After = Annotated[str, Query(description="`after` of the last answer")]


class NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid")

    scopes: Annotated[tuple[str, ...], Field(min_length=1)]
    label: str = ""
    rate: Annotated[int, Field(ge=1, le=MAX_RATE)] | None = None
    """Requests a second; the server's own where it is left out."""


class NextFacts(BaseModel):
    """Which facts, and after which; an empty text stands for any."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    after: str = ""
    """`after` of the last answer, or `end` for those that come from now on."""
    type: str = ""
    user: str = ""
    conversation: str = ""
    since: AwareDatetime = _EARLIEST
    """By time of receipt."""


class OperationsApi:
    """The routes of an operator, bound to what they need."""

    def __init__(self, keys: Keys, letters: DeadLetters, listing: Listing) -> None:
        self._keys, self._letters, self._listing = keys, letters, listing

    def router(self) -> APIRouter:
        admin = [Depends(requires(self._keys, "admin"))]
        router = APIRouter(tags=["operations"])
        router.add_api_route("/v1/keys", self.keys, dependencies=admin)
        router.add_api_route("/v1/audit", self.audit, dependencies=admin)
        router.add_api_route("/v1/dead-letters", self.dead_letters, dependencies=admin)
        router.add_api_route("/v1/dead-letters/{id}", self.dead_letter, dependencies=admin)
        router.add_api_route(
            "/v1/dead-letters/replay", self.replay_all, methods=["POST"], dependencies=admin
        )
        router.add_api_route(
            "/v1/dead-letters/{id}/replay", self.replay, methods=["POST"], dependencies=admin
        )
        router.add_api_route(
            "/v1/keys", self.create_key, methods=["POST"], status_code=201, dependencies=admin
        )
        router.add_api_route(
            "/v1/keys/{id}",
            self.revoke_key,
            methods=["DELETE"],
            status_code=204,
            dependencies=admin,
        )
        analyst = [Depends(requires(self._keys, "analyst"))]
        router.add_api_route("/v1/events", self.events, dependencies=analyst)
        return router

    def keys(self) -> dict[str, Any]:
        return {"keys": self._keys.all()}

    def create_key(self, wanted: NewKey, who: Asker) -> dict[str, Any]:
        """The only time the secret is shown."""
        key_id, secret = self._keys.create(
            wanted.scopes, label=wanted.label, rate=wanted.rate, by=who.key_id
        )
        return {"id": key_id, "key": secret, "scopes": wanted.scopes, "rate": wanted.rate}

    def revoke_key(self, id: str, who: Asker) -> None:
        self._keys.revoke(id, by=who.key_id)

    def audit(self, limit: _Limit = 100, before: _Before = None) -> dict[str, Any]:
        """What operators did, newest first; `next` is the `before` of the following page."""
        entries = self._keys.audit.newest(limit=limit, before=before)
        following = entries[-1]["number"] if len(entries) == limit else None
        return {"entries": entries, "next": following}

    def dead_letters(
        self,
        limit: _Limit = 100,
        after: _After = "",
        status: Literal["waiting", "resolved"] | None = None,
    ) -> dict[str, Any]:
        """Records that were no facts, newest first, without their bytes."""
        letters, following = self._letters.newest(limit=limit, after=after, status=status or "")
        return {"dead_letters": letters, "after": following}

    def dead_letter(self, id: str) -> dict[str, Any]:
        """One with its bytes: `raw` is text where they are UTF-8, else base64."""
        return self._letters.show(id)

    def replay(self, id: str, who: Asker) -> dict[str, Any]:
        """It went through the door again; rejected, it waits on with the new reason."""
        outcome = self._letters.replay(id)
        self._keys.audit.note("dead_letter.replay", id, key_id=who.key_id, outcome=outcome.verdict)
        return {"id": id, "verdict": outcome.verdict, "reason": outcome.reason or None}

    def replay_all(self, who: Asker, after: _After = "") -> dict[str, Any]:
        """A chunk of those that wait, oldest first; go on with `after` until it is null."""
        outcomes, following = self._letters.replay_some(after)
        verdicts = [outcome.verdict for outcome in outcomes]
        counts = {name: verdicts.count(name) for name in ("accepted", "duplicate", "rejected")}
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        self._keys.audit.note("dead_letter.replay", "waiting", key_id=who.key_id, outcome=said)
        return counts | {"after": following}

    def events(self, page: Annotated[NextFacts, Query()]) -> Response:
        """Facts in the order in which the log took them, as they are stored."""
        since = min(max(page.since, _EARLIEST), _LATEST)
        wanted = Wanted(page.type, page.user, page.conversation, since)
        found = self._listing.page(wanted, after=page.after, limit=page.limit)
        more = "true" if found.more else "false"
        return Response(
            f'{{"events":[{",".join(found.facts)}],"after":"{found.after}","more":{more}}}',
            media_type="application/json",
        )
