"""Answers with the conversation that led to them, and what developers did with them.

Only facts recorded at consent `training` are read. Conversations are rebuilt from the facts of one
source and one user: a conversation id that two people share never joins their words.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from ingest.messages import to_messages
from ingest.store import Store
from ingest.wire import read_one

Signal = Literal["thumb", "undo", "kept"]
_PAGE = 500


@dataclass(frozen=True)
class Filter:
    """Which answers; None lets all through. Times are of receipt."""

    since: datetime | None = None
    until: datetime | None = None
    checkpoint: str | None = None
    experiment: str | None = None

    def lets_through(self, answer: "Answer") -> bool:
        return (
            (self.since is None or answer.received_at >= self.since)
            and (self.until is None or answer.received_at < self.until)
            and self.checkpoint in (None, answer.checkpoint)
            and self.experiment in (None, answer.experiment)
        )


@dataclass(frozen=True)
class Answer:
    """One answer of a model: `prompt` ends right before it, `completion` is its one message."""

    id: str
    conversation: str
    turn: str
    """Set on the last answer of a turn: what is said of the turn is said of that one."""
    origin: str
    checkpoint: str
    experiment: str
    prompt: tuple[dict[str, Any], ...]
    completion: dict[str, Any]
    facts: tuple[str, ...]
    received_at: datetime
    simulated: bool
    served: bool
    """Recorded by serving, with the prompt as the engine got it."""


@dataclass
class Judgement:
    """What is known of one answer's worth, and the facts that say so."""

    ups: list[str] = field(default_factory=list)
    downs: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def __add__(self, other: "Judgement") -> "Judgement":
        return Judgement(
            self.ups + other.ups,
            self.downs + other.downs,
            self.undone + other.undone,
            self.kept + other.kept,
        )

    def label(self) -> tuple[bool, Signal, list[str]] | None:
        """A thumb outweighs an undo, an undo a kept edit; thumbs that disagree say nothing."""
        if self.ups or self.downs:
            if self.ups and self.downs:
                return None
            return bool(self.ups), "thumb", self.ups or self.downs
        if self.undone:
            return False, "undo", self.undone
        return (True, "kept", self.kept) if self.kept else None


_FACTS = """
SELECT type, id, source, user, conversation, turn, completion, experiment, received_at, body
FROM events FINAL
WHERE consent = 'training' AND conversation IN {conversations:Array(String)}
  AND type IN (
    'thumbwheel.turn.submitted.v1', 'thumbwheel.inference.completed.v1',
    'thumbwheel.tool.called.v1', 'thumbwheel.completion.finished.v1'
  )
ORDER BY conversation, source, user, coalesce(time, received_at), sequence, received_at, id
"""

_CONVERSATIONS = """
SELECT DISTINCT conversation FROM events FINAL
WHERE consent = 'training' AND conversation != ''
  AND type IN ('thumbwheel.inference.completed.v1', 'thumbwheel.completion.finished.v1')
  AND ({since:Nullable(DateTime64(6, 'UTC'))} IS NULL OR received_at >= {since:Nullable(DateTime64(6, 'UTC'))})
  AND ({until:Nullable(DateTime64(6, 'UTC'))} IS NULL OR received_at < {until:Nullable(DateTime64(6, 'UTC'))})
  AND ({experiment:Nullable(String)} IS NULL OR experiment = {experiment:Nullable(String)})
ORDER BY conversation
"""


def answers(store: Store, chosen: Filter) -> Iterator[Answer]:
    """Every chosen answer with content, conversation by conversation, in order.

    Raises: Unavailable.
    """
    found = store.rows(
        _CONVERSATIONS, since=chosen.since, until=chosen.until, experiment=chosen.experiment
    )
    names = [row["conversation"] for row in found]
    for start in range(0, len(names), _PAGE):
        rows = store.rows(_FACTS, conversations=names[start : start + _PAGE])
        for _, facts in groupby(rows, key=itemgetter("conversation")):
            whole = (fact | {"body": store.restore(fact["body"])} for fact in facts)
            yield from filter(chosen.lets_through, _of_conversation(whole))


def _of_conversation(facts: Iterable[Mapping[str, Any]]) -> Iterator[Answer]:
    """Each answer once: what serving recorded stands for what an editor says of the same one."""
    found = [
        answer
        for _, own in groupby(facts, key=itemgetter("source", "user"))
        for answer in _only_last_keeps_its_turn(list(_rebuild(own)))
    ]
    served = {answer.id for answer in found if answer.served}
    turns = {answer.id: answer.turn for answer in found if not answer.served}
    for answer in found:
        if answer.served:
            yield replace(answer, turn=answer.turn or turns.get(answer.id, ""))
        elif answer.id not in served:
            yield answer


def _only_last_keeps_its_turn(found: list[Answer]) -> Iterator[Answer]:
    last = {answer.turn: number for number, answer in enumerate(found)}
    for number, answer in enumerate(found):
        yield answer if last[answer.turn] == number else replace(answer, turn="")


