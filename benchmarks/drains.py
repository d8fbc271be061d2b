"""How fast the drain fills the store, beside a bare insert of the same rows by the same client."""

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import clickhouse_connect

from benchmarks.load import batch
from ingest._rows import COLUMNS, rows_of
from ingest.app import settle
from ingest.drain import GROUP, MAX_BYTES, MAX_RECORDS, Drain
from ingest.intake import FactId, Intake
from ingest.log import open_log
from ingest.store import Store
from ingest.wire import split_batch

_ROWS = 50_000
_ROUNDS = 5


class _Unasked:
    def known(self, ids: Sequence[FactId]) -> set[FactId]:
        return set(ids[:0])


def rates() -> tuple[float, float]:
    """Rows a second by the drain and by the bare insert: the best of interleaved rounds."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"chdb://{folder}/store")
        bare = clickhouse_connect.get_client(dsn=f"chdb://{folder}/store", database="thumbwheel")
        log = open_log(f"sqlite:///{Path(folder) / 'log.db'}")
        intake, consumer = Intake(log, _Unasked()), log.consumer(GROUP)
        drain = Drain(consumer, store)
        settle()  # as every server of ours does
        drained: list[float] = []
        inserted: list[float] = []
        for _ in range(_ROUNDS):
            _fill(intake)
            rows = _rows(consumer.poll(max_records=MAX_RECORDS, max_bytes=MAX_BYTES, timeout_s=0))
            consumer.rewind()
            gc.collect()
            began = time.perf_counter()
            while drain.step(timeout_s=0):
                pass
            drained.append(_ROWS / (time.perf_counter() - began))
            began = time.perf_counter()
            bare.insert("events", rows, column_names=COLUMNS)
            inserted.append(len(rows) / (time.perf_counter() - began))
        consumer.close()
        log.close()
        store.close()
        return max(drained), max(inserted)


def _fill(intake: Intake) -> None:
    taken = 0
    while taken < _ROWS:
        taken += intake.take(split_batch(batch()[1])).count("accepted")


def _rows(records: Sequence[Any]) -> list[list[Any]]:
    """The rows that the drain will make, under other ids."""
    rows = zip(*rows_of(records).events, strict=True)
    return [[row[0], str(uuid4()), *row[2:]] for row in rows]
