"""A scripted checkpoint behind a real socket: OpenAI's chat completions, streamed or not."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect

from thumbwheel.demo.population import answer


def scripted_engine(chances: dict[str, float]) -> FastAPI:
    """Answers as the model that the request names."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Response:
        try:
            body = await request.json()
        except ClientDisconnect:
            return Response(status_code=499)  # nobody is left to read it
        model = body["model"]
        text = answer(model, str(body["messages"][-1]["content"]), chances[model])
        if body.get("stream"):
            return StreamingResponse(_events(model, text), media_type="text/event-stream")
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        return JSONResponse(_frame(model, "chat.completion", [choice]) | {"usage": _usage(text)})

    return app


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """The app's base url on a free loopback port, in a thread of this process."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False)
    )
    thread = threading.Thread(target=server.run, name="scripted engine")
    thread.start()
    try:
        while not server.started:
            threading.Event().wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()


async def _events(model: str, text: str) -> AsyncIterator[str]:
    pieces = [text[at : at + 24] for at in range(0, len(text), 24)]
    for piece in pieces:
        delta = {
            "index": 0,
            "delta": {"role": "assistant", "content": piece},
            "finish_reason": None,
        }
        yield _event(_frame(model, "chat.completion.chunk", [delta]))
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    yield _event(_frame(model, "chat.completion.chunk", [end]))
    yield _event(_frame(model, "chat.completion.chunk", []) | {"usage": _usage(text)})
    yield "data: [DONE]\n\n"


def _frame(model: str, kind: str, choices: list[Any]) -> dict[str, Any]:
    return {"id": "scripted", "object": kind, "model": model, "choices": choices}


def _usage(text: str) -> dict[str, int]:
    words = len(text.split())
    return {"prompt_tokens": 12, "completion_tokens": words, "total_tokens": 12 + words}


def _event(frame: dict[str, Any]) -> str:
    return f"data: {json.dumps(frame)}\n\n"
