"""Switchbacks: where arms share capacity, time is split instead of units."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from experiments.buckets import pick
from ingest.errors import BadInput


@dataclass(frozen=True)
class Switchback:
    """Blocks of `block_s` seconds, each dealt one arm for everybody.

    Arms are drawn for each block anew, never in turns: turns would line up with the hours of the
    day. `experiments.stats.block_means` leaves out the start of a block, where queues settle.

    Raises: BadInput if a block has no length, or the start has no zone.
    Source: I. Bojinov, D. Simchi-Levi & J. Zhao, Management Science 2023.
    """

    starts_at: datetime
    block_s: int

    def __post_init__(self) -> None:
        if self.block_s < 1:
            raise BadInput.of("block_s", f"must be 1 or more, not {self.block_s}")
        if self.starts_at.tzinfo is None:
            raise BadInput.of("starts_at", "needs a time zone")

    def block(self, at: datetime) -> int | None:
        """The number of the block that holds the time, from 0; None before the start.

        Raises: BadInput if `at` has no time zone.
        """
        if at.tzinfo is None:
            raise BadInput.of("at", "needs a time zone")
        number = int((at - self.starts_at).total_seconds() // self.block_s)
        return number if number >= 0 else None

    def arm(self, block: int, salt: str, weights: Sequence[int]) -> int:
        """Index of the block's arm, each with the probability of its weight."""
        return pick(f"{salt}block/{block}", weights)

    def schedule(self, blocks: int, salt: str, weights: Sequence[int]) -> list[int]:
        """The arms of the first blocks, for planning and for the estimator."""
        return [self.arm(block, salt, weights) for block in range(blocks)]