def _rebuild(facts: Iterable[Mapping[str, Any]]) -> Iterator[Answer]:
    """Answers of one conversation: a served one brings its own prompt, others get what came before."""
    history: list[dict[str, Any]] = []
    seen: list[str] = []
    for fact in facts:
        data = read_one(fact["body"].encode()).clean.get("data") or {}
        kind = fact["type"]
        if kind == "thumbwheel.completion.finished.v1":
            prompt = _messages(data.get("gen_ai.input.messages"))
            if data.get("outcome") == "ok" and prompt:
                for answer in _answer(fact, data, prompt, [fact["id"]]):
                    yield replace(answer, served=True)
            continue
        seen.append(fact["id"])
        if kind == "thumbwheel.turn.submitted.v1" and data.get("prompt"):
            history.append({"role": "user", "content": data["prompt"]})
        elif kind == "thumbwheel.tool.called.v1" and data.get("sent_to_model"):
            history += _told(data.get("gen_ai.tool.call.result"))
        elif kind == "thumbwheel.inference.completed.v1":
            own = _messages(data.get("gen_ai.input.messages"))
            for answer in _answer(fact, data, own or history, seen):
                if answer.prompt:
                    yield answer
                history.append(answer.completion)


def _answer(
    fact: Mapping[str, Any],
    data: Mapping[str, Any],
    prompt: Sequence[dict[str, Any]],
    facts: Sequence[str],
) -> Iterator[Answer]:
    message = _spoken(data)
    if message is not None:
        yield Answer(
            id=fact["completion"] or fact["id"],
            conversation=fact["conversation"],
            turn=fact["turn"],
            origin=fact["source"],
            checkpoint=data.get("checkpoint") or data.get("gen_ai.request.model") or "",
            experiment=fact["experiment"],
            prompt=tuple(prompt),
            completion=message,
            facts=tuple(facts),
            received_at=fact["received_at"].replace(tzinfo=UTC),
            simulated=bool(data.get("simulated")),
            served=False,
        )


def _spoken(data: Mapping[str, Any]) -> dict[str, Any] | None:
    output = _messages(data.get("gen_ai.output.messages"))
    return output[-1] if output else None


def _messages(value: object) -> list[dict[str, Any]]:
    """As engines read them; none where an editor sent something else."""
    whole = isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
    return to_messages(value) if whole and isinstance(value, list) else []


def _told(result: object) -> list[dict[str, Any]]:
    """What a tool's result is to the model: nothing where it is not known."""
    if result in (None, ""):
        return []
    return [{"role": "user", "content": result if isinstance(result, str) else json.dumps(result)}]


_EDITS = """
SELECT tupleElement(claim, 1) AS completion, tupleElement(claim, 2) AS turn, diff,
       reverted.facts AS undone, decided.facts AS kept
FROM (
    SELECT diff, min((completion, turn)) AS claim FROM events FINAL
    WHERE type = 'thumbwheel.diff.proposed.v1' AND consent = 'training' GROUP BY diff
) AS proposed
LEFT JOIN (
    SELECT diff, groupArray(id) AS facts FROM events FINAL
    WHERE type = 'thumbwheel.diff.reverted.v1' AND diff != '' GROUP BY diff
) AS reverted USING (diff)
LEFT JOIN (
    SELECT diff, groupArray(id) AS facts FROM events FINAL
    WHERE type = 'thumbwheel.diff.decided.v1'
      AND JSONExtractString(body, 'data', 'outcome') IN ('accepted', 'auto_applied')
    GROUP BY diff
) AS decided USING (diff)
ORDER BY diff
"""

_THUMBS = """
SELECT target_kind, target_id, value, id FROM current_feedback(as_of = now64(6, 'UTC'))
WHERE name = 'thumb' AND value IS NOT NULL ORDER BY id
"""

# Clients name their turns; a name that two people or conversations use says nothing of either.
_SHARED_TURNS = """
SELECT turn FROM events FINAL
WHERE turn != '' AND type IN (
    'thumbwheel.turn.submitted.v1', 'thumbwheel.inference.completed.v1',
    'thumbwheel.completion.finished.v1'
)
GROUP BY turn HAVING uniqExact(conversation) > 1 OR uniqExactIf(user, user != '') > 1
"""

Place = tuple[str, str]
"""("completion" or "turn", id)."""


def judgements(store: Store) -> Mapping[Place, Judgement]:
    """What was said of answers and done to their edits, by completion or, where a fact names no
    completion, by turn. Raises: Unavailable.
    """
    found: dict[Place, Judgement] = {}
    of_diff: dict[str, Place] = {}
    for row in store.rows(_EDITS):
        place = _place(row["completion"], row["turn"])
        of_diff[row["diff"]] = place
        judgement = found.setdefault(place, Judgement())
        judgement.undone += row["undone"]
        if not row["undone"]:
            judgement.kept += row["kept"]
    for row in store.rows(_THUMBS):
        kind, target = row["target_kind"], row["target_id"]
        place = of_diff.get(target, ("diff", target)) if kind == "diff" else (kind, target)
        if place[0] != "diff":
            judgement = found.setdefault(place, Judgement())
            (judgement.ups if row["value"] > 0 else judgement.downs).append(row["id"])
    for row in store.rows(_SHARED_TURNS):
        found.pop(("turn", row["turn"]), None)
    return found


def _place(completion: str, turn: str) -> Place:
    return ("completion", completion) if completion else ("turn", turn)
