from collections.abc import Callable

import httpx
import pytest
from sqlalchemy import Engine

from ingest._rates import Bucket
from ingest.errors import BadInput, TooManyRequests
from ingest.keys import Keys
from tests.running import Running


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def spent(ask: Callable[[], object], most: int = 10_000) -> int:
    """How many are let through before one is not."""
    for count in range(most):
        try:
            ask()
        except TooManyRequests:
            return count
    return most


def test_a_quiet_key_may_make_two_seconds_worth_at_once_and_then_its_rate() -> None:
    clock = Clock()
    bucket = Bucket(50, clock)
    assert spent(bucket.spend) == 100
    clock.now += 0.5
    assert spent(bucket.spend) == 25
    clock.now += 3600
    assert spent(bucket.spend) == 100


def test_a_clock_that_stands_still_gives_nothing_and_takes_nothing() -> None:
    bucket = Bucket(1, Clock())
    assert spent(bucket.spend) == 2
    assert spent(bucket.spend) == 0


def test_each_key_has_the_rate_it_was_made_with_or_that_of_the_server(control: Engine) -> None:
    keys = Keys(control, 10, Clock())
    _, slow = keys.create(("ingest",), rate=3)
    _, usual = keys.create(("ingest",))
    assert spent(lambda: keys.check(slow)) == 6
    assert spent(lambda: keys.check(usual)) == 20


def test_a_fresh_answer_of_the_database_does_not_refill_a_bucket(control: Engine) -> None:
    clock = Clock()
    keys = Keys(control, 10, clock)
    _, secret = keys.create(("ingest",))
    assert spent(lambda: keys.check(secret)) == 20
    clock.now += 1.5
    assert spent(lambda: keys.check(secret)) == 15


def test_revoking_another_key_does_not_refill_a_bucket(control: Engine) -> None:
    keys = Keys(control, 10, Clock())
    _, secret = keys.create(("ingest",))
    other, _ = keys.create(("ingest",))
    assert spent(lambda: keys.check(secret)) == 20
    keys.revoke(other)
    assert spent(lambda: keys.check(secret)) == 0


def test_a_rate_of_nothing_is_refused_by_name(control: Engine) -> None:
    with pytest.raises(BadInput, match="rate"):
        Keys(control, 0)


def test_too_fast_is_429_with_when_to_come_back_and_takes_nothing(running: Running) -> None:
    made = running.http.post("/v1/keys", json={"scopes": ["ingest"], "rate": 1}).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    with httpx.Client(base_url=running.url, headers=headers) as editor:
        answers = [editor.post("/v1/events", json=[]) for _ in range(6)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    problem = refused[0].json()
    assert refused[0].headers["Content-Type"] == "application/problem+json"
    assert refused[0].headers["Retry-After"] == "1"
    assert problem["detail"].startswith("this key may make 1 requests a second")
    assert made["key"] not in refused[0].text
    (listed,) = [k for k in running.http.get("/v1/keys").json()["keys"] if k["id"] == made["id"]]
    assert listed["rate"] == 1
