"""What is kept instead of what was sent."""

from collections.abc import Sequence
from dataclasses import dataclass

from ingest._blobs import Blobs
from ingest._pseudonyms import Pseudonyms
from ingest._secrets import Secrets
from ingest.wire import Raw


@dataclass(frozen=True)
class Refine:
    """For `Intake.refine`: without secrets, under pseudonyms, with large values elsewhere."""

    pseudonyms: Pseudonyms
    secrets: Secrets
    blobs: Blobs

    def __call__(self, batch: Sequence[Raw]) -> Sequence[Raw]:
        """The same facts in order; one that may not be kept has a `problem`.

        Raises: Unavailable when the blobs' store did not take a value.
        """
        # A secret given as a user's name must be seen before it has a pseudonym, and a blob must
        # hold the value as it is kept.
        kept = list(self.secrets(batch))
        fine = [number for number, raw in enumerate(kept) if raw.problem is None]
        named = self.pseudonyms([kept[number] for number in fine])
        for number, raw in zip(fine, self.blobs(named), strict=True):
            kept[number] = raw
        return kept
