"""The whole server on a real socket, as tests meet it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import uvicorn
from fastapi import FastAPI

from thumbwheel.server import Server


@contextmanager
def on_a_socket(app: FastAPI) -> Iterator[str]:
    """The app's url on a free loopback port."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@dataclass(frozen=True)
class Running:
    """All rooms, served; `http` carries a key with every scope."""

    server: Server
    http: httpx.Client
    url: str

    def with_scopes(self, *scopes: str) -> httpx.Client:
        _, secret = self.server.ingest.keys.create(scopes)
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {secret}"})

    def until_stored(self) -> None:
        """Everything acknowledged so far is queryable."""
        for _ in range(500):
            if self.server.ingest.log.lag("store") == 0:
                return
            threading.Event().wait(0.02)
        raise TimeoutError("the drain does not come to an end")
