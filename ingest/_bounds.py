"""No route reads a larger body than the server takes, also where the framework reads it."""

from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Bounds:
    """ASGI middleware: a body is refused as soon as it is larger than `most` bytes."""

    app: ASGIApp
    most: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.most:
                # Of all errors, this kind alone is not mistaken for bad JSON on its way out.
                raise HTTPException(413, "Too large")
            return message

        await self.app(scope, bounded, send)
