"""`thumbwheel up`: serve, and stop cleanly when asked to."""

import socket

from ingest.app import configure_logging
from ingest.app import serve as run
from ingest.errors import Conflict
from ingest.settings import Settings
from thumbwheel.server import Server


def up(settings: Settings) -> int:
    """Serves until SIGTERM or ^C; 0 after a clean stop. Raises: Conflict, Unavailable."""
    configure_logging()
    _check_port(settings)
    with Server.open(settings) as server:
        key = server.first_key()
        url = f"http://{settings.host}:{settings.port}"
        print(f"Thumbwheel serves {url} from {settings.data}", flush=True)
        if key:
            print(
                f"A key with every scope, shown once and kept in {settings.data / 'key'}:\n  {key}"
            )
            print(f"Console: {url}/#key={key}", flush=True)
        run(server.app(), settings)
    return 0


def _check_port(settings: Settings) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise Conflict(
                f"{settings.host}:{settings.port} is taken ({error.strerror}); choose another --port"
            ) from error
