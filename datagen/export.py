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
    messages = [_plain(message) for message in (*answer.prompt, answer.completion)]
    if not all(messages):
        skipped["content is not text"] += 1
        return None
    *prompt, completion = messages
    if not prompt or prompt[-1]["role"] == "assistant":
        skipped["what was asked is not known"] += 1
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
        return {"messages": messages} | lineage
    return {"prompt": prompt, "completion": [completion], "label": desirable} | lineage


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a trainer can render of a message: its texts and tool calls. Empty where it is no text."""
    content, calls = message.get("content"), message.get("tool_calls") or []
    plain = {name: text for name, text in message.items() if isinstance(text, str)}
    if "role" not in plain or not (isinstance(content, str) or (content is None and calls)):
        return {}
    if not all(_is_call(call) for call in calls):
        return {}
    return plain | {"content": content} | ({"tool_calls": calls} if calls else {})


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(call, dict)
        and call.keys() == {"id", "type", "function"}
        and isinstance(function, dict)
        and function.keys() == {"name", "arguments"}
        and all(isinstance(text, str) for text in (call["id"], call["type"], *function.values()))
    )


def _labels(rows: list[dict[str, Any]]) -> dict[str, int]:
    desirable = sum(row.get("label", True) for row in rows)
    return {"desirable": desirable, "undesirable": len(rows) - desirable}


def _write_parquet(rows: list[dict[str, Any]], format: Format, path: Path) -> None:
    """With the full schema even where there is no row, so that a reader never has to guess."""
    columns = ("messages",) if format == "sft" else ("prompt", "completion")
    names = {name for row in rows for column in columns for each in row[column] for name in each}
    kinds: list[tuple[str, Any]] = [
        (name, _CALLS if name == "tool_calls" else pa.string())
        for name in ("role", "content", *sorted(names - {"role", "content"}))
    ]
    talk = pa.list_(pa.struct(kinds))
    label = [("label", pa.bool_())] if format == "kto" else []
    schema = pa.schema([*((column, talk) for column in columns), *label, *_LINEAGE])
    pq.write_table(pa.Table.from_pylist(rows, schema), path, compression="zstd")


_FUNCTION = pa.struct([("name", pa.string()), ("arguments", pa.string())])
_CALLS = pa.list_(pa.struct([("id", pa.string()), ("type", pa.string()), ("function", _FUNCTION)]))
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


def _file(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
