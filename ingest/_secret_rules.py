r"""What credentials look like. RE2 only: it matches in linear time, whatever a client sends.

Formats are those that issuers publish. A pattern sees the bytes of a decoded string; its group 1 is
the secret, and every match holds one of its words in any case. A clue is what no match can be
without, in the JSON text before it is decoded. There quotes are escaped and a line's end is the two
characters `\n`, so clues have no word boundaries; `_ESCAPED` stands for hidden letters.
"""

from typing import NamedTuple

import re2

OPTIONS = re2.Options()
OPTIONS.encoding = re2.Options.Encoding.LATIN1
OPTIONS.max_mem = 64 << 20
"""For states; when they are used up, matching gets slower and never wrong."""


class Form(NamedTuple):
    id: str
    words: str
    pattern: str
    clue: str = ""
    """Of those without one, `_ASSIGNED` is the clue."""
    plain: bool = False
    """Whether a plain word counts too."""


_W = "[A-Za-z0-9_-]"
_END = r"(?:[^A-Za-z0-9_-]|\z)"
_KEY_BEGINS = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_ENDS = r"-{5,6}END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_HEADERS = r"(?:(?:\s|\\+[nr]){1,4}[A-Za-z-]{4,12}: [^\n\\]{0,80}){0,4}"

SURE = (
    # A key cut short counts too; a diff puts a dash before each line.
    Form("private_key", "private", rf"({_KEY_BEGINS}{_KEY_HEADERS}"
         rf"(?:[A-Za-z0-9+/=\s\\]|-[A-Za-z0-9+/]){{40,}}(?:{_KEY_ENDS})?)", "PRIVATE KEY"),
    Form("aws_access_key", "akia asia abia acca", r"\b((?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})\b",
         "A(?:KI|SI|BI|CC)A[A-Z0-9]{16}"),
    Form("github_token", "gh github_pat_",
         r"\b(gh[opsur]_[A-Za-z0-9_]{30,}|github_pat_[A-Za-z0-9_]{40,})",
         "gh[opsur]_[A-Za-z0-9_]{30}|github_pat_"),
    Form("gitlab_token", "gl",
         rf"\b(gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-{_W}{{20,}})",
         rf"gl[a-z]{{2,5}}-{_W}{{20}}"),
    Form("slack_token", "xox xapp-", r"\b(x(?:ox[abceoprs]|app)-[A-Za-z0-9-]{20,})",
         "x(?:ox[a-z]|app)-[A-Za-z0-9-]{20}"),
    Form("slack_webhook", "hooks.slack.com",
         r"hooks\.slack\.com/(?:services|triggers|workflows)/([A-Za-z0-9+/]{30,})",
         r"hooks\.slack\.com/"),
    Form("stripe_key", "sk_ rk_ whsec_",
         r"\b([rs]k_(?:live|prod|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,}={0,2})",
         "[rs]k_(?:live|prod|test)_|whsec_"),
    Form("anthropic_key", "sk-ant-", rf"\b(sk-ant-{_W}{{20,}})", "sk-ant-"),
    Form("openrouter_key", "sk-or-", r"\b(sk-or-v1-[0-9a-f]{32,})", "sk-or-v1-"),
    Form("openai_key", "sk-",
         rf"\b(sk-(?:admin|None|proj|svcacct)-{_W}{{20,}}|sk-[A-Za-z0-9]{{20,}})",
         "sk-(?:admin|None|proj|svcacct)-|sk-[A-Za-z0-9]{20}"),
    Form("google_api_key", "aiza", rf"\b(AIza{_W}{{35}}){_END}", f"AIza{_W}{{35}}"),
    Form("google_oauth_token", "gocspx- ya29. 1//0",
         rf"\b(GOCSPX-{_W}{{20,}}|ya29\.{_W}{{20,}}|1//0{_W}{{30,}})",
         rf"GOCSPX-|ya29\.|1//0{_W}{{30}}"),
    Form("azure_key", "accountkey sharedaccesskey sharedsecret",
         r"(?i:AccountKey|SharedAccessKey|SharedSecret)=([A-Za-z0-9+/]{40,}={1,2})",
         "(?i:AccountKey|SharedAccessKey|SharedSecret)="),
    Form("azure_client_secret", "q~",
         r"(?:[^\w~.-]|\A)([\w~.-]{3}[0-9]Q~[\w~.-]{31,34})(?:[^\w~.-]|\z)",
         r"[0-9]Q~[\w~.-]{31}"),
    Form("npm_token", "npm_", r"\b(npm_[A-Za-z0-9]{36})\b", "npm_[A-Za-z0-9]{36}"),
    Form("pypi_token", "pypi-", rf"\b(pypi-AgE{_W}{{40,}})", "pypi-AgE"),
    Form("huggingface_token", "hf_ api_org_", r"\b((?:hf|api_org)_[A-Za-z0-9]{30,})\b",
         "(?:hf|api_org)_[A-Za-z0-9]{30}"),
    Form("sendgrid_key", "sg.", rf"\b(SG\.{_W}{{16,32}}\.{_W}{{32,64}})",
         rf"SG\.{_W}{{16,32}}\."),
    Form("twilio_key", "sk", r"\b(SK[0-9a-f]{32})\b", "SK[0-9a-f]{32}"),
    Form("telegram_token", ":aa", rf"\b([0-9]{{8,10}}:AA{_W}{{32,35}}){_END}",
         f"[0-9]:AA{_W}{{32}}"),
    Form("discord_token", ".", rf"(?:[^\w-]|\A)([MNO]{_W}{{23,27}}\.{_W}{{6}}\.{_W}{{27,}})",
         rf"\.{_W}{{6}}\.{_W}{{27}}"),
    Form("discord_webhook", "/api/webhooks/",
         rf"discord(?:app)?\.com/api/webhooks/([0-9]{{16,20}}/{_W}{{60,}})",
         r"discord(?:app)?\.com/api/webhooks/"),
    Form("digitalocean_token", "_v1_", r"\b(do[opr]_v1_[0-9a-f]{64})\b", "do[opr]_v1_"),
    Form("databricks_token", "dapi", r"\b(dapi[0-9a-f]{32})(?:-[0-9])?\b", "dapi[0-9a-f]{32}"),
    Form("groq_key", "gsk_", r"\b(gsk_[A-Za-z0-9]{40,})\b", "gsk_[A-Za-z0-9]{40}"),
    Form("xai_key", "xai-", r"\b(xai-[A-Za-z0-9]{60,})\b", "xai-[A-Za-z0-9]{60}"),
    Form("shopify_token", "shp", r"\b(shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32})\b",
         "shp(?:at|ca|pa|ss)_"),
    Form("grafana_token", "glc_ glsa_", r"\b(gl(?:c|sa)_[A-Za-z0-9+/_]{32,}={0,2})",
         "gl(?:c|sa)_[A-Za-z0-9+/_]{32}"),
    Form("vault_token", "hv", rf"\b(hv[bs]\.{_W}{{24,}})", rf"hv[bs]\.{_W}{{24}}"),
    Form("docker_token", "dckr_", rf"\b(dckr_[op]at_{_W}{{20,}})", "dckr_[op]at_"),
    Form("atlassian_token", "atatt3", r"\b(ATATT3[A-Za-z0-9_=-]{60,})", "ATATT3"),
    Form("linear_key", "lin_", r"\b(lin_(?:api|oauth)_[A-Za-z0-9]{32,})\b", "lin_(?:api|oauth)_"),
    Form("notion_token", "ntn_", r"\b(ntn_[A-Za-z0-9]{40,})\b", "ntn_[A-Za-z0-9]{40}"),
    Form("age_key", "age-secret", r"\b(AGE-SECRET-KEY-1[0-9A-Z]{58})\b", "AGE-SECRET-KEY-1"),
    Form("thumbwheel_key", "tw_", rf"\b(tw_{_W}{{43}}){_END}", f"tw_{_W}{{43}}"),
    Form("jwt", "eyj", rf"\b(eyJ{_W}{{8,}}\.eyJ{_W}{{8,}}\.{_W}*)", rf"eyJ{_W}{{8,}}\.eyJ"),
)  # fmt: skip
"""Known by their own form."""

