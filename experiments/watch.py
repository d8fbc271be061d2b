"""Looks at what runs while nobody does, and keeps each new verdict."""

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from experiments.bandits import reweigh
from experiments.decision import Decision
from experiments.plans import Experiment
from experiments.records import Decisions, record_of
from experiments.registry import Experiments
from experiments.report import report
from ingest.errors import Conflict, ThumbwheelError

log = logging.getLogger(__name__)

EVERY_S = 600.0


@dataclass
class Watch:
    """Runs in a thread of its own until `stop` is set."""

    experiments: Experiments
    decisions: Decisions
    every_s: float = EVERY_S
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(self.every_s):
            try:
                self.turn()
            except ThumbwheelError as error:
                log.warning("the watch waits: %s", error.detail)

    def turn(self) -> None:
        """Each running experiment has its newest verdict recorded, and is stopped if it asked so; a
        bandit whose batch is full begins the next.

        Raises: Unavailable.
        """
        for each in self.experiments.all():
            if each.status != "running":
                continue
            if each.is_bandit:
                self._reweigh(each.plan.key)
            elif each.switchback is None:
                self._look(each)

    def _reweigh(self, key: str) -> None:
        try:
            made = reweigh(self.decisions.store, self.experiments, key)
        except Conflict as error:
            log.debug("%s keeps its weights: %s", key, error.detail)
        else:
            log.info("%s deals batch %d", key, made.version)

    def _look(self, experiment: Experiment) -> None:
        key = experiment.plan.key
        found = report(self.decisions.store, experiment, as_of=datetime.now(UTC))
        before = self.decisions.all(key)
        if before and _told(json.loads(before[-1].record)) == _said(found.decision):
            return
        self.decisions.keep(key, record_of(experiment, found))
        log.warning("%s: %s, %s", key, found.decision.verdict, found.decision.rule)
        if found.decision.verdict == "rollback" and experiment.plan.on_harm == "stop":
            self.experiments.stop(key)
            log.warning("%s is stopped, as its plan asks for on harm", key)


def _told(record: Mapping[str, Any]) -> tuple[str, str | None, str]:
    decision = record["decision"]
    return decision["verdict"], decision["variant"], decision["gate"]


def _said(decision: Decision) -> tuple[str, str | None, str]:
    """Without the rule's words, which name days and hours."""
    return decision.verdict, decision.variant, decision.gate
