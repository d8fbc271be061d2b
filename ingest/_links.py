"""Signed links: the right to rate one target without a key, once per rater, until a time.

All of it is in the token: `base64url(mac ‖ json)`. Whoever has a link can read its target, question
and rater in it, but cannot make another.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ingest.errors import Expired, NotFound
from ingest.feedback import Name, Rated, Rater

_PURPOSE = b"thumbwheel feedback link 1\0"
_MAC_BYTES = 16
"""Half of SHA-256's output, the least that RFC 2104 section 5 advises."""
_DAY_S = 86_400


class LinkWish(BaseModel):
    """What a client sends to get a link."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Rated
    name: Name = "thumb"
    rater: Rater | None = None
    """Whom the link is for; without, who uses it says who they are."""
    question: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    expires_in_s: Annotated[int, Field(ge=1, le=3660 * _DAY_S)] = 30 * _DAY_S


@dataclass(frozen=True)
class Link:
    """A link that this server signed and that is still good."""

    id: str
    target: Rated
    name: str
    rater: str | None
    question: str | None
    expires_at: datetime


@dataclass(frozen=True)
class Links:
    """Makes and reads tokens; any process with the same secret reads those of the others."""

    secret: bytes
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def make(self, wish: LinkWish) -> tuple[str, datetime]:
        """A token, and when it expires (to the second). Two wishes never get the same token."""
        expires_at = (self.now() + timedelta(seconds=wish.expires_in_s)).replace(microsecond=0)
        said = [
            wish.target.kind, wish.target.id, wish.name, wish.rater, wish.question,
            int(expires_at.timestamp()), secrets.token_urlsafe(6),
        ]  # fmt: skip
        text = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
        return _text(self._mac(text) + text), expires_at

    def read(self, token: str) -> Link:
        """Raises: NotFound for what this server did not sign, Expired."""
        mac, text = _parts(token)
        if not hmac.compare_digest(mac, self._mac(text)):
            raise _no_link()
        kind, target, name, rater, question, until, _ = json.loads(text)
        expires_at = datetime.fromtimestamp(until, UTC)
        if self.now() >= expires_at:
            raise Expired("this link has expired; ask for a new one")
        return Link(mac.hex(), Rated(kind=kind, id=target), name, rater, question, expires_at)

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self.secret, _PURPOSE + text, hashlib.sha256)[:_MAC_BYTES]


def _parts(token: str) -> tuple[bytes, bytes]:
    """MAC and text of a token in its one form: a link has one spelling, and is used up as one."""
    try:
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError) as error:
        raise _no_link() from error
    if _text(data) != token:
        raise _no_link()
    return data[:_MAC_BYTES], data[_MAC_BYTES:]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _no_link() -> NotFound:
    return NotFound("no such link; check that it was copied whole")
