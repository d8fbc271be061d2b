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
_DONE = b"data: [DONE]"


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
            return openai_error(error, headers)
        recording = Recording(context, choice, body)
        headers["x-thumbwheel-overhead-ms"] = f"{(time.perf_counter() - began) * 1000:.2f}"
        try:
            answer = await self._call(checkpoint, body)
        except httpx.HTTPError as error:
            recording.error_type = type(error).__name__
            await self._keep(recording)
            reason = EngineFailed(f"{choice.checkpoint}: {type(error).__name__}; try again")
            return openai_error(reason, headers)
        if body.get("stream") and answer.is_success:
            chunks = self._stream(answer, recording, wants_usage=_wants_usage(body))
            return StreamingResponse(chunks, media_type="text/event-stream", headers=headers)
        return await self._whole(answer, recording, headers)

    def _choose(
        self, body: Mapping[str, Any], context: Context, headers: dict[str, str]
    ) -> tuple[Choice, Checkpoint]:
        choice = choose(
            body["model"],
            Caller(context.user, context.organization),
            running=self.experiments.running(),
            aliases=self.checkpoints.aliases(),
        )
        headers["x-thumbwheel-checkpoint"] = choice.checkpoint
        if choice.exposure:
            assignment = choice.exposure.assignment
            headers["x-thumbwheel-assignment-id"] = assignment.assignment_id
            headers["x-thumbwheel-experiment"] = assignment.experiment
            headers["x-thumbwheel-variant"] = assignment.variant
        checkpoint = self.checkpoints.get(choice.checkpoint)
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
        if body.get("stream"):
            payload["stream_options"] = {
                **(body.get("stream_options") or {}),
                "include_usage": True,
            }
        headers = {"Authorization": f"Bearer {engine.api_key}"} if engine.api_key else {}
        url = str(engine.url).rstrip("/") + "/chat/completions"
        request = self.http.build_request(
            "POST", url, json=payload, headers=headers, timeout=engine.timeout_s
        )
        return await self.http.send(request, stream=True)

    async def _whole(
        self, answer: httpx.Response, recording: Recording, headers: dict[str, str]
    ) -> Response:
        try:
            text = await answer.aread()
        except httpx.HTTPError as error:
            recording.error_type = type(error).__name__
            await self._keep(recording)
            return openai_error(EngineFailed("the engine broke off its answer; try again"), headers)
        finally:
            await answer.aclose()
        decoded = _decoded(text)
        if answer.is_success and decoded is not None:
            recording.whole(decoded)
            recording.outcome = "ok"
        else:
            recording.error_type = str(answer.status_code)
        await self._keep(recording)
        kind = answer.headers.get("content-type", "application/json")
        return Response(text, answer.status_code, headers, kind)

    async def _stream(
        self, answer: httpx.Response, recording: Recording, *, wants_usage: bool
    ) -> AsyncIterator[bytes]:
        """The engine's events as they come; recorded however it ends."""
        recording.outcome = "cancelled"
        try:
            async for line in answer.aiter_lines():
                chunk = _decoded(line[5:].encode()) if line.startswith("data:") else None
                if chunk is not None:
                    recording.chunk(chunk)
                    if not wants_usage and not chunk.get("choices") and chunk.get("usage"):
                        continue
                if line:
                    yield f"{line}\n\n".encode()
                if line.encode() == _DONE:
                    recording.outcome = "ok"
            if recording.finished:
                recording.outcome = "ok"
            elif recording.outcome == "cancelled":
                recording.outcome, recording.error_type = "error", "incomplete"
                yield _broken("the engine ended its stream early; try again")
        except httpx.HTTPError as error:
            recording.outcome, recording.error_type = "error", type(error).__name__
            yield _broken("the engine broke off its stream; try again")
        finally:
            # A client that hangs up cancels this task; what it got is recorded all the same.
            with anyio.CancelScope(shield=True):
                await answer.aclose()
                await self._keep(recording)

    async def _keep(self, recording: Recording) -> None:
        try:
            await run_in_threadpool(self.intake.take_own, recording.fact())
        except Unavailable as error:
            # The answer is out already: it must not fail for its record, but this must be seen.
            log.error("%s not recorded: %s", recording.context.completion, error)  # noqa: TRY400


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


def _broken(message: str) -> bytes:
    error = {"message": message, "type": "api_error", "param": None, "code": "EngineFailed"}
    return f"data: {json.dumps({'error': error})}\n\n".encode()


def _decoded(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))
