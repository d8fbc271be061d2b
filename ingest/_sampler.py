"""A small random share of turns whose developer is asked for a rating, whatever they would volunteer.

Who rates unasked is not like who does not. Of the asked ones it is known with which probability they
were asked, so that their answers can be weighted to stand for all.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ingest.errors import BadInput
from ingest.events import SCHEMA_URI
from ingest.feedback import SOURCE
from ingest.intake import Intake

_Name = Annotated[str, Field(min_length=1, max_length=800)]


class Question(BaseModel):
    """May the developer be asked about this turn?"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turn: _Name
    user: _Name | None = None
    conversation: _Name | None = None


@dataclass(frozen=True)
class Sampler:
    """Draws turns. The same turn gets the same answer, from whoever asks and from any process."""

    intake: Intake
    share: float
    salt: str = "thumbwheel.feedback.asked"
    """Another salt draws other turns."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise BadInput.of("ask_share", f"{self.share} is not within 0 and 1")

    def draws(self, turn: str) -> bool:
        """Whether the turn is among the share. A larger share keeps all turns of a smaller one."""
        digest = hashlib.blake2b(json.dumps([self.salt, turn]).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.share * 2**64

    def ask(self, question: Question) -> bool:
        """As `draws`; that a turn is asked about is a durable fact before it is said.

        Turns that are not asked leave no fact: weights need only the asked ones. Raises: Unavailable.
        """
        drawn = self.draws(question.turn)
        if drawn:
            self.intake.take_own(self._asked(question))
        return drawn

    def _asked(self, question: Question) -> dict[str, object]:
        name = hashlib.blake2b(question.turn.encode(), digest_size=16).hexdigest()
        conversation = question.conversation
        return {
            "specversion": "1.0",
            "id": f"asked-{name}",
            "source": SOURCE,
            "type": "thumbwheel.feedback.asked.v1",
            "time": self.intake.now().isoformat(),
            "subject": question.turn,
            "dataschema": SCHEMA_URI,
            "partitionkey": conversation or question.turn,
            **({"user": question.user} if question.user else {}),
            "data": {
                "turn.id": question.turn,
                **({"gen_ai.conversation.id": conversation} if conversation else {}),
                "asked": True,
                "propensity": self.share,
            },
        }
