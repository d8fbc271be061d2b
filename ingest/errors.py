"""The one tree of errors. Each knows the HTTP status a client gets for it.

ThumbwheelError
├── BadInput            422  a field is wrong; `errors` names it
├── Unreadable          400  the body is not what it says it is
├── TooLarge            413
├── WrongType           415
├── Unauthorized        401
├── Forbidden           403
├── NotFound            404
├── Expired             410  the link is over; ask for a new one
├── Conflict            409  the change is not allowed now; the text says what to do instead
├── TooManyRequests     429  the key asks faster than it may; try again after `retry_after_s`
├── Refused             500  the store will never take these rows, however often they are sent
└── Unavailable         503  log, store or engine does not answer; try again after `retry_after_s`
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FieldError:
    field: str
    detail: str


class ThumbwheelError(Exception):
    """Something a caller can understand and act on. Its text may be shown to a client."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retry_after_s: int | None = None

    def __init__(self, detail: str, *, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors


class BadInput(ThumbwheelError):
    status, title = 422, "Bad field"

    @classmethod
    def of(cls, field: str, detail: str) -> "BadInput":
        return cls(f"{field}: {detail}", errors=(FieldError(field, detail),))


class Unreadable(ThumbwheelError):
    status, title = 400, "Unreadable body"


class TooLarge(ThumbwheelError):
    status, title = 413, "Too large"


class WrongType(ThumbwheelError):
    status, title = 415, "Unsupported media type"


class Unauthorized(ThumbwheelError):
    status, title = 401, "No valid key"


class Forbidden(ThumbwheelError):
    status, title = 403, "Scope missing"


class NotFound(ThumbwheelError):
    status, title = 404, "Not found"


class Expired(ThumbwheelError):
    status, title = 410, "Gone"


class Conflict(ThumbwheelError):
    status, title = 409, "Not possible now"


class TooManyRequests(ThumbwheelError):
    status, title = 429, "Too many requests"
    retry_after_s = 1


class Refused(ThumbwheelError):
    status, title = 500, "Refused by the store"


class Unavailable(ThumbwheelError):
    status, title = 503, "Unavailable"
    retry_after_s = 2
