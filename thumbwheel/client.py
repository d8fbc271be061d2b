"""The command line's only door: the server's own HTTP interface."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from ingest.errors import ThumbwheelError

_MAX_EVENTS = 1_000
_MAX_BYTES = 4 << 20
_TRIES = 8


class ServerSays(ThumbwheelError):
    """The server's refusal, or that there is none; the text says what to do."""


def find_key(environment: Mapping[str, str], data: Path) -> str:
    """THUMBWHEEL_KEY, else the key file of the data folder. Raises: ServerSays."""
    if key := environment.get("THUMBWHEEL_KEY"):
        return key
    try:
        return (data / "key").read_text().strip()
    except OSError as error:
        raise ServerSays(
            f"no key: set THUMBWHEEL_KEY, or run where {data}/key is (made by `thumbwheel up`)"
        ) from error


@dataclass
class Api:
    """Requests to one server. Raises ServerSays for every answer that is no success."""

    url: str
    http: httpx.Client

    @classmethod
    def connect(cls, url: str, key: str) -> Self:
        headers = {"Authorization": f"Bearer {key}"}
        return cls(url, httpx.Client(base_url=url, headers=headers, timeout=60))

    def get(self, path: str, **query: str | None) -> Any:  # noqa: ANN401 - JSON
        return self._send("GET", path, params={k: v for k, v in query.items() if v is not None})

    def post(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        return self._send("POST", path, json=body)

    def delete(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self._send("DELETE", path)

    def send_events(self, events: Iterator[Mapping[str, Any] | str]) -> Iterator[dict[str, Any]]:
        """The receipt of each batch, sent again while the server asks to wait."""
        for batch in _batches(events):
            for attempt in range(_TRIES):
                try:
                    answer = self._send("POST", "/v1/events", content=batch, headers=_JSON)
                except ServerSays as error:
                    if error.retry_after_s is None or attempt + 1 == _TRIES:
                        raise
                    time.sleep(error.retry_after_s)
                else:
                    yield answer
                    break

    def download(self, path: str, to: Path) -> None:
        with self.http.stream("GET", path) as answer:
            if not answer.is_success:
                answer.read()
                raise _refusal(answer)
            with to.open("wb") as file:
                for chunk in answer.iter_bytes():
                    file.write(chunk)

    def close(self) -> None:
        self.http.close()

    def _send(self, method: str, path: str, **given: Any) -> Any:  # noqa: ANN401 - as httpx has it
        try:
            answer = self.http.request(method, path, **given)
        except httpx.TransportError as error:
            raise ServerSays(
                f"no server answers at {self.url} ({type(error).__name__}); start one with "
                "`thumbwheel up`, or set THUMBWHEEL_URL"
            ) from error
        if not answer.is_success:
            raise _refusal(answer)
        return answer.json() if answer.content else None


_JSON = {"Content-Type": "application/cloudevents-batch+json"}


def _batches(events: Iterator[Mapping[str, Any] | str]) -> Iterator[bytes]:
    texts: list[str] = []
    size = 0
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event)
        if texts and (len(texts) == _MAX_EVENTS or size + len(text) > _MAX_BYTES):
            yield _array(texts)
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    if texts:
        yield _array(texts)


def _array(texts: Sequence[str]) -> bytes:
    return f"[{','.join(texts)}]".encode()


def _refusal(answer: httpx.Response) -> ServerSays:
    try:
        body = answer.json()
    except ValueError:
        body = {}
    error = ServerSays(f"{body.get('title', 'Refused')} ({answer.status_code}): "
                       f"{body.get('detail', answer.text[:200])}")  # fmt: skip
    if wait := answer.headers.get("Retry-After"):
        error.retry_after_s = int(wait)
    return error
