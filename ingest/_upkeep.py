"""What a server does beside its requests, so that nothing grows without end."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ingest._blobs import Blobs
from ingest._known import Known
from ingest._mending import Mending
from ingest.drain import GROUP
from ingest.errors import ThumbwheelError
from ingest.intake import Intake
from ingest.log import Log
from ingest.store import Store

logger = logging.getLogger(__name__)

KEEP_BYTES = 1 << 30
"""Of log records that are stored already: enough to fill a new store with the last days."""
_FIRST_S = 5.0
"""A server that has just started has clients who waited; to learn millions of facts takes both cores."""
_EVERY_S = 60.0
_TORN_S = 1.0
"""How soon a part that cannot be read is noticed."""
_SWEEP_EVERY_S = 86_400.0


@dataclass
class Upkeep:
    """Runs in a thread of its own until `stop` is set."""

    log: Log
    store: Store
    intake: Intake
    blobs: Blobs
    sole: bool
    """Nobody else fills this store, so its facts can be known here in memory."""
    now: Callable[[], float] = time.monotonic
    stop: threading.Event = field(default_factory=threading.Event)
    _sweep_at: float = field(default=0.0, init=False)

    def run(self) -> None:
        due = self.now() + _FIRST_S
        while not self.stop.wait(_TORN_S):
            if self.now() < due and not (self.sole and self.store.torn):
                continue
            try:
                self.turn()
            except ThumbwheelError as error:
                logger.warning("upkeep waits: %s", error.detail)
            due = self.now() + _EVERY_S

    def turn(self) -> None:
        """The store is whole, the log within bounds, and the door knows what is stored.

        Raises: Unavailable.
        """
        if self.sole:
            Mending(self.log, self.store).turn()
        known = self.intake.stored
        if self.sole and (known is None or not known.complete or known.count > known.capacity):
            self._learn()
        self.log.trim(GROUP, keep_bytes=KEEP_BYTES)
        if self.now() >= self._sweep_at and self.log.lag(GROUP) == 0:
            # With lag, what waits in the log would be unknown to the store and lose its blobs.
            self.blobs.sweep(self.store.known)
            self._sweep_at = self.now() + _SWEEP_EVERY_S

    def _learn(self) -> None:
        count = int(self.store.rows("SELECT count() AS n FROM events")[0]["n"])
        # What the door forgets from now on is added to it as well.
        known = self.intake.stored = Known(count)
        for hashes in self.store.hashes():
            known.add_hashes(hashes)
            if self.stop.is_set():
                return
        known.complete = True
