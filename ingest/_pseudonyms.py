"""Users under other names: facts still join by user, and only who has the key can tell who it is."""

import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import orjson

from ingest._literals import Edit, edited, literals, string_at
from ingest._secret_file import secret_of
from ingest.errors import BadInput
from ingest.wire import Raw, read_one

_BODY, _CHECK = 12, 4
"""Bytes. Two users share a body once in 2^48 users; a check is guessed once in 2^32 tries."""
_FORM = re.compile(rf"u_[0-9a-f]{{{2 * (_BODY + _CHECK)}}}")
_IMPORT = re.compile(r"(/import/[^/]+/)([^/]+)")
"""The source of an imported history: origin, then whose it is."""
_FIELD = re.compile(
    r'"(user|partitionkey|subject|source|rater|unit|user\.id|enduser\.id)"[ \t\n\r]*:[ \t\n\r]*"'
)
_IN_DATA = frozenset({"rater", "unit", "user.id", "enduser.id"})
_PATHS: dict[tuple[str, ...], str] = {
    (("data", name) if name in _IN_DATA else (name,)): name
    for name in ("user", "partitionkey", "subject", "source", *sorted(_IN_DATA))
}


class _Said(NamedTuple):
    """A string literal that may name a user: `text[start:end]`, under this name."""

    name: str
    value: str
    start: int
    end: int


@dataclass(frozen=True)
class Pseudonyms:
    """Replaces users. Without a key, nobody is replaced."""

    _key: bytes = b""

    @classmethod
    def open(cls, file: str, *, data: Path) -> Self:
        """With the key of this file, which is made with mode 0600 where there is none.

        Raises: BadInput where the file is inside `data`: whoever copies the facts must not get the
        key with them.
        """
        if not file:
            return cls()
        path = Path(file).resolve()
        if path.is_relative_to(data.resolve()):
            raise BadInput.of("pseudonyms", f"{path} is inside {data}; keep the key elsewhere")
        return cls(secret_of(path, setting="pseudonyms"))

    def of(self, user: str) -> str:
        """The pseudonym of a user; that of a pseudonym of this key is itself."""
        return _pseudonym(self._key, user) if self._key and user else user

    def of_source(self, source: str) -> str:
        """The source under which facts of this source are kept: an imported history's names a user."""
        found = _IMPORT.fullmatch(source) if self._key else None
        return found[1] + self.of(unquote(found[2])) if found else source

    def __call__(self, batch: Sequence[Raw]) -> Sequence[Raw]:
        """The same facts in order; each text as sent but for the literals that name a user."""
        return [self._refine(raw) for raw in batch] if self._key else batch

    def _refine(self, raw: Raw) -> Raw:
        said = _said_once(raw)
        edits = self._edits(raw, _said(raw.text) if said is None else said)
        if not edits:
            return raw
        text = edited(raw.text, edits)
        return Raw(text, orjson.loads(text)) if raw.plain else read_one(text.encode())

    def _edits(self, raw: Raw, said: Iterable[_Said]) -> list[Edit]:
        data = _data(raw)
        of_user = data.get("unit_type") == "user"
        users = [raw.value.get("user"), data.get("unit") if of_user else None]
        edits = []
        for each in said:
            if each.name == "source":
                new = self.of_source(each.value)
            elif each.name in ("partitionkey", "subject"):
                new = self.of(each.value) if each.value in users else each.value
            elif each.name == "unit":
                new = self.of(each.value) if of_user else each.value
            else:
                is_key = each.name == "rater" and each.value.startswith("key:")
                new = each.value if is_key else self.of(each.value)
            if new != each.value:
                edits.append(Edit(each.start, each.end, json.dumps(new, ensure_ascii=False)))
        return edits


@lru_cache(maxsize=1 << 16)
def _pseudonym(key: bytes, user: str) -> str:
    if _FORM.fullmatch(user):
        body, check = user[2 : 2 + 2 * _BODY], user[2 + 2 * _BODY :]
        if hmac.compare_digest(check, _check(key, body)):
            return user
    body = _mac(key, "user", user)[:_BODY].hex()
    return f"u_{body}{_check(key, body)}"


def _check(key: bytes, body: str) -> str:
    return _mac(key, "check", body)[:_CHECK].hex()


def _mac(key: bytes, use: str, text: str) -> bytes:
    return hmac.digest(key, f"{use}\0{text}".encode("utf-8", "surrogatepass"), "sha256")


def _data(raw: Raw) -> Mapping[str, Any]:
    data = raw.value.get("data")
    return data if isinstance(data, dict) else {}


def _said_once(raw: Raw) -> list[_Said] | None:
    """Without a walk through the whole text, where each name occurs once and so is the one we mean;
    None where that is not certain.
    """
    if "\\u00" in raw.text:
        return None  # a name may be written with escapes
    fields = list(_FIELD.finditer(raw.text))
    if len({field[1] for field in fields}) < len(fields):
        return None
    said = []
    for field in fields:
        value, end = string_at(raw.text, field.end() - 1)
        home = _data(raw) if field[1] in _IN_DATA else raw.value
        if home.get(field[1]) != value:
            return None
        said.append(_Said(field[1], value, field.end() - 1, end))
    return said


def _said(text: str) -> Iterator[_Said]:
    for literal in literals(text):
        name = None if literal.is_name else _PATHS.get(literal.path)
        if name:
            yield _Said(name, literal.value, literal.start, literal.end)
