"""The demo's traffic while its server dies at random moments, and the same facts undisturbed."""

import asyncio
import json
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ingest._packed import unpack
from ingest.log import open_log
from thumbwheel.client import Api
from thumbwheel.demo import EXPERIMENT, audit, set_up, wait_until_stored
from thumbwheel.demo.engine import scripted_engine, serving
from thumbwheel.demo.population import Population
from thumbwheel.demo.process import ServerProcess, free_port
from thumbwheel.demo.traffic import Traffic

_OF_THE_HOUR = {"newest_fact", "age_hours", "running_days"}
"""What a report says of its time, and not of the facts."""


@dataclass(frozen=True)
class Outcome:
    kills: int
    acknowledged: int
    lost: int
    doubled: int
    retries: int
    disturbed: dict[str, Any]
    """What the report says after the kills."""
    undisturbed: dict[str, Any]
    """What it says of the same facts, sent once to a server that nobody killed."""


def traffic_with_kills(folder: Path, *, developers: int, kills: int, seed: int) -> Outcome:
    """Kills come while requests are under way; between them 0.2 to 1.5 s of service."""
    population = Population(seed, developers)
    server = ServerProcess(folder / "disturbed", free_port())
    draw, over, done = Random(seed), threading.Event(), []

    def killer() -> None:
        for _ in range(kills):
            if over.wait(draw.uniform(0.2, 1.5)):
                return
            server.kill()
            server.start()
            done.append(1)

    with serving(scripted_engine(dict(population.behaviour.right))) as engine:
        server.start()
        with Api.connect(server.url, server.key).http as http:
            set_up(Api(server.url, http), population, engine)
        traffic = Traffic(population, server.url, server.key)
        thread = threading.Thread(target=killer)
        thread.start()
        asyncio.run(traffic.run())
        over.set()
        thread.join()
    found, disturbed = _read(server, traffic.ledger.acknowledged)
    return Outcome(
        kills=len(done),
        acknowledged=len(traffic.ledger.acknowledged),
        lost=found["missing"],
        doubled=found["repeated"],
        retries=traffic.ledger.retries,
        disturbed=disturbed,
        undisturbed=_undisturbed(folder, server.data),
    )


def _read(
    server: ServerProcess, facts: list[tuple[str, str]]
) -> tuple[dict[str, int], dict[str, Any]]:
    api = Api.connect(server.url, server.key)
    with api.http:
        wait_until_stored(api)
        found = audit(api, facts) if facts else {}
        report = api.get(f"/v1/experiments/{EXPERIMENT}/report")
    server.stop()
    return found, _numbers(report)


def _undisturbed(folder: Path, disturbed: Path) -> dict[str, Any]:
    fresh = ServerProcess(folder / "undisturbed", free_port())
    fresh.data.mkdir(parents=True)
    for name in ("key", *(path.name for path in disturbed.glob("control.db*"))):
        shutil.copy(disturbed / name, fresh.data / name)
    fresh.start()
    api = Api.connect(fresh.url, fresh.key)
    with api.http:
        for receipt in api.send_events(iter(_facts(disturbed / "log.db"))):
            assert receipt["rejected"] == 0, receipt
    return _read(fresh, [])[1]


def _facts(log_file: Path) -> list[dict[str, Any]]:
    """Every fact of the log, in its order, as a client would send it."""
    log = open_log(f"sqlite:///{log_file}")
    consumer = log.consumer("a reader of everything")
    facts: list[dict[str, Any]] = []
    while records := consumer.poll(max_records=1000, max_bytes=1 << 26, timeout_s=0.1):
        facts += [
            json.loads(fact.text) for record in records for fact in unpack(record.value).facts()
        ]
        consumer.commit()
    consumer.close()
    log.close()
    return facts


def _numbers(report: dict[str, Any]) -> dict[str, Any]:
    """All of the report but when it was made."""
    health = {k: v for k, v in report["health"].items() if k not in _OF_THE_HOUR}
    return {"health": health, "metrics": report["metrics"], "decision": report["decision"]}
