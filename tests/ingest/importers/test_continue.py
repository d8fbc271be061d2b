import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ingest._continue import facts_of, posted
from ingest.errors import BadInput
from ingest.events import CONSENT_LEVELS, Consent, content_in, parse
from ingest.importers import NotAHistory, read_history
from tests.ingest.continue_reports import REPORTS, WRITTEN, line
from tests.ingest.continue_reports import posted as body

Facts = list[dict[str, Any]]


def write(path: Path, *reports: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in reports))
    return path


def facts(path: Path, consent: Consent = "code", user: str = "unknown") -> Facts:
    found = read_history("continue", path).events(consent=consent, user=user)
    return [each for each in found if isinstance(each, dict)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chatInteraction.jsonl"


def sent(name: str, **changes: Any) -> Facts:
    """What the door makes of the same report."""
    return facts_of(posted(body(name, **changes), consent="code", user=None))


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_what_was_posted_too_is_the_same_fact(file: Path, name: str) -> None:
    *reported, recorded = facts(write(file, line(name)))
    assert reported == sent(name)
    assert recorded["type"] == "thumbwheel.import.recorded.v1"


@pytest.mark.parametrize("name", sorted(set(WRITTEN) - {"chatFeedback"}))
def test_what_is_written_in_it_makes_a_report_the_same_whatever_its_clock(
    file: Path, name: str
) -> None:
    """Continue stamps the line and the posted report apart, some milliseconds later."""
    imported = facts(write(file, line(name)))[:-1]
    later = sent(name, timestamp="2026-06-18T17:21:52.161Z")
    assert [fact["id"] for fact in imported] == [fact["id"] for fact in later]


def test_a_file_of_its_older_form_is_named_after_its_event(tmp_path: Path) -> None:
    old = {"model": "m", "provider": "p", "promptTokens": 3, "generatedTokens": 4}
    path = write(tmp_path / "tokensGenerated.jsonl", old, old, old | {"promptTokens": 5}, old)
    found = facts(path)[:-1]
    assert [fact["data"]["gen_ai.usage.input_tokens"] for fact in found] == [3, 3, 5, 3]
    assert len({fact["id"] for fact in found}) == 4
    longer = tmp_path / "more" / "tokensGenerated.jsonl.gz"
    longer.parent.mkdir()
    longer.write_bytes(gzip.compress(path.read_bytes() + json.dumps(old).encode()))
    assert [fact["id"] for fact in facts(longer)[:4]] == [fact["id"] for fact in found]


def test_importing_again_gives_the_same_facts_and_says_what_was_read(file: Path) -> None:
    write(file, *map(line, REPORTS))
    history = read_history("continue", file)
    first = facts(file)
    assert first == facts(file)
    assert history.summary.counts == {"reports": len(REPORTS), "events": len(first)}
    assert history.summary.understood.keys() == REPORTS.keys()
    assert first[-1]["data"]["counts"]["reports"] == len(REPORTS)


@pytest.mark.parametrize("consent", CONSENT_LEVELS)
def test_facts_pass_the_schema_and_keep_to_consent(file: Path, consent: Consent) -> None:
    found = facts(write(file, *map(line, REPORTS)), consent)
    for fact in found:
        assert parse(fact).id == fact["id"]
        assert fact["consent"] == consent
    assert any(content_in(fact["data"]) for fact in found) is (consent != "metrics")
    assert ("hush" in json.dumps(found)) is (consent != "metrics")


def test_a_user_given_goes_before_the_one_that_continue_names(file: Path) -> None:
    write(file, line("toolUsage", userId="token"))
    assert facts(file)[0]["user"] == "token"
    given = facts(file, user="ann")
    assert {fact["user"] for fact in given} == {"ann"}
    assert given[0]["id"] == facts(file)[0]["id"]
    with pytest.raises(BadInput, match="user"):
        facts(file, user=" ")


def test_a_line_of_no_json_or_no_name_stops_everything_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text(json.dumps(line("toolUsage")) + '\n{"cut": ')
    with pytest.raises(NotAHistory, match=r"notes\.jsonl: line 2 is no JSON"):
        read_history("continue", path)
    write(path, line("toolUsage"), {"prompt": "x"})
    with pytest.raises(NotAHistory, match=r"notes\.jsonl: line 2 has no 'eventName'"):
        read_history("continue", path)


def test_a_line_that_readers_would_not_agree_on_is_counted_and_left_out(file: Path) -> None:
    file.write_text(json.dumps(line("toolUsage")) + '\n{"a": NaN}\n')
    summary = read_history("continue", file).summary
    assert [tally.lines for tally in summary.not_understood.values()] == [(2,)]
    assert len(facts(file)) == 2
