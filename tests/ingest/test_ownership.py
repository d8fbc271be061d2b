"""Whose a fact is that names nobody, against a second reading of the rule in plain Python."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest._ownership import Ownership
from ingest.store import Store
from tests.facts import fact

Tell = Callable[..., None]
UNTIL = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def theirs(store: Store, *names: str) -> set[str]:
    return {owned.id for owned in Ownership(store, names).facts(until=UNTIL)}


def seen(completion: str = "", **changes: Any) -> dict[str, Any]:
    """A fact that belongs nowhere but where `changes` say."""
    data = {"completion.id": completion, **changes.pop("data", {})}
    kind = "completion.shown" if completion else "client.error"
    return fact(kind, data=data | {"error.type": "x"}, **{"source": f"/ext/{uuid4()}/s"} | changes)


def rating(thread: str, target: tuple[str, str], **data: Any) -> dict[str, Any]:
    said = {"target": {"kind": target[0], "id": target[1]}, **data}
    where = {"source": "/feedback", "partitionkey": target[1], "id": f"{thread}-1-abcd"}
    return fact("feedback.submitted", data=said, **where)


def test_facts_that_name_the_user_are_theirs_wherever_they_name_them(
    store: Store, tell: Tell
) -> None:
    exposed = {
        "assignment": "a", "experiment": "e", "version": 1, "unit_type": "user", "unit": "ann",
        "assigned": "x", "received": "x", "propensity": 0.5, "reason": "randomised",
    }  # fmt: skip
    named = [
        seen(user="ann"),
        seen(user="u_ann"),
        rating("t1", ("completion", "c-far"), rater="ann"),
        fact("experiment.exposed", source="/serving", data=exposed),
        seen(data={"user.id": "ann"}),
    ]
    others = [
        seen(user="Ann"),
        seen(user="anna", data={"note": "ann"}),
        rating("t2", ("completion", "c-far"), rater="bob"),
        rating("t3", ("completion", "c-other"), rater="ann-model", rater_source="model"),
        fact("experiment.exposed", source="/serving", id="o",
             data=exposed | {"unit_type": "organization"}),
    ]  # fmt: skip
    tell(*named, *others, at=AT)
    assert theirs(store, "ann", "u_ann") == {each["id"] for each in named}


def test_what_came_after_the_request_stays(store: Store, tell: Tell) -> None:
    before, after = seen(user="ann"), seen(user="ann")
    tell(before, at=AT)
    tell(after, at=datetime(2026, 1, 2, tzinfo=UTC))
    assert theirs(store, "ann") == {before["id"]}


def test_a_session_of_one_user_takes_its_nameless_facts_along(store: Store, tell: Tell) -> None:
    own = [seen(user="ann", source="/ext/a/1"), seen(source="/ext/a/1")]
    bobs = [seen(user="bob", source="/ext/b/1"), seen(source="/ext/b/1")]
    tell(*own, *bobs, at=AT)
    assert theirs(store, "ann") == {each["id"] for each in own}


def test_what_leads_to_a_user_through_nameless_facts_is_theirs(store: Store, tell: Tell) -> None:
    """Serving names the user, an editor without a name shows the answer, a key rates its edit."""
    chain = [
        seen("c1", source="/serving", user="ann"),
        seen("c1", source="/ext/quiet/1"),
        seen(source="/ext/quiet/1", data={"diff.id": "d1"}),
        rating("t1", ("diff", "d1"), rater="key:1234"),
        fact("feedback.withdrawn", source="/feedback", id="t1-1-abcd-withdrawn",
             data={"supersedes": "t1-1-abcd"}),
    ]  # fmt: skip
    strangers = [seen("c2", source="/serving"), seen(source="/ext/quiet/2"),
                 rating("t2", ("diff", "d2"), rater="key:1234")]  # fmt: skip
    tell(*chain, *strangers, at=AT)
    assert theirs(store, "ann") == {each["id"] for each in chain}


def test_a_quiet_session_of_two_users_is_nobodys(store: Store, tell: Tell) -> None:
    own = seen("c1", source="/serving", user="ann")
    rest = [
        seen("c2", source="/serving", user="bob"),
        seen("c1", source="/ext/quiet/1"),
        seen("c2", source="/ext/quiet/1"),
    ]
    tell(own, *rest, at=AT)
    assert theirs(store, "ann") == {own["id"]}


def test_a_conversation_with_another_user_drags_nothing_along(store: Store, tell: Tell) -> None:
    shared = {"gen_ai.conversation.id": "c-both"}
    own = [seen(user="ann", source="/ext/a/1", data=shared), seen(source="/ext/a/1", data=shared)]
    rest = [seen(user="bob", data=shared), seen(source="/serving", data=shared)]
    tell(*own, *rest, at=AT)
    assert theirs(store, "ann") == {each["id"] for each in own}


def test_a_turn_that_clients_name_alike_ties_nothing(store: Store, tell: Tell) -> None:
    def turn(source: str, conversation: str, **more: Any) -> dict[str, Any]:
        data = {"turn.id": "t1", "gen_ai.conversation.id": conversation}
        return fact("turn.submitted", source=source, data=data, **more)

    own = turn("/ext/a/1", "c-a", user="ann")
    tell(own, turn("/ext/quiet/1", "c-q"), rating("r", ("turn", "t1"), rater="key:1"), at=AT)
    assert theirs(store, "ann") == {own["id"]}


SOURCES = ("/serving", "/otlp/app", "/ext/a/1", "/ext/b/1", "/ext/q/1", "/ext/q/2", "app")
PLACES = {
    "conversation": "gen_ai.conversation.id",
    "completion": "completion.id",
    "turn": "turn.id",
    "diff": "diff.id",
}
FACTS = st.fixed_dictionaries(
    {
        "source": st.sampled_from(SOURCES),
        "user": st.sampled_from(("", "", "", "ann", "bob", "cem")),
        **{name: st.sampled_from(("", "", "1", "2", "3")) for name in PLACES},
    }
)
Drawn = dict[str, str]


def places(each: Drawn) -> set[tuple[str, str]]:
    found = {(name, each[name]) for name in PLACES if each[name]}
    shared = each["source"].startswith(("/serving", "/otlp"))
    return found if shared else found | {("source", each["source"])}


Members = dict[tuple[str, str], list[int]]


def members_of(population: list[Drawn]) -> Members:
    """Who is where; a turn in two conversations or two sessions is no place."""
    members: Members = defaultdict(list)
    for number, each in enumerate(population):
        for place in places(each):
            members[place].append(number)
    for place, inside in list(members.items()):
        conversations = {population[n]["conversation"] for n in inside} - {""}
        sources = {p for n in inside for p in places(population[n]) if p[0] == "source"}
        if place[0] == "turn" and (len(conversations) > 1 or len(sources) > 1):
            del members[place]
    return members


def second_reading(population: list[Drawn], user: str) -> set[int]:
    """From fact to fact, one at a time: what the docstring of `Ownership` says."""
    members = members_of(population)
    speakers = {
        place: {population[n]["user"] for n in inside} - {""}
        for place, inside in members.items()
        if place[0] == "source"
    }

    def owner(number: int) -> str:
        each = population[number]
        session = speakers.get(("source", each["source"]), set())
        return each["user"] or (next(iter(session)) if len(session) == 1 else "")

    def around(number: int) -> set[int]:
        usable = places(population[number]) & members.keys()
        usable -= {place for place, users in speakers.items() if len(users) > 1}
        return {other for place in usable for other in members[place]}

    def reached(start: int) -> set[str]:
        met, waiting = {start}, [start]
        while waiting:
            new = around(waiting.pop()) - met
            met |= new
            waiting += [each for each in new if not owner(each)]
        return {owner(each) for each in met} - {""}

    return {
        number
        for number in range(len(population))
        if owner(number) == user or (not owner(number) and reached(number) == {user})
    }


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FACTS, min_size=1, max_size=14))
def test_exactly_the_facts_of_the_rule_go_and_none_of_a_neighbour(
    store: Store, population: list[Drawn]
) -> None:
    store.command("TRUNCATE TABLE events")
    columns = ("id", "source", "user", *PLACES, "type", "body", "received_at")
    rows = [
        [str(n), each["source"], each["user"], *(each[name] for name in PLACES), "t", "{}", AT]
        for n, each in enumerate(population)
    ]
    store.insert("events", columns, rows, token=uuid4().hex)
    gone = theirs(store, "ann")
    assert gone == {str(number) for number in second_reading(population, "ann")}
    assert not any(population[int(number)]["user"] in ("bob", "cem") for number in gone)
