"""One request: assign, choose, call the engine, stream its answer, record what happened."""

import json
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse

from experiments.registry import Experiments
from ingest.errors import ThumbwheelError, Unavailable
from ingest.intake import Intake
from serving._record import Context, Recording, exposed
from serving.checkpoints import Checkpoint, Checkpoints
from serving.route import Caller, Choice, choose

log = logging.getLogger(__name__)

_REMEMBERED_EXPOSURES = 100_000
OVERHEAD = "x-thumbwheel-overhead-ms"


class EngineFailed(Unavailable):
    """The checkpoint's engine did not answer."""

    status, title = 502, "Engine unavailable"


@dataclass
class Gateway:
    """Serves completions. An answer begins only after its exposure is durable."""

    checkpoints: Checkpoints
    experiments: Experiments
    intake: Intake
    http: httpx.AsyncClient
    _exposed: OrderedDict[str, None] = field(default_factory=OrderedDict, init=False)

    async def complete(self, body: dict[str, Any], context: Context, *, began: float) -> Response:
        """The engine's answer, or an error in its shape; headers say who answered and why."""
        headers = {"x-thumbwheel-completion-id": context.completion}
        try:
            choice, checkpoint = await run_in_threadpool(self._choose, body, context, headers)
        except ThumbwheelError as error:
            return openai_error(error, {**headers, OVERHEAD: overhead(began)})
        recording = Recording(context, choice, body)
        headers[OVERHEAD] = overhead(began)
        try:
            answer = await self._call(checkpoint, body)
        except httpx.HTTPError as error:
            recording.failed(type(error).__name__)
            await self._keep(recording)
            reason = EngineFailed(f"{choice.checkpoint}: {type(error).__name__}; try again")
            return openai_error(reason, headers)
        if body.get("stream") and answer.is_success and not _is_json(answer):
            chunks = self._stream(answer, recording, wants_usage=_wants_usage(body))
            return StreamingResponse(chunks, media_type="text/event-stream", headers=headers)
        return await self._whole(answer, recording, headers)

    def _choose(
        self, body: Mapping[str, Any], context: Context, headers: dict[str, str]
    ) -> tuple[Choice, Checkpoint]:
        choice = choose(
            body["model"],
            Caller(context.user, context.organization, context.attributes),
            running=self.experiments.running(),
            aliases=self.checkpoints.aliases(),
            sticky=self.experiments.sticky,
        )
        if choice.exposure:
            assignment = choice.exposure.assignment
            headers["x-thumbwheel-assignment-id"] = assignment.assignment_id
            headers["x-thumbwheel-experiment"] = assignment.experiment
            headers["x-thumbwheel-variant"] = assignment.variant
        checkpoint = self.checkpoints.get(choice.checkpoint)
        # Only now: a name that nobody registered may hold what no header can.
        headers["x-thumbwheel-checkpoint"] = checkpoint.id
        self._expose(context, choice)
        return choice, checkpoint

    def _expose(self, context: Context, choice: Choice) -> None:
        fact = exposed(context, choice)
        if fact is None or fact["id"] in self._exposed:
            return
        self.intake.take_own(fact)
        self._exposed[fact["id"]] = None
        while len(self._exposed) > _REMEMBERED_EXPOSURES:
            self._exposed.popitem(last=False)

    async def _call(self, checkpoint: Checkpoint, body: Mapping[str, Any]) -> httpx.Response:
        engine = checkpoint.engine
        payload = {**body, "model": engine.model or checkpoint.id}
        options = body.get("stream_options") or {}
        if body.get("stream") and isinstance(options, Mapping):
            payload["stream_options"] = {**options, "include_usage": True}
        headers = {"Content-Type": "application/json"}
        if engine.api_key:
            headers["Authorization"] = f"Bearer {engine.api_key}"
        base, mark, query = str(engine.url).partition("?")
        url = f"{base.rstrip('/')}/chat/completions{mark}{query}"
        # As ASCII: half an emoji in a message has no UTF-8, but it has an escape.
        content = json.dumps(payload, separators=(",", ":")).encode()
        request = self.http.build_request(
            "POST", url, content=content, headers=headers, timeout=engine.timeout_s
        )
        return await self.http.send(request, stream=True)

    async def _whole(
        self, answer: httpx.Response, recording: Recording, headers: dict[str, str]
    ) -> Response:
        try:
            text = await answer.aread()
        except httpx.HTTPError as error:
            recording.failed(type(error).__name__)
            await self._keep(recording)
            return openai_error(EngineFailed("the engine broke off its answer; try again"), headers)
        finally:
            await answer.aclose()
        decoded = _decoded(text)
        if not answer.is_success:
            recording.failed(str(answer.status_code))
        elif decoded is None:
            recording.failed("unreadable")
        else:
            recording.outcome = "ok"
            recording.whole(decoded)
        await self._keep(recording)
        if "retry-after" in answer.headers:
            headers["Retry-After"] = answer.headers["retry-after"]
        kind = answer.headers.get("content-type", "application/json")
        return Response(text, answer.status_code, headers, kind)

    async def _stream(
        self, answer: httpx.Response, recording: Recording, *, wants_usage: bool
    ) -> AsyncIterator[bytes]:
        """The engine's bytes as they come; recorded however it ends."""
        recording.outcome = "cancelled"
        try:
            async for lines in _lines(answer):
                for line in lines:
                    _hear(line, recording)
                shown = lines if wants_usage else [each for each in lines if not _is_usage(each)]
                if shown:
                    yield b"".join(shown)
            if recording.outcome == "cancelled" and recording.finished:
                recording.outcome = "ok"
            if recording.outcome == "cancelled":
                recording.failed("incomplete")
                yield _broken("the engine ended its stream early; try again")
        except httpx.HTTPError as error:
            if recording.outcome != "ok":
                recording.failed(type(error).__name__)
                yield _broken("the engine broke off its stream; try again")
        finally:
            # A client that hangs up cancels this task; what it got is recorded all the same.
            with anyio.CancelScope(shield=True):
                await answer.aclose()
                await self._keep(recording)

    async def _keep(self, recording: Recording) -> None:
        try:
            await run_in_threadpool(lambda: self.intake.take_own(recording.fact()))
        except (ThumbwheelError, ValueError) as error:
            # The answer is out already: it must not fail for its record, but this must be seen.
            log.error("%s not recorded: %s", recording.context.completion, error)  # noqa: TRY400


