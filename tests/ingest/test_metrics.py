import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingest._rows import DEAD_COLUMNS
from ingest.app import Meter, create_app
from ingest.drain import Batch, Drain
from ingest.errors import Unavailable
from ingest.watch import Batches, drain_meters
from tests.facts import fact
from tests.running import Running

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "thumbwheel.json"
OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(url: str) -> Samples:
    """As Prometheus reads them, by an independent parser, without a key."""
    answer = httpx.get(f"{url}/metrics").raise_for_status()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_every_metric_of_the_dashboard_is_exported_and_explained(running: Running) -> None:
    running.http.post("/v1/events", json=[fact(), fact(time="noon")])
    running.until_stored()
    # As Prometheus has them: of a histogram, the family and its parts.
    families = set(re.findall(r"# TYPE (\S+)", httpx.get(f"{running.url}/metrics").text))
    exported = families | {name for name, _ in scraped(running.url)}
    used = {
        name
        for panel in panels(json.loads(DASHBOARD.read_text()))
        for target in panel["targets"]
        for name in re.findall(r"thumbwheel_\w+", target["expr"])
    }
    assert used <= exported
    explained = set(re.findall(r"thumbwheel_\w+", OPERATING.read_text()))
    assert {name for name in families if not name.endswith("_created")} <= explained


def test_the_dashboard_asks_for_its_data_source_and_says_what_each_panel_means() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    kinds = {each["name"]: each["type"] for each in dashboard["templating"]["list"]}
    assert kinds["datasource"] == "datasource"
    assert dashboard["id"] is None
    assert dashboard["schemaVersion"] >= 38
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels(dashboard):
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len(panel["description"]) > 20
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_verdicts_reasons_and_requests_are_counted(running: Running) -> None:
    event = fact()
    content = fact(data={"turn.id": "t", "prompt": "hello"})
    running.http.post("/v1/events", json=[event, fact(time="noon"), content])
    running.http.post("/v1/events", json=[event])
    running.until_stored()
    samples = scraped(running.url)
    for status, count in {"accepted": 1, "duplicate": 1, "rejected": 2}.items():
        assert value(samples, "thumbwheel_events_total", status=status) == count
    for reason in ("field", "consent"):
        assert value(samples, "thumbwheel_rejections_total", reason=reason) == 1
    taken = {"route": "/v1/events", "method": "POST", "status": "200"}
    assert value(samples, "thumbwheel_request_seconds_count", **taken) == 2
    assert value(samples, "thumbwheel_stored_total") == 1
    assert value(samples, "thumbwheel_drain_batch_rows_count") >= 1
    assert value(samples, "thumbwheel_insert_seconds_count") >= 1
    assert value(samples, "thumbwheel_log_lag") == 0


def test_what_waits_is_counted(running: Running) -> None:
    store = running.server.ingest.store
    for at in (1, 2):
        row = (f"local/0/{at}", 0, "broken", json.dumps(fact()).encode())
        store.insert("dead_letters", DEAD_COLUMNS, [row], token=str(at))
    rating = {"target": {"kind": "turn", "id": "none yet"}, "value": True}
    running.http.post("/v1/feedback", json=rating)
    running.until_stored()
    samples = scraped(running.url)
    assert value(samples, "thumbwheel_dead_letters_waiting") == 2
    assert value(samples, "thumbwheel_feedback_waiting") == 1
    running.http.post("/v1/dead-letters/local:0:1:0/replay")
    assert value(scraped(running.url), "thumbwheel_dead_letters_waiting") == 1


def test_no_client_can_make_the_number_of_series_grow(running: Running) -> None:
    scraped(running.url)  # the scrape is a route too
    before = len(scraped(running.url))
    with httpx.Client(base_url=running.url) as stranger:
        for number in range(30):
            stranger.get(f"/v1/events/{number}")
            stranger.get(f"/no/such/{number}")
            stranger.request(f"METHOD{number}", "/v1/events")
    samples = scraped(running.url)
    unmatched = {"route": "none", "method": "GET", "status": "404"}
    assert value(samples, "thumbwheel_request_seconds_count", **unmatched) == 30
    templated = {"route": "/v1/events/{id}", "method": "GET", "status": "401"}
    assert value(samples, "thumbwheel_request_seconds_count", **templated) == 30
    per_series = sum(("route", "none") in labels for _, labels in samples)
    assert len(samples) - before <= 3 * per_series


def _away() -> dict[str, float]:
    raise Unavailable("the log is away")


def test_a_part_that_does_not_answer_is_left_out_and_said_to_be(serve: Any) -> None:
    meters = [Meter("a", "A.", lambda: {"": 7}), Meter("b", "B.", _away)]
    samples = scraped(serve(create_app("x", [], ready={}, meters=meters)))
    assert value(samples, "a_total") == 7
    assert not [name for name, _ in samples if name.startswith("b")]
    assert value(samples, "thumbwheel_scrape_errors", series="a") == 0
    assert value(samples, "thumbwheel_scrape_errors", series="b") == 1


def test_a_batch_is_seen_with_its_rows_and_its_time(serve: Any) -> None:
    batches = Batches()
    for rows, seconds in ((3, 0.02), (700, 0.02), (700, 4.0)):
        batches(Batch(rows, seconds))
    samples = scraped(serve(create_app("x", [], ready={}, collectors=batches.collectors)))
    assert value(samples, "thumbwheel_drain_batch_rows_sum") == 1403
    assert value(samples, "thumbwheel_drain_batch_rows_bucket", le="500.0") == 1
    assert value(samples, "thumbwheel_insert_seconds_bucket", le="0.025") == 2


@pytest.mark.parametrize(("behind_s", "seen"), [(90, 90), (-90, 0)])
def test_the_oldest_fact_on_its_way_has_an_age_and_no_negative_one(
    drain: Drain, behind_s: int, seen: int
) -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    (oldest,) = [meter for meter in drain_meters(drain, lambda: now) if "oldest" in meter.name]
    assert oldest.read() == {"": 0.0}
    drain.oldest_waiting = now - timedelta(seconds=behind_s)
    assert oldest.read() == {"": seen}
