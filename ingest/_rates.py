"""How fast one key may ask: a token bucket per key, in each process for itself."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.errors import TooManyRequests

BURST_S = 2
"""A key that was quiet may make this many seconds' worth of requests at once."""


@dataclass(slots=True)
class Bucket:
    """Requests that may be made now; refilled at `rate` a second. For one thread at a time."""

    rate: int
    clock: Callable[[], float] = time.monotonic
    _left: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._at = self.rate * BURST_S, self.clock()

    def spend(self) -> None:
        """One request is paid for. Raises: TooManyRequests; then nothing was paid."""
        now = self.clock()
        self._left = min(self.rate * BURST_S, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < 1:
            raise TooManyRequests(
                f"this key may make {self.rate} requests a second; send larger batches, or ask for "
                "a key with another rate"
            )
        self._left -= 1