def overhead(began: float) -> str:
    """Milliseconds since `began` on the performance counter, as the header has them."""
    return f"{(time.perf_counter() - began) * 1000:.2f}"


def openai_error(error: ThumbwheelError, headers: Mapping[str, str]) -> JSONResponse:
    """The error as OpenAI clients expect it."""
    kind = "invalid_request_error" if error.status < 500 else "api_error"
    field_name = error.errors[0].field if error.errors else None
    body = {
        "message": error.detail,
        "type": kind,
        "param": field_name,
        "code": type(error).__name__,
    }
    retry = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else {}
    return JSONResponse({"error": body}, error.status, {**headers, **retry})


async def _lines(answer: httpx.Response) -> AsyncIterator[list[bytes]]:
    """Whole lines with their ends, as many as came at once.

    Only a line feed ends one: U+2028 and its like are text, although `splitlines` cuts there.
    """
    rest = b""
    async for data in answer.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line + b"\n" for line in lines]
    if rest:
        yield [rest]


def _hear(line: bytes, recording: Recording) -> None:
    if not line.startswith(b"data:"):
        return
    if line[5:].strip() == b"[DONE]":
        if recording.outcome == "cancelled":
            recording.outcome = "ok"
    elif (chunk := _decoded(line[5:])) is not None:
        recording.chunk(chunk)


def _is_usage(line: bytes) -> bool:
    """A chunk that says nothing but what the answer cost."""
    if not line.startswith(b"data:") or b'"usage"' not in line:
        return False
    chunk = _decoded(line[5:])
    return bool(chunk and not chunk.get("choices") and isinstance(chunk.get("usage"), Mapping))


def _is_json(answer: httpx.Response) -> bool:
    return "json" in answer.headers.get("content-type", "")


def _broken(message: str) -> bytes:
    error = {"message": message, "type": "api_error", "param": None, "code": "EngineFailed"}
    # The engine may have stopped within an event: an empty line ends it.
    return f"\n\ndata: {json.dumps({'error': error})}\n\n".encode()


def _decoded(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))
