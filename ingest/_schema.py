"""The statements that make the tables, on one server or on a cluster."""

import re
from collections.abc import Iterator
from importlib.resources import files

from ingest.errors import BadInput

CONSENTS = ("metrics", "code", "training")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_TABLE = re.compile(
    r"^CREATE TABLE (\w+)(.*?)^ENGINE = (\w*)MergeTree(?:\((\w*)\))?(.*)", re.DOTALL | re.MULTILINE
)
_ALTER = re.compile(r"^ALTER TABLE (\w+) ")
_VIEW = re.compile(r"^CREATE (OR REPLACE )?VIEW (\w+) ")
_FILLED = re.compile(r"^CREATE MATERIALIZED VIEW (\w+) TO (\w+)(.*)\bFROM (\w+)\b", re.DOTALL)
_FILL = re.compile(r"^INSERT INTO (\w+)(.*)\bFROM (\w+)\b", re.DOTALL)
_SHARD = "cityHash64(source, id)"


def migrations() -> Iterator[tuple[str, list[str]]]:
    """Name and statements of each numbered file, in order."""
    folder = files("ingest") / "migrations"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            parts = (part.strip() for part in file.read_text().split(";\n"))
            yield file.name, [part for part in parts if part]


def on_cluster(statement: str, cluster: str) -> list[str]:
    """What the statement is on a cluster: replicated tables `…_local`, and one over all shards.

    A fact's shard is that of its (source, id), so duplicates still meet. An empty cluster gives the
    statement as it is. Raises: BadInput for a cluster that is no name.
    """
    if not cluster:
        return [statement]
    if not _NAME.fullmatch(cluster):
        raise BadInput.of("cluster", f"{cluster!r} is not a name: use letters, digits and _")
    code = "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
    where = f"ON CLUSTER {cluster}"
    if found := _TABLE.match(code):
        return _table(found, cluster)
    if found := _ALTER.match(code):
        change = code[found.end() :]
        local = f"ALTER TABLE {found[1]}_local {where} {change}"
        # A Distributed table has columns, but no settings, indices or rows of its own.
        columns = re.match(r"(ADD|DROP|MODIFY|RENAME|COMMENT) COLUMN ", change)
        return [local, f"ALTER TABLE {found[1]} {where} {change}"] if columns else [local]
    if found := _VIEW.match(code):
        return [code.replace(found[0], f"CREATE {found[1] or ''}VIEW {found[2]} {where} ", 1)]
    if found := _FILLED.match(code):
        body = f"{found[3]}FROM {found[4]}_local{code[found.end() :]}"
        return [f"CREATE MATERIALIZED VIEW {found[1]} {where} TO {found[2]}_local{body}"]
    if found := _FILL.match(code):
        return [code]
    raise ValueError(f"no form for a cluster: {code[:60]}")


def _table(found: re.Match[str], cluster: str) -> list[str]:
    name, columns, kind, version, rest = found.groups()
    where = f"ON CLUSTER {cluster}"
    path = "'/clickhouse/tables/{shard}/{database}/" + f"{name}_local', '{{replica}}'"
    engine = f"Replicated{kind}MergeTree({path}{', ' + version if version else ''})"
    rest = rest.replace("non_replicated_deduplication_window", "replicated_deduplication_window")
    shard = _SHARD if "source" in columns else "rand()" if kind == "" else "cityHash64(position)"
    over_all = f"Distributed({cluster}, currentDatabase(), {name}_local, {shard})"
    return [
        f"CREATE TABLE {name}_local {where}{columns}ENGINE = {engine}{rest}",
        f"CREATE TABLE {name} {where} AS {name}_local ENGINE = {over_all}",
    ]


def lifetimes(keep: str) -> str:
    """The TTL clause that `metrics=730,code=90` (days by consent) asks for; "" for none.

    Raises: BadInput naming the part that is not understood.
    """
    rules = []
    for part in filter(None, (part.strip() for part in keep.split(","))):
        consent, _, days = part.partition("=")
        if consent not in CONSENTS or not days.isdecimal() or not 1 <= int(days) <= 36_500:
            raise BadInput.of("keep", f"{part!r} is not metrics|code|training=DAYS")
        rules.append(
            f"toDateTime(received_at) + toIntervalDay({days}) DELETE WHERE consent = '{consent}'"
        )
    return ", ".join(rules)
