"""No secret reaches the log; everything else does, byte for byte.

Secrets are put together here, so that nobody's scanner takes this file for a leak.
"""

import base64
import hashlib
import json
import random
import string
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest._secrets import Secrets
from ingest.wire import Raw, read_one
from tests.facts import fact

_CHOICE = random.Random(20261130)
_LETTERS = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + "234567"


def chosen(length: int, alphabet: str = _LETTERS) -> str:
    """Random, with a digit, as every secret of that length has."""
    return "".join(_CHOICE.choices(alphabet, k=length - 1)) + "7"


_TOKEN = "gh" + "p_" + chosen(36)
_LINES = "\n".join(chosen(64) for _ in range(5))
_PEM = f"-----BEGIN RSA {'PRIVATE'} KEY-----\n{_LINES}\n-----END RSA {'PRIVATE'} KEY-----"
_JWT = "ey" + "J" + chosen(33) + ".ey" + "J" + chosen(90) + "." + chosen(43)

# (rule, text before the secret, secret, text after it)
SECRETS = [
    ("private_key", "", _PEM, "\n"),
    ("private_key", "", _PEM.replace("RSA", "OPENSSH"), ""),
    ("private_key", '"private_key": "', _PEM.replace("\n", "\\n"), '", "client_id": "1"'),
    ("private_key", "cut: ", _PEM[:200], "..."),
    ("private_key", "-", _PEM.replace("\n", "\n-"), ""),
    ("aws_access_key", "id=", "AK" + "IA" + chosen(16, _UPPER), ""),
    ("aws_access_key", "", "AS" + "IA" + chosen(16, _UPPER), " "),
    ("aws_secret_key", "aws_secret_access_key = ", chosen(38) + "/A", "\n"),
    ("aws_secret_key", '{"SecretAccessKey": "', chosen(38) + "+B", '"}'),
    ("github_token", "token: ", _TOKEN, ""),
    ("github_token", "https://x:", "gh" + "o_" + chosen(36), "@github.com/a/b"),
    ("github_token", "", "github" + "_pat_" + chosen(22) + "_" + chosen(59), "."),
    ("gitlab_token", "", "gl" + "pat-" + chosen(20), ""),
    ("slack_token", "", "xo" + "xb-123456789012-123456789012-" + chosen(24), ""),
    ("slack_webhook", "https://hooks.slack.com/services/", f"T0{chosen(8)}/B0{chosen(8)}/" + chosen(24), ""),
    ("stripe_key", "", "sk" + "_live_" + chosen(24), ""),
    ("stripe_key", "", "rk" + "_live_" + chosen(24), ""),
    ("anthropic_key", "", "sk-" + "ant-api03-" + chosen(93) + "-" + chosen(8), ""),
    ("openai_key", "", "sk-" + chosen(48), ""),
    ("openai_key", "", "sk-" + "proj-" + chosen(60) + "_" + chosen(60), ""),
    ("google_api_key", "key=", "AI" + "za" + chosen(35), "&x=1"),
    ("google_oauth_token", "", "GOC" + "SPX-" + chosen(28), ""),
    ("azure_key", "AccountName=a;AccountKey=", chosen(86) + "==", ";EndpointSuffix=x"),
    ("azure_client_secret", "", chosen(4) + "Q" + "~" + chosen(34), ""),
    ("npm_token", "//registry.npmjs.org/:_authToken=", "np" + "m_" + chosen(36), ""),
    ("pypi_token", "", "py" + "pi-AgEIcHlwaS5vcmc" + chosen(120), ""),
    ("huggingface_token", "", "h" + "f_" + chosen(34), ""),
    ("sendgrid_key", "", "S" + "G." + chosen(22) + "." + chosen(43), ""),
    ("twilio_key", "", "S" + "K" + chosen(32, _HEX), ""),
    ("telegram_token", "", "1234567890" + ":AA" + chosen(33), ""),
    ("discord_token", "", "M" + chosen(25) + "." + chosen(6) + "." + chosen(38), ""),
    ("jwt", "", _JWT, ""),
    ("thumbwheel_key", "THUMBWHEEL_KEY is ", "t" + "w_" + chosen(43), ""),
    ("url_password", "postgresql://bob:", "pass", "@db:5432/app"),
    ("url_password", "https://user:", chosen(20), "@host"),
    ("authorization", "Authorization: Bearer ", chosen(40), ""),
    ("authorization", "authorization: Basic ", chosen(24), ""),
    ("authorization", "curl -H 'Authorization: ", chosen(32), "' x"),
    ("generic_secret", 'password = "', "Tr0ub4dor&3", '"'),
    ("generic_secret", "api_key='", chosen(32, _HEX), "'"),
    ("generic_secret", 'client_secret: str = "', chosen(24), '"'),
    ("generic_secret", '{\\"token\\": \\"', chosen(24), '\\"}'),
    ("generic_secret", 'os.environ["DB_PASSWORD"] = "', chosen(16), '"'),
    ("generic_secret", "DB_PASSWORD=", "hunter2_" + chosen(8), "\nNEXT=1"),
    ("generic_secret", "login --password ", chosen(12), " --user bob"),
    ("generic_secret", "api-key: ", chosen(32), ""),
]  # fmt: skip

