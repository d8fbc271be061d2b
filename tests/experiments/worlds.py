"""Facts of an experiment, a day at a time, for tests of what is counted."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from experiments.assign import ExperimentSpec, Variant
from tests.facts import fact

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
SPEC = ExperimentSpec("e1", 1, "user", (Variant("a", "m1", 1), Variant("b", "m2", 1)), "salt")

Tell = Callable[..., None]


def day(number: float) -> datetime:
    return START + timedelta(days=number)


@dataclass
class World:
    """Facts by the day on which they came in."""

    days: dict[float, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def tell(self, tell: Tell) -> None:
        for number in sorted(self.days):
            tell(*self.days[number], at=day(number))

    def expose(self, on: float, unit: str, arm: str = "a", **changes: Any) -> None:
        data = {
            "assignment": unit, "experiment": "e1", "version": 1, "unit_type": "user",
            "unit": unit, "assigned": arm, "received": arm, "propensity": 0.5,
            "reason": "randomised",
        } | changes  # fmt: skip
        self.days[on].append(fact("experiment.exposed", data=data))

    def serve(self, on: float, unit: str, name: str, *, drawn: bool = True, **changes: Any) -> None:
        """A completion and its turn; not `drawn` is one that no experiment served."""
        where = {"experiment": "e1", "version": 1, "variant": "a"} if drawn else {}
        data = {
            "completion.id": name, "turn.id": f"t-{name}", "checkpoint": "m", "outcome": "ok",
            "reason": "randomised" if drawn else "default", **where,
        } | changes  # fmt: skip
        self.days[on].append(fact("completion.finished", user=unit, data=data))

    def say(self, on: float, kind: str, **data: Any) -> None:
        """Any fact; double underscores are dots."""
        named = {name.replace("__", "."): value for name, value in data.items()}
        self.days[on].append(fact(kind, data=named))

    def thumb(self, on: float, target: str, value: float, **changes: Any) -> None:
        data = {
            "target": {"kind": "completion", "id": target},
            "gen_ai.evaluation.score.value": value,
            "rater": "ann",
        } | changes
        self.days[on].append(fact("feedback.submitted", data=data))
