"""Values too large for an event, kept beside the log and fetched back as they were sent."""

import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ingest._known import FactId
from ingest._literals import NAME_PATHS, Edit, edited, literals
from ingest.errors import BadInput, NotFound, Unavailable
from ingest.wire import Raw, read_one

log = logging.getLogger(__name__)

MAX_VALUE_BYTES = 1 << 20
_OPENING = '{"$blob":"'
_REFERENCE = re.compile(
    r'\{"\$blob":"(?P<key>[0-9a-f]{2}/[0-9a-f]{32}/[0-9]+-[0-9a-f]{16})"'
    r',"bytes":[0-9]+,"sha256":"(?P<sha256>[0-9a-f]{64})"\}'
)
_LETTER_ESCAPE = re.compile(r"\\u00[2-7]")
_LONGEST_HEAD = 16 << 10
_PAGE = 500

Known = Callable[[Sequence[FactId]], set[FactId]]


@contextmanager
def _boundary(doing: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        log.warning("blobs: %s: %s", doing, error)
        raise Unavailable(f"blobs: {doing} failed") from error


@dataclass(frozen=True)
class Blobs:
    """A folder of any file system that fsspec knows. Safe to call from many threads.

    A blob is the fact that owns it on a line, then the JSON literal as sent. Its key is
    `<2 hex>/<digest of (source, id)>/<number>-<digest of the literal>`: a retry writes the same
    bytes under the same key, and no later fact of the same name can change them.
    """

    _files: Any  # fsspec has no types
    _root: str

    @classmethod
    def open(cls, url: str) -> Self:
        """Raises: BadInput for a url that no installed file system reads."""
        try:
            files, root = fsspec.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise BadInput.of("blobs", str(error)) from error
        return cls(files, root.rstrip("/"))

    def __call__(self, batch: Sequence[Raw]) -> Sequence[Raw]:
        """`offload` for each. Raises: Unavailable."""
        return [self.offload(raw) for raw in batch]

    def offload(self, raw: Raw) -> Raw:
        """String values of `data` over 1 MiB are durable blobs, with references in their place.

        The rest of the text is as sent. Names by which facts are joined stay. Whoever writes a
        reference to this very fact's blobs is told so by `problem`. Raises: Unavailable.
        """
        if _may_refer(raw.text) and any(
            literal.value.startswith(self._folder(raw)) for literal in literals(raw.text)
        ):
            problem = "data: $blob is this server's own word; send the value itself"
            return Raw(raw.text, raw.value, problem, plain=raw.plain)
        if len(raw.text) <= MAX_VALUE_BYTES // 4:  # a character has at most four bytes
            return raw
        edits: list[Edit] = []
        for literal in literals(raw.text):
            if literal.is_name or literal.path[:1] != ("data",) or literal.path in NAME_PATHS:
                continue
            if literal.end - literal.start <= MAX_VALUE_BYTES // 4:
                continue
            value = raw.text[literal.start : literal.end].encode()
            if len(value) > MAX_VALUE_BYTES:
                reference = self._put(raw, len(edits), value)
                edits.append(Edit(literal.start, literal.end, reference))
        return read_one(edited(raw.text, edits).encode()) if edits else raw

    def restore(self, text: str) -> str:
        """The text of an event with the values in place again, as they were sent.

        References to blobs of other facts are left as they are: this server did not write them.

        Raises: NotFound naming the key where the blob is gone, Unavailable where it is damaged or
        its store does not answer.
        """
        if _OPENING not in text:
            return text
        folder = self._folder(read_one(text.encode()))
        return edited(
            text,
            (
                Edit(found.start(), found.end(), self._get(found["key"], found["sha256"]))
                for found in _REFERENCE.finditer(text)
                if found["key"].startswith(folder)
            ),
        )

    def forget(self, source: str, id: str) -> int:
        """The fact's blobs are gone; how many there were. Safe to repeat. Raises: Unavailable."""
        folder = f"{self._root}/{_folder(source, id)}".rstrip("/")
        with _boundary("erasing"), suppress(FileNotFoundError):
            self._files.invalidate_cache()
            count = len(self._files.find(folder))
            if count:
                self._files.rm(folder, recursive=True)
                if isinstance(self._files, LocalFileSystem):
                    _sync(Path(folder).parent)
            return count
        return 0

    def keys(self) -> Iterator[str]:
        """Every blob. Raises: Unavailable."""
        for folder in self._folders().values():
            yield from (path[len(self._root) + 1 :] for path in folder if _is_whole(path))

    def sweep(self, known: Known, *, older_than: timedelta = timedelta(days=1)) -> int:
        """Blobs of facts that were never stored are gone, and what broken writes left; how many.

        Only for when the store has what the log holds: a fact that waits in the log is not known
        to the store. `known` is the store's own. Raises: Unavailable.
        """
        before, swept = datetime.now(UTC) - older_than, 0
        aged: list[FactId] = []
        for paths in self._folders().values():
            with _boundary("sweeping"), suppress(FileNotFoundError):
                old = [path for path in paths if self._files.modified(path) < before]
                for path in old:
                    if not _is_whole(path):
                        self._files.rm_file(path)
                        swept += 1
                whole = [path for path in old if _is_whole(path)]
                if whole and len(old) == len(paths):
                    aged.append(self._owner(whole[0]))
        for start in range(0, len(aged), _PAGE):
            page = aged[start : start + _PAGE]
            swept += sum(self.forget(*fact) for fact in set(page) - known(page))
        return swept

    def _folder(self, raw: Raw) -> str:
        return _folder(raw.value["source"], raw.value["id"])

    def _put(self, raw: Raw, number: int, value: bytes) -> str:
        digest = hashlib.sha256(value).hexdigest()
        key = f"{self._folder(raw)}{number}-{digest[:16]}"
        owner = json.dumps([raw.value["source"], raw.value["id"]], ensure_ascii=False)
        content = owner.encode() + b"\n" + value
        with _boundary("writing"):
            if isinstance(self._files, LocalFileSystem):
                _write(Path(self._root, key), content)
            else:
                self._files.pipe_file(f"{self._root}/{key}", content)
        reference = {"$blob": key, "bytes": len(value), "sha256": digest}
        return json.dumps(reference, separators=(",", ":"))

    def _get(self, key: str, digest: str) -> str:
        try:
            with _boundary("reading"):
                content: bytes = self._files.cat_file(f"{self._root}/{key}")
        except FileNotFoundError as error:
            raise NotFound(f"blob {key} is gone") from error
        value = content.partition(b"\n")[2]
        if hashlib.sha256(value).hexdigest() != digest:
            raise Unavailable(f"blob {key} is damaged")
        return value.decode()

    def _folders(self) -> dict[str, list[str]]:
        folders: dict[str, list[str]] = {}
        with _boundary("listing"), suppress(FileNotFoundError):
            self._files.invalidate_cache()
            for path in self._files.find(self._root):
                folders.setdefault(path.rpartition("/")[0], []).append(path)
        return folders

    def _owner(self, path: str) -> FactId:
        head: bytes = self._files.cat_file(path, start=0, end=_LONGEST_HEAD)
        return FactId(*json.loads(head.partition(b"\n")[0]))


def _folder(source: str, id: str) -> str:
    digest = hashlib.sha256(json.dumps([source, id]).encode()).hexdigest()[:32]
    return f"{digest[:2]}/{digest}/"


def _may_refer(text: str) -> bool:
    return "$blob" in text or ("\\u00" in text and bool(_LETTER_ESCAPE.search(text)))


def _is_whole(path: str) -> bool:
    return not path.rpartition("/")[2].startswith(".")


def _write(path: Path, content: bytes) -> None:
    """Whole and durable under its name, or not there."""
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    for folder in (path.parent, *(folder.parent for folder in made)):
        _sync(folder)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