HARMLESS = [
    "the commit " + hashlib.sha1(b"x", usedforsecurity=False).hexdigest() + " broke it",
    f"request {UUID(int=3 << 100 | 12345)} failed",
    '"integrity": "sha512-' + base64.b64encode(hashlib.sha512(b"x").digest()).decode() + '"',
    'hash = "sha256:' + hashlib.sha256(b"x").hexdigest() + '"',
    "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(30_000)).decode(),
    "Enter your password: it must have 8 characters, and never share a secret or a token.",
    'os.environ["TOKEN"]',
    'token = os.environ["GITHUB_TOKEN_2"]',
    'api_key = "<your-api-key-1>"',
    'api_key="YOUR_API_KEY_123"',
    'token = getenv("TOKEN_12345")',
    "password: ${DB_PASSWORD_1}",
    "password = '{{ vault.password1 }}'",
    'password = "********"',
    'password = "aaaaaaa1"',
    "gh" + "p_" + "ab" * 18,
    'token: str = "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"',
    "AK" + "IAIOSFODNN7EXAMPLE",
    "postgres://user:<password>@host/db",
    "postgres://user:${PASSWORD}@host/db",
    "git clone git@github.com:a/b.git",
    "https://example.org:8443/a@b",
    "docker://nginx:1.25@sha256:" + hashlib.sha256(b"y").hexdigest(),
    "def get_token(password: str, secret: bytes) -> Token: ...",
    'secret_name = "database-password"',
    "next_token = tokenizer.decode(token_ids[0:12345678])",
    "bearer of bad-news-and-other-things, Basic authentication-and-authorization",
    "class='task-abcdefghijklmnopqrstuvwxyz'",
    '"max_tokens": 1234567890, "total_tokens": 12345678901',
    '[REDACTED:github_token] and password = "[REDACTED:generic_secret]"',
]  # fmt: skip


def raw(wire: dict[str, Any]) -> Raw:
    return read_one(json.dumps(wire).encode())


def tool_said(text: object, **changes: Any) -> dict[str, Any]:
    return fact("tool.called", data={"gen_ai.tool.call.result": text}, consent="code", **changes)


def refined(given: Raw) -> tuple[Raw, dict[str, int]]:
    secrets = Secrets()
    [kept] = secrets([given])
    return kept, dict(secrets.counts)


def result(kept: Raw) -> Any:
    return kept.value["data"]["gen_ai.tool.call.result"]


@pytest.mark.parametrize("around", ["{}", "first line\n{}", "{}\nlast", "\t{}\r\n", "é🎡 {} é🎡"])
@pytest.mark.parametrize(("rule", "before", "secret", "after"), SECRETS)
def test_a_secret_becomes_its_typed_placeholder(
    rule: str, before: str, secret: str, after: str, around: str
) -> None:
    start, end = around.split("{}")
    kept, counts = refined(raw(tool_said(f"{start}{before}{secret}{after}{end}")))
    assert result(kept) == f"{start}{before}[REDACTED:{rule}]{after}{end}"
    assert counts == {rule: 1}
    again, counts = refined(kept)
    assert (again.text, counts) == (kept.text, {}), "what is redacted stays so when sent again"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_is_kept(text: str) -> None:
    given = raw(tool_said(text))
    kept, counts = refined(given)
    assert (kept.text, kept.problem, counts) == (given.text, None, {})


@pytest.mark.parametrize(
    "hide",
    [
        json.dumps,
        lambda text: json.dumps(text).replace("/", "\\/"),
        lambda text: '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"',
        lambda text: json.dumps(text).replace("g", "\\u0067").replace("s", "\\u0073"),
    ],
)
@pytest.mark.parametrize(("rule", "before", "secret", "after"), SECRETS)
def test_json_escapes_hide_no_secret(
    hide: Any, rule: str, before: str, secret: str, after: str
) -> None:
    literal = hide(before + secret + after)
    text = json.dumps(tool_said("HERE")).replace('"HERE"', literal)
    kept, counts = refined(read_one(text.encode()))
    assert result(kept) == f"{before}[REDACTED:{rule}]{after}"
    assert counts == {rule: 1}


def test_only_the_secret_changes_in_the_text() -> None:
    text = (
        '{ "specversion":"1.0", "source": "/ext/a/b", "id":"1", "type":"x", "n": 1.0e+2,\n'
        '  "data": {"a\\u0062": "\\u00e9\\/\\ud83d \\ud83c\\udfa1 é🎡 gh'
        + _TOKEN[2:]
        + ' \\n end", "b": "\\u0041" } }'
    )
    kept, _ = refined(read_one(text.encode()))
    assert kept.text == text.replace(_TOKEN, "[REDACTED:github_token]")
    assert kept.value == json.loads(kept.text)


