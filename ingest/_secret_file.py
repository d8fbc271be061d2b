"""A secret of this installation: made once, kept in a file for its owner alone."""

import os
import secrets
from pathlib import Path

from ingest.errors import BadInput

_LEAST = 32


def secret_of(path: Path, *, setting: str = "secret") -> bytes:
    """What the file holds; on first start 256 random bits as text, mode 0600.

    Processes that start together end up with the same secret.

    Raises: BadInput, naming the setting, when the file cannot be read or made, or holds less than 32 bytes.
    """
    try:
        if not path.exists():
            _make(path)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise BadInput.of(setting, f"{path}: {error.strerror}") from error
    if len(secret) < _LEAST:
        raise BadInput.of(
            setting, f"{path} holds less than {_LEAST} bytes; a new one needs {_LEAST}"
        )
    return secret


def _make(path: Path) -> None:
    """A whole file gets the name, or none: a link, unlike a rename, never replaces another's."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w") as out:
            out.write(secrets.token_hex(_LEAST) + "\n")
            out.flush()
            os.fsync(out.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink()
