"""The settings of one process, read once where it starts; everything else receives values."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Settings:
    """Where things are. The defaults need no service at all."""

    data: Path = Path(".thumbwheel")
    host: str = "127.0.0.1"
    port: int = 8420
    log: str = ""
    """`sqlite:///…` or `kafka://host:port/topic`."""
    store: str = ""
    """`chdb:///…` or `clickhouse://user:secret@host:port`."""
    control: str = ""
    """`sqlite:///…` or `postgresql+psycopg://…`."""

    @classmethod
    def of(cls, environment: Mapping[str, str], **given: object) -> Self:
        """Given values win over THUMBWHEEL_DATA, _HOST, _PORT, _LOG, _STORE and _CONTROL."""
        values = {
            name: given.get(name) or environment.get(f"THUMBWHEEL_{name.upper()}")
            for name in ("data", "host", "port", "log", "store", "control")
        }
        data = Path(str(values["data"] or cls.data)).absolute()
        return cls(
            data=data,
            host=str(values["host"] or cls.host),
            port=int(str(values["port"] or cls.port)),
            log=str(values["log"] or f"sqlite:///{data / 'log.db'}"),
            store=str(values["store"] or f"chdb://{data / 'store'}"),
            control=str(values["control"] or f"sqlite:///{data / 'control.db'}"),
        )
