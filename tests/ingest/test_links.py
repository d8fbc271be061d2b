import base64
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ingest._links import Links, LinkWish
from ingest._secret_file import secret_of
from ingest.errors import Expired, NotFound
from tests.running import Running

TARGET = {"kind": "turn", "id": "turn of 사용자/1"}
WISH = LinkWish.model_validate({"target": TARGET, "rater": "ann@example.org", "question": "Good?"})
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def public() -> Iterator[httpx.Client]:
    """Someone without a key."""
    with httpx.Client(timeout=30) as http:
        yield http


@pytest.fixture
def link(running: Running) -> Callable[..., str]:
    """A function that makes a link and gives its url."""

    def make(**wish: Any) -> str:
        answer = running.http.post("/v1/feedback/links", json={"target": TARGET} | wish)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["url"])

    return make


def said(running: Running) -> list[tuple[str, float | None, str]]:
    running.until_stored()
    rows = running.server.ingest.store.rows(
        "SELECT rater, value, explanation FROM current_feedback(as_of = now64(6, 'UTC')) "
        "ORDER BY rater"
    )
    return [(row["rater"], row["value"], row["explanation"]) for row in rows]


def test_looking_at_a_link_records_nothing(
    running: Running, public: httpx.Client, link: Callable[..., str]
) -> None:
    url = link(rater="ann")
    for method in ("GET", "HEAD", "GET"):
        assert public.request(method, url).status_code == 200
    assert said(running) == []
    assert public.post(url, data={"value": "up"}).text == "recorded: up\n"
    assert said(running) == [("ann", 1.0, "")]


def test_the_page_needs_nothing_from_elsewhere_and_shows_markup_as_text(
    public: httpx.Client, link: Callable[..., str]
) -> None:
    answer = public.get(link(question="<b>Was</b> it & good?"), headers=BROWSER)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    page = answer.text
    assert "<h1>&lt;b&gt;Was&lt;/b&gt; it &amp; good?</h1>" in page
    assert '<html lang="en">' in page
    assert not re.search(r"<script|src=|href=|http|\bon\w+=", page)
    assert re.findall(r'<button name="value" value="(\w+)">', page) == ["up", "down"]
    # Who presses Enter in a field presses the first button.
    assert page.index("<button disabled hidden>") < page.index("<input")
    assert page.count("<label>") == 2


def test_a_link_for_one_person_asks_no_name_and_takes_no_other(
    running: Running, public: httpx.Client, link: Callable[..., str]
) -> None:
    url = link(rater="ann")
    assert "<input" not in public.get(url).text
    refused = public.post(url, json={"value": True, "rater": "bob"})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "rater"
    assert "ann" not in refused.text
    assert public.post(url, json={"value": True, "rater": "ann"}).json()["revision"] == 1
    assert said(running) == [("ann", 1.0, "")]


def test_a_link_counts_once_per_rater(
    running: Running, public: httpx.Client, link: Callable[..., str]
) -> None:
    url = link()
    nobody = public.post(url, data={"value": "up"})
    assert nobody.status_code == 422
    assert nobody.json()["errors"][0]["field"] == "rater"
    for rater in ("ann", "bob"):
        assert public.post(url, data={"value": "up", "rater": rater}).status_code == 200
    second = public.post(url, data={"value": "down", "rater": "ann"})
    assert second.status_code == 409
    assert "ask for a new link" in second.json()["detail"]
    assert said(running) == [("ann", 1.0, ""), ("bob", 1.0, "")]
    assert public.post(link(), data={"value": "down", "rater": "ann"}).status_code == 200
    assert said(running) == [("ann", 0.0, ""), ("bob", 1.0, "")]


def test_an_answer_that_was_lost_can_be_asked_for_again(
    public: httpx.Client, link: Callable[..., str]
) -> None:
    url, word = link(rater="ann"), {"value": False, "comment": "wrong file"}
    first = public.post(url, json=word).json()
    assert public.post(url, json=word).json() == first
    assert first["revision"] == 1
    assert public.post(url, json=word | {"comment": "another"}).status_code == 409


def test_a_used_link_does_not_bring_back_what_was_withdrawn(
    running: Running, public: httpx.Client, link: Callable[..., str]
) -> None:
    url = link(rater="ann")
    given = public.post(url, json={"value": True}).json()
    running.http.delete(f"/v1/feedback/{given['id']}")
    assert public.post(url, json={"value": True}).json() == given
    assert said(running) == []


def test_a_link_pressed_many_times_at_once_has_one_answer(
    running: Running, link: Callable[..., str]
) -> None:
    url = link(rater="ann")

    def press(number: int) -> int:
        answer = httpx.post(url, data={"value": "up" if number % 2 else "down"}, timeout=30)
        return answer.status_code

    with ThreadPoolExecutor(16) as threads:
        statuses = list(threads.map(press, range(16)))
    assert sorted(statuses) == [200] * 8 + [409] * 8
    assert len(set(statuses[::2])) == 1
    assert len(said(running)) == 1


def test_the_answer_speaks_the_language_of_who_asks(
    public: httpx.Client, link: Callable[..., str]
) -> None:
    url = link(rater="ann")
    page = public.post(url, data={"value": "up"}, headers=BROWSER)
    assert "Recorded: up" in page.text
    assert public.post(url, data={"value": "up"}).text == "recorded: up\n"
    as_json = public.post(url, data={"value": "up"}, headers={"Accept": "application/json"})
    assert as_json.json()["revision"] == 1
    assert public.post(url, json={"value": "up"}).json() == as_json.json()
    refused = public.post(url, data={"value": "down"}, headers=BROWSER)
    assert refused.status_code == 409
    assert "<h1>Not possible now</h1>" in refused.text
    assert public.post(url, data={"value": "down"}).headers["content-type"] == (
        "application/problem+json"
    )