_NAMED = (
    "(?i:pass(?:wd|word|phrase)|pwd|secret|token|credential"
    "|(?:api|access|account|auth|encryption|master|private|secret|shared|signing)[_-]?key)"
    "(?i:s|_?(?:base|value|b64)|_?[0-9])?"
)
_NAMES = "pass pwd secret token credential key"
_QUOTE = r"\\*[\"'`]"
_BARE = r"[^\s\"'`\\$;&|<>(){},\[\]]{8,}"
_IS = r"(?:=>|:=|==?|:(?:\s{0,2}[A-Za-z][\w\[\]| ]{0,24}\s?=)?)"

GUESSED = (
    Form("authorization", "authorization bearer basic",
         r"(?i:\bauthorization\\*[\"']?\s{0,4}[:=,]\s{0,4}(?:\\*[\"'])?(?:[a-z]{1,10}\s{1,4})?"
         r"|\b(?:bearer|basic)\s{1,4})([A-Za-z0-9._~+/-]{16,}={0,2})",
         r"(?i:authorization[^A-Za-z]|(?:bearer|basic)(?:\s|\\[nrt]){1,4}[A-Za-z0-9._~+/-]{16})"),
    Form("url_password", "://",
         # What follows an image's tag, `@sha256:`, is no host.
         r"[A-Za-z0-9+.-]{2}://[^\s/:@\"'`<>\\]{0,200}:([^\s/@\"'`<>\\]{3,200})"
         r"@(?:[^s\s]|s[^h\s]|sh[^a\s]|sha[^2\s])",
         r"://[^\s/:@\"'`<>]{0,200}:[^\s/@\"'`<>]{3,200}@", plain=True),
    Form("aws_secret_key", "aws secret access",
         r"(?i:aws|secret|access)[\w.-]{0,24}\\*[\"'`]?\]?\s{0,8}(?:=>|:=|[=:,])\s{0,8}"
         r"\\*[\"'`]?([A-Za-z0-9+/]{40})(?:[^A-Za-z0-9+/=]|\z)"),
    Form("generic_secret", _NAMES, rf"{_NAMED}\\*[\"'`]?\]?\s{{0,8}}{_IS}\s{{0,8}}[bfruBFRU]{{0,2}}"
         rf"{_QUOTE}([^\s\"'`\\]{{8,}}){_QUOTE}"),
    # Without quotes: as .env files and command lines have it; elsewhere only what names nothing.
    Form("generic_secret", _NAMES, r"(?:PASS(?:WD|WORD|PHRASE)|PWD|SECRET|TOKEN|CREDENTIAL|KEY)S?"
         rf"(?:_?BASE|_?VALUE|_?B64|_?[0-9])?=({_BARE})(?:[\s;&|]|\z)"),
    Form("generic_secret", "--", rf"--[a-z-]{{0,20}}{_NAMED}(?:=|\s{{1,4}})({_BARE})",
         r"--[a-z-]{0,20}(?:pass|pwd|secret|token|credential|key)[a-z0-9_-]{0,8}(?:=|\s|\\[nrt])"),
    Form("generic_secret", _NAMES, rf"{_NAMED}\s{{0,4}}[:=]\s{{0,4}}([A-Za-z0-9+/=~-]{{16,}})"
         r"(?:[\s,;]|\z)"),
)  # fmt: skip
"""Known by the name beside them: what looks like a word or a placeholder is let through."""

