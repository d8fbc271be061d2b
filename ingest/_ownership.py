"""Whose a fact is that names nobody; and so, which facts go when a person is erased."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from ingest.store import Store

_AT_ONCE, _MOST_CHARACTERS = 2_000, 50_000
"""Of names bound to one statement: a server takes 128 kB of a value."""

# What a fact says about people, and the places that tie it to other facts. `place` is kind:name.
# A source that many clients share is no session. What the feedback door mints is one thread per
# rating, and its partition key is the target, not a conversation.
_PLACED = """
SELECT source, id, received_at,
    match(source, '^/(feedback|serving|otlp|continue)(/|$)') ? '' : source AS in_session,
    source = '/feedback' ? JSONExtractString(body, 'data', 'gen_ai.conversation.id') : conversation
        AS in_conversation,
    type LIKE 'thumbwheel.feedback.%'
        ? JSONExtractString(body, 'data', 'target', 'kind') : '' AS target_kind,
    target_kind != '' ? JSONExtractString(body, 'data', 'target', 'id') : '' AS target,
    position(body, '"rater"') > 0
        AND JSONExtractString(body, 'data', 'rater_source') IN ('', 'human')
        ? JSONExtractString(body, 'data', 'rater') : '' AS rater,
    position(body, '"unit_type"') > 0 AND JSONExtractString(body, 'data', 'unit_type') = 'user'
        ? JSONExtractString(body, 'data', 'unit') : '' AS unit,
    arrayFilter(name -> name != '', [
        user, startsWith(rater, 'key:') ? '' : rater, unit,
        position(body, '"user.id"') > 0 ? JSONExtractString(body, 'data', 'user.id') : '',
        position(body, '"enduser.id"') > 0 ? JSONExtractString(body, 'data', 'enduser.id') : ''
    ]) AS people,
    arrayFilter(place -> NOT endsWith(place, ':'), arrayConcat(
        [
            concat('session:', in_session),
            concat('conversation:', in_conversation),
            concat('completion:', target_kind = 'completion' ? target : completion),
            concat('turn:', target_kind = 'turn' ? target : turn),
            concat('diff:', target_kind = 'diff' ? target : diff),
            concat('thread:', source = '/feedback' AND NOT startsWith(id, 'asked-')
                ? splitByChar('-', id)[1] : '')
        ],
        type = 'thumbwheel.diff.committed.v1'
            ? arrayMap(name -> concat('diff:', name), JSONExtract(body, 'data', 'diff.ids', 'Array(String)'))
            : []
    )) AS places
FROM events
"""
_ALL = "WITH placed AS (" + _PLACED + ") "
_NEAR = (
    "WITH placed AS ("
    + _PLACED
    + """
WHERE source IN {near:Array(String)} OR conversation IN {near:Array(String)}
   OR completion IN {near:Array(String)} OR turn IN {near:Array(String)}
   OR diff IN {near:Array(String)} OR type LIKE 'thumbwheel.feedback.%'
   OR type = 'thumbwheel.diff.committed.v1'
) """
)

_THEIR_PLACES = (
    _ALL + "SELECT DISTINCT arrayJoin(places) AS place FROM placed "
    "WHERE hasAny(people, {names:Array(String)})"
)

_STANDINGS = (
    _NEAR
    + """
SELECT place,
    toBool(max(hasAny(people, {names:Array(String)}))) AS theirs,
    length(groupUniqArrayArray(2)(arrayFilter(name -> NOT has({names:Array(String)}, name), people)))
        AS others,
    startsWith(place, 'turn:') AND (
        uniqExactIf(in_conversation, in_conversation != '') > 1
        OR uniqExactIf(in_session, in_session != '') > 1
    ) AS vague
