"""Simulated developers and scripted checkpoints whose true difference is known by arithmetic."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

MARK = "SIMULATED"
"""Stands in every prompt and answer that no person and no model wrote."""


@dataclass(frozen=True)
class Behaviour:
    """What simulated developers do with right and wrong answers, and how often arms are right."""

    right: tuple[tuple[str, float], ...] = (("scripted-a", 0.45), ("scripted-b", 0.75))
    """Checkpoint and its chance of a right answer; the first is the control."""
    praise: float = 0.95
    """Chance that a rating of a right answer is a thumb up."""
    rating: tuple[float, float] = (3.5, 6.5)
    """Beta parameters of a developer's chance to rate an answer: developers differ."""
    leniency: tuple[float, float] = (2.0, 6.0)
    """Beta parameters of a developer's chance to praise a wrong answer all the same."""
    undo_right: float = 0.05
    undo_wrong: float = 0.6

    def chance(self, checkpoint: str) -> float:
        return dict(self.right)[checkpoint]

    @property
    def checkpoints(self) -> tuple[str, str]:
        (control, _), (treatment, _) = self.right
        return control, treatment

    def true_net_thumbs(self, checkpoint: str) -> float:
        """Expected (ups − downs) ÷ completions. Turns, rating and leniency are independent."""
        rates, forgives = (_beta_mean(each) for each in (self.rating, self.leniency))
        right = self.chance(checkpoint)
        return rates * (right * (2 * self.praise - 1) + (1 - right) * (2 * forgives - 1))

    def true_undo_rate(self, checkpoint: str) -> float:
        """Expected undone edits ÷ proposed edits."""
        right = self.chance(checkpoint)
        return right * self.undo_right + (1 - right) * self.undo_wrong

    def true_effects(self) -> dict[str, float]:
        """Treatment − control by metric."""
        control, treatment = self.checkpoints
        return {
            "thumbs_net": self.true_net_thumbs(treatment) - self.true_net_thumbs(control),
            "undo_rate": self.true_undo_rate(treatment) - self.true_undo_rate(control),
        }


@dataclass(frozen=True)
class Developer:
    name: str
    turns: int
    rates: float
    forgives: float


@dataclass(frozen=True)
class Decision:
    thumb: bool | None
    """None: not rated, as nearly always in life."""
    undo: bool


@dataclass(frozen=True)
class Population:
    """Everything follows from the seed, so a retry after a crash does the same again."""

    seed: int
    size: int
    behaviour: Behaviour = Behaviour()

    def developers(self) -> Iterator[Developer]:
        for number in range(self.size):
            draw = Random(f"{self.seed}/developer/{number}")
            yield Developer(
                name=f"simulated-{self.seed}-{number:04d}",
                turns=draw.choice((1, 2, 3, 4, 5, 6)),
                rates=draw.betavariate(*self.behaviour.rating),
                forgives=draw.betavariate(*self.behaviour.leniency),
            )

    def decide(self, developer: Developer, turn: int, *, right: bool) -> Decision:
        draw = Random(f"{self.seed}/{developer.name}/{turn}")
        rated = draw.random() < developer.rates
        praise = self.behaviour.praise if right else developer.forgives
        thumb = draw.random() < praise
        undo = draw.random() < (self.behaviour.undo_right if right else self.behaviour.undo_wrong)
        return Decision(thumb if rated else None, undo)


def prompt(developer: Developer, turn: int) -> str:
    return f"[{MARK} {developer.name} turn {turn}] write add(a, b) in Python"


def answer(checkpoint: str, asked: str, chance: float) -> str:
    """What a scripted checkpoint says: right with the given chance, always the same when asked again."""
    right = Random(f"{checkpoint}/{asked}").random() < chance
    sign = "+" if right else "-"
    return f"[{MARK} {checkpoint}]\n```python\ndef add(a, b):\n    return a {sign} b\n```"


def is_right(text: str) -> bool:
    """The developer's test of an answer."""
    return "return a + b" in text


def _beta_mean(parameters: tuple[float, float]) -> float:
    return parameters[0] / sum(parameters)
