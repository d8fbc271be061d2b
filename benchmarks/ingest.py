"""The intake against its limits and its peers, in one run: `python -m benchmarks.ingest [--long]`.

Every figure stands beside the limit or the rival that was measured in the same run; the absolute
ones say what this machine is, and nothing more. Each server has a process of its own.
"""

import argparse
import asyncio
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks import endurance, spans
from benchmarks.doors import door, whole_server
from benchmarks.drains import rates
from benchmarks.freshness import delays_s, quantile
from benchmarks.load import flood
from tests.ingest.brokers import apache_kafka

SECONDS = 6
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--long", action="store_true", help="memory and start-up too; 15 minutes")
    parser.add_argument("--phoenix", type=Path, help="a Python that has arize-phoenix installed")
    parser.add_argument("--kafka-home", type=Path, help="a folder with Apache Kafka and `broker`")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
          f"load {os.getloadavg()[0]:.1f} at the start")  # fmt: skip
    accepting(given.kafka_home)
    draining()
    fresh()
    survival(given.phoenix)
    if given.long:
        lasting()


def accepting(kafka_home: Path | None) -> None:
    """Accepted and durable events a second: the best of interleaved rounds of each kind."""
    print("\nAccepted and durable over HTTP, one process, batches of 50 events of 600 bytes")
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, _kafka(kafka_home, Path(name)) as kafka:
        kinds = {"without log and store": "nothing", "local log, fsynced": "local"}
        if kafka:
            kinds["Apache Kafka, acks=all"] = f"kafka://{kafka}/bench"
        for number in range(ROUNDS):
            for label, kind in kinds.items():
                folder = Path(name) / f"{kind[:5]}-{number}"
                url = f"sqlite:///{folder}/log.db" if kind == "local" else kind
                with door(url, folder) as server:
                    tally = asyncio.run(flood(server.port, server.key, SECONDS))
                best[label] = max(best.get(label, 0), tally.accepted / SECONDS)
    limit = best["without log and store"]
    for label, rate in best.items():
        print(f"  {label:28s}{rate:10,.0f} events/s   {rate / limit:.2f} of the limit")


@contextmanager
def _kafka(home: Path | None, folder: Path) -> Iterator[str | None]:
    if home is None:
        print("  (Apache Kafka not measured: --kafka-home FOLDER)")
        yield None
        return
    broker = apache_kafka(home, folder)
    broker.start()
    yield broker.server
    broker.stop()


def draining() -> None:
    drained, bare = rates()
    print("\nFrom log to store, 50,000 rows")
    print(f"  bare insert of the same rows{bare:10,.0f} rows/s")
    print(f"  drain                       {drained:10,.0f} rows/s   {drained / bare:.2f} of it")


def fresh() -> None:
    """At half of what the whole server takes while it drains."""
    with tempfile.TemporaryDirectory() as name, whole_server(Path(name) / "data") as server:
        tally = asyncio.run(flood(server.port, server.key, SECONDS))
        rate = tally.accepted / SECONDS / 2
        asyncio.run(delays_s(server, 50, 8))  # until the drain has caught up
        delays = asyncio.run(delays_s(server, rate, 15))
    print(f"\nClient's send to queryable, whole server at half its rate ({rate:,.0f} events/s)")
    print(f"  p50 {quantile(delays, 0.5):.2f} s   p99 {quantile(delays, 0.99):.2f} s   "
          f"of {len(delays)} batches")  # fmt: skip


def survival(python: Path | None) -> None:
    print(f"\nOTLP, {spans.SECONDS} s of the same spans from 4 clients, then kill -9")
    with tempfile.TemporaryDirectory() as name:
        found = {"Thumbwheel, at once": spans.ours(Path(name))}
        if python:
            for rest_s in (0, 30):
                folder = Path(name) / f"phoenix-{rest_s}"
                folder.mkdir()
                found[f"Phoenix, {rest_s} s later"] = spans.phoenix(python, folder, rest_s=rest_s)
        else:
            print("  (Phoenix not measured: --phoenix PYTHON of a venv with arize-phoenix)")
    for label, each in found.items():
        share = each.survived / max(1, each.acknowledged)
        print(f"  {label:24s}{each.acknowledged / spans.SECONDS:8,.0f} spans/s acknowledged, "
              f"{each.refused:,} refused; {each.survived:,} of {each.acknowledged:,} acknowledged "
              f"survived ({share:.1%})")  # fmt: skip


def lasting() -> None:
    parts = endurance.memory()
    medians = [median(part) for part in parts]
    print(f"\nResident memory over {endurance.EVENTS:,} events, MiB, median of each twentieth")
    print("  " + " ".join(f"{each:.0f}" for each in medians))
    settled = medians[len(medians) // 4 :]
    middle = sum(settled) / len(settled)
    spread = max(abs(each - middle) for each in settled) / middle
    print(f"  after the first quarter within {spread:.1%} of their mean; "
          f"most at any moment {max(map(max, parts)):.0f}")  # fmt: skip
    starts = endurance.starts_s()
    print(f"\nStart with {endurance.STORED:,} stored events, median of {len(starts)}: "
          f"{median(starts):.1f} s ({min(starts):.1f} to {max(starts):.1f})")  # fmt: skip


if __name__ == "__main__":
    main()