def test_curl_from_a_terminal_rates(running: Running, link: Callable[..., str]) -> None:
    curl = ["curl", "-sS", "-X", "POST", link(rater="ann"), "-d", "value=up"]
    done = subprocess.run(
        [*curl, "-d", "comment=잘했어요"], capture_output=True, check=True, text=True
    )
    assert done.stdout == "recorded: up\n"
    assert said(running) == [("ann", 1.0, "잘했어요")]


def test_numbers_and_words_can_be_said_in_a_form_too(
    running: Running, public: httpx.Client, link: Callable[..., str]
) -> None:
    for rater, value in {"a": "0.25", "b": "meh", "c": "nan"}.items():
        url = link(rater=rater, name="score")
        assert public.post(url, data={"value": value}).text == f"recorded: {value}\n"
    assert said(running) == [("a", 0.25, ""), ("b", None, ""), ("c", None, "")]


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (422, "application/json", b"{}"),
        (422, "application/json", b'{"value": NaN}'),
        (422, "application/json", b'{"value": true, "surprise": 1}'),
        (400, "application/json", b'{"value": "\\ud800"}'),
        (400, "application/json", b"[" * 100_000),
        (400, "application/json", b"\xff"),
        (422, "application/x-www-form-urlencoded", b""),
        (400, "application/x-www-form-urlencoded", b"value=%ff"),
        (400, "application/x-www-form-urlencoded", b"\xff"),
        (400, "application/x-www-form-urlencoded", b"&".join([b"a=1"] * 50)),
        (415, "multipart/form-data; boundary=x", b""),
        (413, "application/json", b" " * (1 << 21)),
    ],
)
def test_a_body_that_says_nothing_is_refused_by_name(
    public: httpx.Client, link: Callable[..., str], status: int, kind: str, body: bytes
) -> None:
    answer = public.post(link(rater="ann"), content=body, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_making_a_link_needs_a_key_and_right_fields(running: Running) -> None:
    assert httpx.post(f"{running.url}/v1/feedback/links", json={}).status_code == 401
    with running.with_scopes("analyst") as analyst:
        assert analyst.post("/v1/feedback/links", json={"target": TARGET}).status_code == 403
    for wrong in ({"expires_in_s": 0}, {"question": ""}, {"target": {"kind": "x", "id": "y"}}):
        body = {"target": TARGET} | wrong
        answer = running.http.post("/v1/feedback/links", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].startswith(next(iter(wrong)))


def test_a_link_lives_for_thirty_days_on_the_host_it_was_asked_from(running: Running) -> None:
    before = datetime.now(UTC)
    answer = running.http.post("/v1/feedback/links", json={"target": TARGET}).json()
    assert answer["url"].startswith(f"{running.url}/v1/feedback/links/")
    assert re.fullmatch(r"[A-Za-z0-9_-]{40,200}", answer["url"].rpartition("/")[2])
    age = datetime.fromisoformat(answer["expires_at"]) - before
    assert abs(age - timedelta(days=30)) < timedelta(minutes=1)


def test_a_link_of_another_server_or_with_one_changed_character_does_not_exist() -> None:
    links = Links(b"a" * 32)
    token, _ = links.make(WISH)
    assert links.read(token).rater == "ann@example.org"
    assert links.read(token).target.id == TARGET["id"]
    with pytest.raises(NotFound):
        Links(b"b" * 32).read(token)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for place, was in enumerate(token):
        # Also the last character, whose spare bits another letter may spell the same.
        for other in (alphabet[(alphabet.index(was) + 1) % 64], "!", "é", ""):
            with pytest.raises(NotFound):
                links.read(token[:place] + other + token[place + 1 :])
    for odd in ("", "A", token + "=", token + "A", " " + token, token[:20], "\ud800"):
        with pytest.raises(NotFound):
            links.read(odd)


def test_a_changed_target_under_the_old_signature_does_not_exist() -> None:
    links = Links(b"a" * 32)
    token, _ = links.make(WISH)
    data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    forged = data.replace(b"ann@", b"bob@")
    with pytest.raises(NotFound):
        links.read(base64.urlsafe_b64encode(forged).rstrip(b"=").decode())


def test_an_expired_link_says_so_from_its_second_on(running: Running, public: httpx.Client) -> None:
    now = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    token, expires_at = Links(b"a" * 32, lambda: now).make(
        LinkWish.model_validate({"target": TARGET, "expires_in_s": 60})
    )
    assert expires_at == datetime(2026, 2, 3, 4, 6, 6, tzinfo=UTC)
    just_before = expires_at - timedelta(microseconds=1)
    assert Links(b"a" * 32, lambda: just_before).read(token).expires_at == expires_at
    with pytest.raises(Expired, match="ask for a new one"):
        Links(b"a" * 32, lambda: expires_at).read(token)
    secret = secret_of(Path(running.server.ingest.settings.secret))
    old, _ = Links(secret, lambda: now).make(WISH)
    for answer in (
        public.get(f"{running.url}/v1/feedback/links/{old}", headers=BROWSER),
        public.post(f"{running.url}/v1/feedback/links/{old}", data={"value": "up"}),
    ):
        assert answer.status_code == 410
        assert "ask for a new one" in answer.text
    assert public.get(f"{running.url}/v1/feedback/links/{token}").status_code == 404


def test_two_links_are_never_the_same() -> None:
    links = Links(b"a" * 32, lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert len({links.make(WISH) for _ in range(100)}) == 100
