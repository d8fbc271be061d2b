"""What is attacked: all in one process, and the parts apart on Kafka and a ClickHouse server."""

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.control import open_control
from ingest.keys import SCOPES, Keys
from tests.chaos.members import Member
from tests.clickhouse import ClickHouse
from tests.ingest.brokers import Broker, apache_kafka, free_port

DAY_S = 86_400
_DISK = "512m"
NEARLY_FULL_BYTES = 48 << 20


@dataclass
class Clock:
    """Moves the wall clock of the processes that are started with its environment."""

    library: Path
    file: Path

    @classmethod
    def build(cls, folder: Path) -> "Clock | None":
        """None where there is no C compiler."""
        if shutil.which("cc") is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        clock = cls(folder / "clock.so", folder / "clock")
        source = Path(__file__).parent / "clock.c"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", str(clock.library), str(source)], check=True
        )
        clock.file.write_bytes(struct.pack("<q", 0))
        return clock

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self.library), "CHAOS_CLOCK": str(self.file)}

    def stands_at(self, seconds: int) -> None:
        with self.file.open("r+b") as file:
            file.write(struct.pack("<q", seconds))


@dataclass
class Embedded:
    """`thumbwheel up`."""

    data: Path
    server: Member
    clock: Clock | None
    own_disk: bool
    """The data folder is a small disk of its own, which can be filled."""

    @classmethod
    def on(cls, folder: Path, *, own_disk: bool) -> "Embedded":
        data, port = folder / "data", free_port()
        data.mkdir(parents=True)
        mounted = own_disk and _mount(data)
        clock = Clock.build(folder / "clock")
        server = Member(
            "server",
            ["thumbwheel", "up", "--data", str(data), "--port", str(port)],
            folder / "server.out",
            f"http://127.0.0.1:{port}",
            clock.environment if clock else {},
        )
        return cls(data, server, clock, mounted)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def key(self) -> str:
        return (self.data / "key").read_text().strip()

    @property
    def members(self) -> Sequence[Member]:
        return [self.server]

    def start(self) -> None:
        self.server.start()

    def tables(self) -> Sequence[Path]:
        """Folders of those that drains fill; the ones that have parts, if any."""
        found = (self.data / "store" / "store").glob("*/*/deduplication_logs")
        tables = [each.parent for each in sorted(found)]
        return [each for each in tables if any(each.glob("all_*"))] or tables

    def fill_disk(self, *, left: int = 0) -> None:
        """So many bytes are left, less than a block of a file if none."""
        with (self.data / "ballast").open("ab", buffering=0) as ballast:
            while (free := shutil.disk_usage(self.data).free) > left:
                ballast.write(bytes(min(free - left, 1 << 20)))

    def free_disk(self) -> None:
        (self.data / "ballast").unlink(missing_ok=True)

    def store_at_rest(self) -> ClickHouse:
        """Its store, which it has left, behind the test server: another reader of the same files."""
        return ClickHouse(self.data / "store", free_port())

    def end(self) -> None:
        self.server.kill()
        if self.own_disk:
            subprocess.run(["umount", "--lazy", str(self.data)], check=True)


def _mount(folder: Path) -> bool:
    """A small disk is mounted there; False where this user must not."""
    if shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass
class Grown:
    """`python -m ingest api`, two of `python -m ingest drain`, Apache Kafka, a ClickHouse server."""

    api: Member
    drains: Sequence[Member]
    broker: Broker
    clickhouse: ClickHouse
    key: str

    @classmethod
    def on(cls, folder: Path, kafka_home: Path) -> "Grown":
        folder.mkdir(parents=True)
        broker = apache_kafka(kafka_home, folder)
        clickhouse = ClickHouse(folder / "clickhouse", free_port())
        control = f"sqlite:///{folder / 'control.db'}"
        engine = open_control(control)
        _, key = Keys(engine).create(SCOPES)
        engine.dispose()

        def member(name: str, half: str, *more: str, url: str = "") -> Member:
            places = {
                "data": str(folder / name),
                "log": f"kafka://{broker.server}/chaos",
                "store": clickhouse.dsn,
                "control": control,
            }
            options = [part for where, at in places.items() for part in (f"--{where}", at)]
            return Member(name, ["ingest", half, *options, *more], folder / f"{name}.out", url)

        port = free_port()
        api = member("api", "api", "--port", str(port), url=f"http://127.0.0.1:{port}")
        drains = [member(f"drain-{number}", "drain") for number in range(2)]
        return cls(api, drains, broker, clickhouse, key)

    @property
    def url(self) -> str:
        return self.api.url

    @property
    def members(self) -> Sequence[Member]:
        return [self.api, *self.drains]

    def start(self) -> None:
        self.broker.start()
        self.clickhouse.start()
        self.api.start()
        for drain in self.drains:
            drain.start()

    def store_at_rest(self) -> ClickHouse:
        return self.clickhouse

    def end(self) -> None:
        for member in self.members:
            member.kill()
        self.clickhouse.stop()
        self.broker.stop()