def test_a_secret_is_found_in_lists_objects_and_names() -> None:
    data = {
        "gen_ai.tool.call.arguments": {"env": [{"A": [f"x {_TOKEN}"]}, {_TOKEN: 1}]},
        "details": {"password": "hunter2abc", "Authorization": "Bearer " + chosen(30)},
    }
    kept, counts = refined(raw(fact("tool.called", data=data, consent="code")))
    assert kept.value["data"] == {
        "gen_ai.tool.call.arguments": {
            "env": [{"A": ["x [REDACTED:github_token]"]}, {"[REDACTED:github_token]": 1}]
        },
        "details": {
            "password": "[REDACTED:generic_secret]",
            "Authorization": "Bearer [REDACTED:authorization]",
        },
    }
    assert counts == {"github_token": 2, "generic_secret": 1, "authorization": 1}


def test_secrets_that_overlap_become_one_placeholder_of_the_surer_rule() -> None:
    kept, counts = refined(raw(tool_said(f'token = "{_TOKEN}", GITHUB_TOKEN={_TOKEN} ')))
    assert result(kept) == (
        'token = "[REDACTED:github_token]", GITHUB_TOKEN=[REDACTED:github_token] '
    )
    assert counts == {"github_token": 2}


def test_many_secrets_are_all_replaced() -> None:
    tokens = ["gh" + "p_" + chosen(36) for _ in range(500)]
    kept, counts = refined(raw(tool_said("\n".join(tokens))))
    assert result(kept) == "\n".join(["[REDACTED:github_token]"] * 500)
    assert counts == {"github_token": 500}


def test_metrics_facts_are_scanned_too() -> None:
    data = {"turn.id": "t1", "error.type": f"cannot push with {_TOKEN}"}
    kept, _ = refined(raw(fact("tool.called", data=data)))
    assert kept.value["data"]["error.type"] == "cannot push with [REDACTED:github_token]"


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("id", {"id": _TOKEN}),
        ("source", {"source": f"/ext/{_TOKEN}/s"}),
        ("user", {"user": _TOKEN}),
        ("subject", {"subject": _TOKEN}),
        ("partitionkey", {"partitionkey": f"c-{_TOKEN}"}),
        ("data.turn.id", {"data": {"turn.id": _TOKEN}}),
        ("data.gen_ai.conversation.id", {"data": {"gen_ai.conversation.id": _TOKEN}}),
        ("data.target.id", {"data": {"target": {"kind": "turn", "id": _TOKEN}}}),
        ("data.hunks.id", {"data": {"hunks": [{"id": "h"}, {"id": _TOKEN}]}}),
        ("data.diff.ids", {"data": {"diff.ids": ["d", _TOKEN]}}),
        ("event", {_TOKEN: 1}),
    ],
)
def test_a_secret_in_a_name_refuses_the_fact_and_says_where(
    field: str, changes: dict[str, Any]
) -> None:
    neighbour = raw(fact())
    secrets = Secrets()
    refused, kept = secrets([raw(fact(**changes)), neighbour])
    assert refused.problem is not None
    assert refused.problem.startswith(f"{field}: ")
    assert "github_token" in refused.problem
    assert _TOKEN not in refused.problem
    assert kept is neighbour
    assert secrets.counts == {"github_token": 1}


@given(st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_whatever_stands_around_a_secret_stays(before: str, after: str, escaped: bool) -> None:
    text = json.dumps(tool_said(f"{before} {_TOKEN} {after}"), ensure_ascii=escaped)
    kept, _ = refined(read_one(text.encode("utf-8", "replace")))
    start, end = text.encode("utf-8", "replace").decode().split(_TOKEN)
    assert kept.text == f"{start}[REDACTED:github_token]{end}"


def test_counts_add_up_over_threads() -> None:
    secrets = Secrets()
    batch = [raw(tool_said(_TOKEN)), raw(tool_said("x"))]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(secrets, [batch] * 200))
    assert secrets.counts == {"github_token": 200}


_NEAR_MISSES = [
    _TOKEN[:20] + " ", _TOKEN + " ", 'password = "aaaaaaa1" ', 'password="', "ab://u:p",
    "-----BEGIN RSA " + "PRIVATE KEY-----", "eyJaaaaaaaaaaaa.ey ", "M" + "b" * 24 + ".",
    "." + "a" * 6, "aws_secret_", "Bearer aaaaaaaaaaaaaaa1 ", "\u0000",
]  # fmt: skip


@pytest.mark.parametrize("unit", _NEAR_MISSES)
def test_near_misses_cost_time_in_proportion(unit: str) -> None:
    """Eight times the text takes less than sixteen times as long."""

    def seconds(size: int) -> float:
        given = raw(tool_said(unit * (size // len(unit)) + " " + _TOKEN))
        secrets, times = Secrets(), []
        for _ in range(3):
            start = time.thread_time()
            secrets([given])
            times.append(time.thread_time() - start)
        return min(times)

    assert seconds(1 << 19) <= 16 * seconds(1 << 16)
