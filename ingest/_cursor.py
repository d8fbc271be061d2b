"""Where a listing goes on, as a word that clients hand back and need not understand."""

import base64
import binascii
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from ingest.errors import BadInput

_Place = TypeVar("_Place")


def written(place: _Place, kind: TypeAdapter[_Place]) -> str:
    """The place as one word that needs no quoting in a url."""
    return base64.urlsafe_b64encode(kind.dump_json(place)).decode().rstrip("=")


def read(word: str, kind: TypeAdapter[_Place]) -> _Place:
    """The inverse of `written`. Raises: BadInput for another word."""
    try:
        padded = word + "=" * (-len(word) % 4)
        return kind.validate_json(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, ValidationError) as error:
        raise BadInput.of("after", "use the `after` of the last answer, or leave it out") from error