FROM placed ARRAY JOIN places AS place
WHERE place IN {places:Array(String)} GROUP BY place
"""
)

_NAMELESS = (
    _NEAR + "SELECT DISTINCT places FROM placed "
    "WHERE empty(people) AND arrayExists(place -> place IN {places:Array(String)}, places)"
)

_NAMING_THEM = (
    _ALL + "SELECT DISTINCT source, id, hex(sipHash128(source, id)) AS digest FROM placed "
    "WHERE hasAny(people, {names:Array(String)}) AND received_at <= {until:DateTime64(6, 'UTC')}"
)

_THEIRS_ALONE = (
    _NEAR + "SELECT DISTINCT source, id, hex(sipHash128(source, id)) AS digest FROM placed "
    "WHERE empty(people) AND arrayExists(place -> place IN {places:Array(String)}, places) "
    "AND received_at <= {until:DateTime64(6, 'UTC')}"
)


class Owned(NamedTuple):
    source: str
    id: str
    digest: str
    """Names the fact in statements that the engine keeps, without saying whose it is."""


class _Standing(NamedTuple):
    """Who is named at a place. `others` counts to 2; a `vague` turn name is one that clients share."""

    theirs: bool
    others: int
    vague: bool


@dataclass
class Ownership:
    """The facts of one person, who goes by several names (their own, and a pseudonym).

    A fact that names them as user, human rater or experiment unit is theirs. One that names nobody
    is theirs if its session names them and nobody else. Where a session names nobody or several,
    and in the sources that all clients share, the conversation, completion, turn, diff and thread
    of feedback decide, followed from fact to fact: it is theirs if these lead to them alone.
    """

    store: Store
    names: Sequence[str]
    _standings: dict[str, _Standing] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)
    """Places where somebody else has a part."""
    _ties: dict[str, list[frozenset[str]]] = field(default_factory=dict)

    def facts(self, *, until: datetime) -> list[Owned]:
        """Those received up to then. Raises: Unavailable."""
        found = {
            Owned(**row)
            for row in self.store.rows(_NAMING_THEM, names=list(self.names), until=until)
        }
        for places in _batched(sorted(self._places())):
            rows = self.store.rows(_THEIRS_ALONE, near=_names(places), places=places, until=until)
            found.update(Owned(**row) for row in rows)
        return sorted(found)

    def _places(self) -> set[str]:
        """Where facts that name nobody are theirs."""
        rows = self.store.rows(_THEIR_PLACES, names=list(self.names))
        reached: set[str] = set()
        frontier = {row["place"] for row in rows}
        while frontier:
            self._learn(frontier)
            reached |= {place for place in frontier if not self._standings[place].vague}
            alone = {place for place in frontier & reached if not self._standings[place].others}
            frontier = self._follow(alone) - reached
        self._spread()
        return reached - self._shared

    def _learn(self, places: Iterable[str]) -> None:
        new = sorted(set(places) - self._standings.keys())
        for asked in _batched(new):
            rows = self.store.rows(
                _STANDINGS, names=list(self.names), near=_names(asked), places=asked
            )
            for row in rows:
                standing = _Standing(row["theirs"], row["others"], bool(row["vague"]))
                self._standings[row["place"]] = standing
                if standing.others and not standing.vague:
                    self._shared.add(row["place"])

    def _follow(self, places: set[str]) -> set[str]:
        """The places that facts without a name lead to from here."""
        further: set[str] = set()
        for asked in _batched(sorted(places)):
            rows = self.store.rows(_NAMELESS, near=_names(asked), places=asked)
            facts = [frozenset(row["places"]) for row in rows]
            self._learn(place for fact in facts for place in fact)
            for fact in facts:
                further |= self._tie(fact)
        return further

    def _tie(self, fact: frozenset[str]) -> set[str]:
        places = {place for place in fact if not self._standings[place].vague}
        session = next((place for place in places if place.startswith("session:")), "")
        if session:
            theirs, others, _ = self._standings[session]
            if theirs + others > 1:
                places.discard(session)
            elif others:
                self._shared |= places
                return set()
            elif theirs:
                return places
        tied = frozenset(places)
        for place in tied:
            self._ties.setdefault(place, []).append(tied)
        return places

    def _spread(self) -> None:
        """What is tied to a shared place is shared."""
        waiting = list(self._shared)
        while waiting:
            for tied in self._ties.pop(waiting.pop(), ()):
                waiting += tied - self._shared
                self._shared |= tied


def _batched(names: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for name in names:
        if batch and (len(batch) == _AT_ONCE or size + len(name) > _MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += len(name)
    if batch:
        yield batch


def _names(places: Iterable[str]) -> list[str]:
    return [place.partition(":")[2] for place in places]