TELLING = rf"(?i:aws|authorization)|{_NAMED}\z"
"""The name of a JSON field whose value is read as assigned to it."""

_GAP = r"(?:\s|\\[nrt]){0,8}"
_ANY = r"(?:[^\s\"'`\\]|\\u[0-9A-Fa-f]{4})"
_ASSIGNED = (
    rf"{_NAMED}(?:\\*[\"'`])?\]?{_GAP}{_IS}{_GAP}(?:[bfruBFRU]{{0,2}}{_QUOTE}{_ANY}{{8}}|{_BARE})"
    rf"|KEYS?(?:_?BASE|_?VALUE|_?B64|_?[0-9])?={_BARE}"
    r"|(?i:aws|secret|access)[\w.-]{0,24}(?:\\*[\"'`])?\]?"
    rf"{_GAP}(?:=>|:=|[=:,]){_GAP}(?:{_QUOTE})?[A-Za-z0-9+/]{{40}}"
)
_ESCAPED = r"\\/|\\u00[2-7]"

CLUE = "|".join([*(form.clue for form in (*SURE, *GUESSED) if form.clue), _ASSIGNED, _ESCAPED])
"""Finds every JSON text that may hold a secret, and few others."""
PLACEHOLDER = (
    r"(?i)<|\$\{|\{\{|\{[a-z_.]+\}|%[(s{]|\*{3}|x{5}|\.{3}|\A\[redacted|environ|get_?env|process\.env"
    r"|(?:\A|[^a-z])(?:your|my|example|sample|dummy|fake|placeholder|changeme|insert|todo)(?:[^a-z]|\z)"
)
EMPTY_FORM = r"(?i:[_-]your[_-]|EXAMPLE\z|(?:x{6}|0{12}|\*{3}))"
"""Has the form of a secret and is none: what manuals print."""
