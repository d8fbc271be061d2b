"""Keys: random, stored as a hash, with scopes, revocable."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Engine, String, Table, insert, select, update

from ingest.control import METADATA, reading, utc_now, writing
from ingest.errors import BadInput, NotFound, Unauthorized

SCOPES = ("ingest", "serve", "analyst", "ml", "admin")
_PREFIX = "tw_"

_KEYS = Table(
    "keys",
    METADATA,
    Column("id", String, primary_key=True),
    Column("hash", String, nullable=False, unique=True),
    Column("label", String, nullable=False),
    Column("scopes", String, nullable=False),
    Column("created_at", String, nullable=False),
    Column("revoked_at", String),
)


@dataclass(frozen=True)
class Principal:
    """Who asks, as far as their key tells."""

    key_id: str
    scopes: frozenset[str]


@dataclass(frozen=True)
class Keys:
    engine: Engine

    def create(self, scopes: tuple[str, ...], *, label: str = "") -> tuple[str, str]:
        """(id, secret); the secret can never be read again.

        Raises: BadInput for a scope that does not exist.
        """
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise BadInput.of("scopes", f"choose from {', '.join(SCOPES)}; got {unknown or 'none'}")
        key_id, secret = secrets.token_hex(4), _PREFIX + secrets.token_urlsafe(32)
        with writing(self.engine) as connection:
            connection.execute(
                insert(_KEYS).values(
                    id=key_id,
                    hash=_hash(secret),
                    label=label,
                    scopes=" ".join(scopes),
                    created_at=utc_now(),
                )
            )
        return key_id, secret

    def check(self, secret: str) -> Principal:
        """Who this is. Raises: Unauthorized. The look-up by hash leaks nothing through its time."""
        question = select(_KEYS.c.id, _KEYS.c.scopes).where(
            _KEYS.c.hash == _hash(secret), _KEYS.c.revoked_at.is_(None)
        )
        with reading(self.engine) as connection:
            row = connection.execute(question).one_or_none()
        if row is None:
            raise Unauthorized(
                "the key is unknown or revoked; make one with `thumbwheel key create`"
            )
        return Principal(row.id, frozenset(row.scopes.split()))

    def all(self) -> list[dict[str, Any]]:
        """Every key without its secret, oldest first."""
        columns = [column for column in _KEYS.c if column.name != "hash"]
        with reading(self.engine) as connection:
            rows = connection.execute(select(*columns).order_by(_KEYS.c.created_at)).mappings()
            return [{**row, "scopes": row["scopes"].split()} for row in rows]

    def revoke(self, key_id: str) -> None:
        """The key opens nothing from now on. Raises: NotFound."""
        with writing(self.engine) as connection:
            change = update(_KEYS).where(_KEYS.c.id == key_id).values(revoked_at=utc_now())
            if connection.execute(change).rowcount == 0:
                raise NotFound(f"no key {key_id}; `thumbwheel key list` shows them")


def _hash(secret: str) -> str:
    # A plain hash is right for 256 random bits; slow hashes are for passwords.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
