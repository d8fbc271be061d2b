"""A table of any origin as columns: what an analyst has in a file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ingest.errors import BadInput

Floats = NDArray[np.float64]
_CONVERT = pa.csv.ConvertOptions(strings_can_be_null=True)


@dataclass(frozen=True)
class Codes:
    """A column of names as small numbers: `numbers[row]` is the place in `names`, -1 where empty."""

    names: tuple[str, ...]
    numbers: NDArray[np.int64]


class DataTable:
    """Columns by name. Whoever asks for one that is not there is told which there are."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @classmethod
    def read(cls, path: Path) -> "DataTable":
        """The rows of a CSV file (plain, .gz, .bz2, .zst) or a Parquet file.

        Raises: BadInput when there is no such file, or it cannot be read as one.
        """
        try:
            if path.suffix == ".parquet":
                return cls(pa.parquet.read_table(path))
            with pa.input_stream(str(path)) as stream:
                return cls(pa.csv.read_csv(stream, convert_options=_CONVERT))
        except (OSError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0].removeprefix("[Errno 2] ")
            raise BadInput.of("file", f"{path} cannot be read as a table: {reason}") from error

    @property
    def rows(self) -> int:
        return int(self._table.num_rows)

    def codes(self, name: str, field: str) -> Codes:
        """The column as names. Raises: BadInput naming `field`."""
        column = self._column(name, field)
        try:
            texts = pc.cast(column, pa.string())
        except pa.ArrowException as error:
            raise BadInput.of(field, f"column {name!r} holds {column.type}, not names") from error
        whole = pc.dictionary_encode(texts).combine_chunks()
        numbers = pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False)
        return Codes(tuple(whole.dictionary.to_pylist()), numbers.astype(np.int64))

    def numbers(self, name: str, field: str) -> Floats:
        """The column as numbers, true as 1; NaN where empty. Raises: BadInput naming `field`."""
        column = self._column(name, field)
        try:
            cast = pc.cast(column, pa.float64())
        except pa.ArrowException as error:
            raise BadInput.of(
                field, f"column {name!r} holds {column.type}; a metric needs numbers or true/false"
            ) from error
        found: Floats = cast.to_numpy()
        if np.isinf(found).any():
            raise BadInput.of(field, f"column {name!r} holds an infinite number")
        return found

    def _column(self, name: str, field: str) -> pa.ChunkedArray:
        names = self._table.column_names
        if names.count(name) != 1:
            there = ", ".join(map(repr, names))
            problem = "is there twice" if name in names else "is not there"
            raise BadInput.of(field, f"column {name!r} {problem}; the file has {there}")
        return self._table[name]
