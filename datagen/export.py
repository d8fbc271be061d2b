"""Training sets: TRL's conversational rows as JSONL and Parquet, with a manifest."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from datagen.traces import Answer, Filter, Judgement, answers, judgements
from ingest.control import utc_now
from ingest.store import Store

Format = Literal["sft", "kto"]
FORMATS: tuple[Format, ...] = ("sft", "kto")
JSONL, PARQUET, MANIFEST = "data.jsonl", "data.parquet", "manifest.json"

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Dataset:
    """What was written, and the manifest that describes it."""

    folder: Path
    manifest: Mapping[str, Any]


def export(
    store: Store,
    format: Format,
    chosen: Filter,
    folder: Path,
    *,
    progress: Progress = lambda _: None,
) -> Dataset:
    """The set is in `folder`; the same facts give the same bytes and so the same digest.

    sft: `messages` of every answer whose label is desirable.
    kto: `prompt`, `completion`, `label` of every answer that has a label.
    Rows stand in the order of a hash, so that labels are mixed as KTO's batches need them.

    Raises: Unavailable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    skipped: Counter[str] = Counter()
    rows = sorted(_rows(store, format, chosen, skipped, progress), key=lambda row: _sha(row["id"]))
    lines = [json.dumps(row, ensure_ascii=True) for row in rows]
    (folder / JSONL).write_text("".join(f"{line}\n" for line in lines))
    _write_parquet(rows, format, folder / PARQUET)
    files = [_file(folder / name) for name in (JSONL, PARQUET)]
    manifest = {
        "format": format,
        "digest": files[0]["sha256"],
        "rows": len(rows),
        "labels": _labels(rows),
        "signals": dict(Counter(row["signal"] for row in rows)),
        "origins": dict(Counter(row["origin"] for row in rows)),
        "simulated_rows": sum(row["simulated"] for row in rows),
        "skipped": dict(skipped),
        "consent": "training",
        "filter": {k: str(v) for k, v in asdict(chosen).items() if v is not None},
        "files": files,
        "created_at": utc_now(),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return Dataset(folder, manifest)


def _rows(
    store: Store,
    format: Format,
    chosen: Filter,
    skipped: Counter[str],
    progress: Progress,
) -> Iterator[dict[str, Any]]:
    known = judgements(store)
    for number, answer in enumerate(answers(store, chosen), start=1):
        progress(number)
        row = _row(answer, known, format, skipped)
        if row is not None:
            yield row


def _row(
    answer: Answer,
    known: Mapping[Any, Judgement],
    format: Format,
    skipped: Counter[str],
) -> dict[str, Any] | None:
    judgement = known.get(("completion", answer.id), Judgement())
    if answer.turn:
        judgement += known.get(("turn", answer.turn), Judgement())
    label = judgement.label()
    if label is None:
        skipped["thumbs disagree" if judgement.ups else "no signal"] += 1
        return None
    if not all(_is_text(message) for message in (*answer.prompt, answer.completion)):
        skipped["content is not text"] += 1
        return None
    desirable, signal, evidence = label
    if format == "sft" and not desirable:
        skipped["undesirable"] += 1
        return None
    lineage = {
        "id": answer.id,
        "conversation": answer.conversation,
        "origin": answer.origin,
        "checkpoint": answer.checkpoint,
        "signal": signal,
        "evidence": sorted(evidence),
        "facts": list(answer.facts),
        "simulated": answer.simulated,
    }
    if format == "sft":
        return {"messages": [*answer.prompt, answer.completion]} | lineage
    return {
        "prompt": list(answer.prompt),
        "completion": [answer.completion],
        "label": desirable,
    } | lineage


def _is_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, str) or (content is None and bool(message.get("tool_calls")))


def _labels(rows: list[dict[str, Any]]) -> dict[str, int]:
    desirable = sum(row.get("label", True) for row in rows)
    return {"desirable": desirable, "undesirable": len(rows) - desirable}


def _write_parquet(rows: list[dict[str, Any]], format: Format, path: Path) -> None:
    """With the full schema even where there is no row, so that a reader never has to guess."""
    table = pa.Table.from_pylist(rows) if rows else pa.Table.from_pylist([], _SCHEMAS[format])
    pq.write_table(table, path, compression="zstd")


_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_LINEAGE = [
    ("id", pa.string()),
    ("conversation", pa.string()),
    ("origin", pa.string()),
    ("checkpoint", pa.string()),
    ("signal", pa.string()),
    ("evidence", pa.list_(pa.string())),
    ("facts", pa.list_(pa.string())),
    ("simulated", pa.bool_()),
]
_SCHEMAS = {
    "sft": pa.schema([("messages", _MESSAGES), *_LINEAGE]),
    "kto": pa.schema(
        [("prompt", _MESSAGES), ("completion", _MESSAGES), ("label", pa.bool_()), *_LINEAGE]
    ),
}


def _file(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
