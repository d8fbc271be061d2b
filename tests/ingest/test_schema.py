"""The tables: what makes common questions cheap, how long facts stay, and what a cluster gets."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ingest._schema import lifetimes, migrations, on_cluster
from ingest.drain import Drain
from ingest.errors import BadInput
from ingest.intake import Intake
from ingest.store import Store
from ingest.wire import split_batch
from tests.facts import fact

STATEMENTS = [statement for _, statements in migrations() for statement in statements]
EVER = {"since": datetime(1970, 1, 1, tzinfo=UTC), "until": datetime(2200, 1, 1, tzinfo=UTC)}
FIND = (
    "SELECT id FROM facts_of(kind = {kind:String}, name = {name:String}, "
    "since = {since:DateTime64(6, 'UTC')}, until = {until:DateTime64(6, 'UTC')}) ORDER BY id"
)


def keep(intake: Intake, drain: Drain, *events: dict[str, Any], at: datetime) -> None:
    intake.now = lambda: at
    intake.take(split_batch(json.dumps(events).encode()))
    while drain.step(timeout_s=0):
        pass


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda text: text[-60:].split("\n")[-1])
def test_every_statement_has_a_form_for_a_cluster_that_the_engine_parses(
    statement: str, store: Store
) -> None:
    for form in on_cluster(statement, "west"):
        assert store.rows("EXPLAIN AST " + form), form


def test_a_cluster_replicates_its_tables_and_keeps_duplicates_on_one_shard() -> None:
    forms = [form for statement in STATEMENTS for form in on_cluster(statement, "west")]
    local = next(form for form in forms if form.startswith("CREATE TABLE events_local"))
    assert (
        "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/events_local', "
        in local
    )
    assert "'{replica}', first)" in local
    assert re.search(r"\breplicated_deduplication_window = 10000", local)
    over_all = next(form for form in forms if form.startswith("CREATE TABLE events ON"))
    assert "Distributed(west, currentDatabase(), events_local, cityHash64(source, id))" in over_all
    assert all("ON CLUSTER west" in form for form in forms if not form.startswith("INSERT"))


def test_a_clusters_name_is_a_name() -> None:
    with pytest.raises(BadInput, match=r"cluster: .* is not a name"):
        on_cluster("CREATE VIEW a AS SELECT 1", "x; DROP TABLE events")


def test_facts_are_found_by_user_conversation_and_experiment_within_a_time(
    intake: Intake, drain: Drain, store: Store
) -> None:
    day = datetime(2026, 11, 1, tzinfo=UTC)
    data = {"turn.id": "t", "gen_ai.conversation.id": "talk", "experiment": "e1"}
    keep(intake, drain, fact(id="a", user="ann", data=data), fact(id="b", user="bob"), at=day)
    keep(intake, drain, fact(id="c", user="ann"), at=day + timedelta(days=2))

    def found(kind: str, name: str, **times: datetime) -> list[str]:
        return [row["id"] for row in store.rows(FIND, kind=kind, name=name, **EVER | times)]

    assert found("user", "ann") == ["a", "c"]
    assert found("conversation", "talk") == ["a"]
    assert found("experiment", "e1") == ["a"]
    assert found("user", "ann", since=day + timedelta(days=1)) == ["c"]
    assert found("user", "ann", until=day + timedelta(days=1)) == ["a"]
    assert found("user", "a' OR 1=1 --") == []


def test_a_fact_stored_twice_is_found_once(intake: Intake, drain: Drain, store: Store) -> None:
    keep(intake, drain, fact(id="a", user="ann"), at=datetime(2026, 11, 1, tzinfo=UTC))
    store.command("INSERT INTO events SELECT * FROM events")
    store.command("INSERT INTO pointers SELECT * FROM pointers")
    assert [row["id"] for row in store.rows(FIND, kind="user", name="ann", **EVER)] == ["a"]


def test_facts_go_when_the_days_of_their_consent_are_over(
    intake: Intake, drain: Drain, store: Store
) -> None:
    now = datetime.now(UTC)
    old = [fact(id="m"), fact(id="c", consent="code"), fact(id="t", consent="training")]
    keep(intake, drain, *old, at=now - timedelta(days=40))
    keep(intake, drain, fact(id="new", consent="code"), at=now - timedelta(days=20))
    store.keep("code=30, training=400")
    store.command("OPTIMIZE TABLE events FINAL")
    left = [row["id"] for row in store.rows("SELECT id FROM events FINAL ORDER BY id")]
    assert left == ["m", "new", "t"]
    store.keep("")
    assert "TTL" not in store.rows("SHOW CREATE TABLE events")[0]["statement"]


@pytest.mark.parametrize("keep", ["code", "code=soon", "code=0", "secret=3", "code=-1", "code=1;x"])
def test_a_lifetime_that_is_not_understood_is_refused_by_name(keep: str) -> None:
    with pytest.raises(BadInput, match=r"keep: .* is not metrics"):
        lifetimes(keep)
