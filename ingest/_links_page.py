"""The page behind a feedback link: nothing from elsewhere, no script, readable by any reader."""

import base64
import hashlib
from html import escape
from string import Template

from fastapi.responses import HTMLResponse

from ingest._links import Link

_STYLE = (
    "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem;"
    "color-scheme:light dark}"
    "button,input,textarea{font:inherit;padding:.6rem 1rem;box-sizing:border-box}"
    "input,textarea{display:block;width:100%;margin:.3rem 0 1rem}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex, nofollow",
}
_PAGE = Template(
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><title>$title</title>'
    f"<style>{_STYLE}</style></head><body><main><h1>$title</h1>$body</main></body></html>"
)
# The first button of a form is the one that Enter presses: it must not be a vote.
_FORM = Template(
    '<form method="post"><button disabled hidden></button>$rater'
    '<label>Comment (optional)<textarea name="comment" rows="4" maxlength="10000"></textarea></label>'
    '<p><button name="value" value="up">👍 Yes</button> '
    '<button name="value" value="down">👎 No</button></p></form>'
)
_RATER = (
    "<label>Your name or e-mail address"
    '<input name="rater" autocomplete="email" maxlength="800" required></label>'
)
_QUESTIONS = {
    "completion": "Was this answer helpful?",
    "turn": "Was this answer helpful?",
    "diff": "Was this edit helpful?",
}


def asking(link: Link) -> HTMLResponse:
    """The question with two buttons; showing it records nothing."""
    form = _FORM.substitute(rater="" if link.rater else _RATER)
    return _page(link.question or _QUESTIONS[link.target.kind], form)


def saying(title: str, text: str, *, status: int = 200) -> HTMLResponse:
    """A page with one sentence."""
    return _page(title, f"<p>{escape(text)}</p>", status=status)


def _page(title: str, body: str, *, status: int = 200) -> HTMLResponse:
    return HTMLResponse(
        _PAGE.substitute(title=escape(title), body=body), status_code=status, headers=_HEADERS
    )
