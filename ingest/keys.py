"""Keys: random, stored as a hash, with scopes and a rate, revocable."""

import hashlib
import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Column, Engine, Integer, String, Table, insert, select, update

from ingest._audit import SERVER, Audit
from ingest._rates import Bucket
from ingest.control import METADATA, reading, utc_now, writing
from ingest.errors import BadInput, NotFound, Unauthorized

SCOPES = ("ingest", "serve", "analyst", "ml", "admin")
FRESH_S = 1.0
"""How long an answer of the database is believed: a key revoked elsewhere opens no longer."""
_PREFIX = "tw_"
_SECRET_LENGTH = len(_PREFIX) + 43
_REMEMBERED = 10_000
_STRANGERS = 1_000
_REFUSAL_S = 60.0
"""A refusal that repeats is written down once in this time, so that it cannot fill the disk."""

_KEYS = Table(
    "keys",
    METADATA,
    Column("id", String, primary_key=True),
    Column("hash", String, nullable=False, unique=True),
    Column("label", String, nullable=False),
    Column("scopes", String, nullable=False),
    Column("created_at", String, nullable=False),
    Column("revoked_at", String),
    Column("rate", Integer),  # null is the server's own
)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, as far as their key tells."""

    key_id: str
    scopes: frozenset[str]


@dataclass(slots=True)
class _Known:
    """What the database said about a secret, and until when that is believed."""

    principal: Principal
    until: float
    bucket: Bucket


@dataclass
class Keys:
    """Safe to share between threads."""

    engine: Engine
    rate: int = 1000
    """Requests a second that a key may make in this process, unless it has a rate of its own."""
    clock: Callable[[], float] = time.monotonic
    _known: dict[bytes, _Known] = field(default_factory=dict, init=False)
    _strangers: dict[bytes, float] = field(default_factory=dict, init=False)
    """Secrets that open nothing, and until when that is believed; apart from the known ones, so
    that guessing drives no key out of memory."""
    _refused: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    _changes: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        if self.rate < 1:
            raise BadInput.of("rate", f"{self.rate}; a key needs at least 1 request a second")

    @property
    def audit(self) -> Audit:
        return Audit(self.engine)

    def create(
        self,
        scopes: tuple[str, ...],
        *,
        label: str = "",
        rate: int | None = None,
        by: str = SERVER,
    ) -> tuple[str, str]:
        """(id, secret); the secret can never be read again.

        Args:
            scopes: At least one of SCOPES.
            label: For people.
            rate: Requests a second it may make; None for the server's own.
            by: Id of the key that asked, for the audit.

        Raises: BadInput for a scope that does not exist.
        """
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise BadInput.of("scopes", f"choose from {', '.join(SCOPES)}; got {unknown or 'none'}")
        key_id, secret = secrets.token_hex(4), _PREFIX + secrets.token_urlsafe(32)
        row = {
            "id": key_id,
            "hash": _hash(secret).hex(),
            "label": label,
            "scopes": " ".join(scopes),
            "created_at": utc_now(),
            "rate": rate,
        }
        with writing(self.engine) as connection:
            connection.execute(insert(_KEYS).values(row))
            self.audit.note("key.create", key_id, key_id=by, within=connection)
        return key_id, secret

    def recent(self, secret: str) -> Principal | None:
        """As `check`, from memory alone; None when the database has to be asked."""
        if len(secret) != _SECRET_LENGTH or not secret.startswith(_PREFIX):
            raise _unknown()
        digest = _hash(secret)
        with self._lock:
            now = self.clock()
            if (known := self._known.get(digest)) and now <= known.until:
                return _admit(known)
            if now <= self._strangers.get(digest, -math.inf):
                raise _unknown()
        return None

    def check(self, secret: str) -> Principal:
        """Who this is, once their request is paid for.

        The look-up by hash leaks nothing through its time.

        Raises: Unauthorized, TooManyRequests, Unavailable.
        """
        if (principal := self.recent(secret)) is not None:
            return principal
        digest = _hash(secret)
        changes, until = self._changes, self.clock() + FRESH_S
        found = self._ask(digest)
        with self._lock:
            if changes != self._changes:
                until = -math.inf  # an answer from before a revocation must not outlive it
            if found is None:
                self._known.pop(digest, None)
                _put(self._strangers, digest, until, most=_STRANGERS)
                raise _unknown()
            known = self._known.get(digest)
            if known is None or known.bucket.rate != found.rate:
                known = _Known(found.principal, until, Bucket(found.rate, self.clock))
                _put(self._known, digest, known, most=_REMEMBERED)
            known.principal, known.until = found.principal, until
            return _admit(known)

    def refused(self, key_id: str, action: str) -> None:
        """A key without the scope asked for this; the audit has it, once a minute."""
        now = self.clock()
        with self._lock:
            if now < self._refused.get((key_id, action), -math.inf) + _REFUSAL_S:
                return
            _put(self._refused, (key_id, action), now, most=_REMEMBERED)
        self.audit.note(action, "", key_id=key_id, outcome="refused: the key lacks scope 'admin'")

    def all(self) -> list[dict[str, Any]]:
        """Every key without its secret, oldest first."""
        columns = [column for column in _KEYS.c if column.name != "hash"]
        with reading(self.engine) as connection:
            rows = connection.execute(select(*columns).order_by(_KEYS.c.created_at)).mappings()
            return [{**row, "scopes": row["scopes"].split()} for row in rows]

    def revoke(self, key_id: str, *, by: str = SERVER) -> None:
        """The key opens nothing from now on; in other processes, FRESH_S later. Raises: NotFound."""
        with writing(self.engine) as connection:
            change = update(_KEYS).where(_KEYS.c.id == key_id).values(revoked_at=utc_now())
            if connection.execute(change).rowcount == 0:
                raise NotFound(f"no key {key_id}; `thumbwheel key list` shows them")
            self.audit.note("key.revoke", key_id, key_id=by, within=connection)
        with self._lock:
            self._changes += 1
            for known in self._known.values():
                known.until = -math.inf

    def _ask(self, digest: bytes) -> "_Found | None":
        question = select(_KEYS.c.id, _KEYS.c.scopes, _KEYS.c.rate).where(
            _KEYS.c.hash == digest.hex(), _KEYS.c.revoked_at.is_(None)
        )
        with reading(self.engine) as connection:
            row = connection.execute(question).one_or_none()
        if row is None:
            return None
        return _Found(Principal(row.id, frozenset(row.scopes.split())), row.rate or self.rate)


class _Found(NamedTuple):
    principal: Principal
    rate: int


def _admit(known: _Known) -> Principal:
    known.bucket.spend()
    return known.principal


def _unknown() -> Unauthorized:
    return Unauthorized("the key is unknown or revoked; make one with `thumbwheel key create`")


def _put(memory: dict[Any, Any], name: object, value: object, *, most: int) -> None:
    """The oldest goes where there are too many."""
    if name not in memory and len(memory) >= most:
        del memory[next(iter(memory))]
    memory[name] = value


def _hash(secret: str) -> bytes:
    # A plain hash is right for 256 random bits; slow hashes are for passwords.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
