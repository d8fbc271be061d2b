"""The settings of one process, read once where it starts; everything else receives values."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from ingest.errors import BadInput

WEB_EDITORS = (
    "https://vscode.dev https://insiders.vscode.dev https://github.dev https://*.vscode-cdn.net"
)


@dataclass(frozen=True)
class Settings:
    """Where things are, and how much is allowed. The defaults need no service at all."""

    data: Path = Path(".thumbwheel")
    host: str = "127.0.0.1"
    port: int = 8420
    log: str = ""
    """`sqlite:///…` or `kafka://host:port/topic`."""
    store: str = ""
    """`chdb:///…` or `clickhouse://user:secret@host:port`."""
    control: str = ""
    """`sqlite:///…` or `postgresql+psycopg://…`."""
    blobs: str = ""
    """Where values over 1 MiB go: any fsspec url, for instance `file:///…` or `s3://bucket/prefix`."""
    cluster: str = ""
    """The ClickHouse cluster whose servers hold the tables; empty for one server or the engine."""
    keep: str = ""
    """Days that facts are kept, by consent: `metrics=730,code=90`; for ever where it names none."""
    secret: str = ""
    """File of the secret that signs feedback links; made on first start."""
    pseudonyms: str = ""
    """File of the key that turns users into pseudonyms; without one, users are kept as sent."""
    origins: str = WEB_EDITORS
    """Web pages that may call this server, separated by spaces; `*` stands for one subdomain."""
    metrics: str = ""
    """A folder of the analysts' own metric files, read once at the start."""
    rate: int = 1000
    """Requests a second that one key may make, unless the key says otherwise."""
    ask_share: float = 0.01
    """The share of turns whose developer is asked for a rating."""

    @classmethod
    def of(cls, environment: Mapping[str, str], **given: object) -> Self:
        """Given values win over the environment: THUMBWHEEL_ and the field's name in capitals.

        Raises: BadInput naming the variable whose value is no number.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            name = f"THUMBWHEEL_{field.name.upper()}"
            text = given.get(field.name) or environment.get(name)
            kind: Any = type(field.default)
            try:
                values[field.name] = kind(str(text)) if text else field.default
            except ValueError as error:
                raise BadInput.of(name, f"{text!r} is not a number") from error
        data = values["data"] = values["data"].absolute()
        values["log"] = values["log"] or f"sqlite:///{data / 'log.db'}"
        values["store"] = values["store"] or f"chdb://{data / 'store'}"
        values["control"] = values["control"] or f"sqlite:///{data / 'control.db'}"
        values["blobs"] = values["blobs"] or f"file://{data / 'blobs'}"
        values["secret"] = values["secret"] or str(data / "secret")
        return cls(**values)
