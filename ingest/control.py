"""Control data (keys, feedback revisions, experiments, checkpoints): SQLite, or PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateColumn

from ingest.errors import BadInput, Unavailable

METADATA = MetaData()
"""Every room hangs its tables here; `open_control` creates the missing ones, and adds the missing
columns that may be empty. Another kind of change needs a table of another name."""


def open_control(url: str) -> Engine:
    """The control database with all tables and columns; what is in it stays as it is.

    Args:
        url: `sqlite:///folder/control.db` or `postgresql+psycopg://…`.

    Raises: BadInput for another url, Unavailable when it does not answer.
    """
    try:
        dialect = make_url(url).get_backend_name()
        engine = create_engine(url, pool_pre_ping=dialect != "sqlite")
    except ArgumentError as error:
        raise BadInput.of("control", "expected sqlite:///path or postgresql+psycopg://…") from error
    if dialect == "sqlite":
        _begin_immediate(engine)
    with writing(engine) as connection:
        if dialect == "postgresql":
            # As on SQLite, where the transaction itself does it: one process at a time.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(8420)")
        METADATA.create_all(connection)
        _add_columns(connection)
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection that sees what is committed and never waits for a writer."""
    with (
        _boundary(),
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction, alone among writers; committed at the end, undone by any error."""
    with _boundary(), engine.begin() as connection:
        yield connection


def utc_now() -> str:
    """ISO 8601 in UTC, sortable as text."""
    return datetime.now(UTC).isoformat()


def _add_columns(connection: Connection) -> None:
    """A folder of an older version gets the columns that came since; its rows hold nothing there."""
    dialect, looks = connection.dialect, inspect(connection)
    for table in METADATA.sorted_tables:
        there = {column["name"] for column in looks.get_columns(table.name)}
        for column in table.columns:
            if column.name not in there and column.nullable:
                name = dialect.identifier_preparer.format_table(table)
                said = CreateColumn(column).compile(dialect=dialect)
                connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {said}")


def _begin_immediate(engine: Engine) -> None:
    """SQLite takes the write lock at BEGIN, so that read-then-write cannot fail half-way."""

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 10000")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def _boundary() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise Unavailable(f"control database: {getattr(error, 'orig', error)}") from error
