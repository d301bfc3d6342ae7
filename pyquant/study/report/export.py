"""A study's tables as files for other tools."""

from __future__ import annotations

import csv
import io
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError, OutputError
from pyquant.files.output_file import check_output, write_bytes
from pyquant.study.report.tables import item_tables, tables
from pyquant.study.results.columns import Flat
from pyquant.study.results.read import read_results, understood
from pyquant.study.store import Store

Tables = dict[str, list[Flat]]
TOGETHER = 200  # rows that a database takes at once


def export(
    results: str | os.PathLike[str], output: Path, *, table: str = "results", force: bool = False
) -> dict[str, int]:
    """Write a study's results for other tools.

    Parameters
    ----------
    output
        A .csv or .parquet file, for one table; a .sqlite or .duckdb file, for all tables but those of
        items, or for a table of items.
    table
        Name of the table: results, another table of a metric, or METRIC_items.
    force
        Whether an existing file is replaced.

    Returns
    -------
    dict
        Number of rows of each table that was written.

    Raises
    ------
    OutputError
        The file exists, cannot be written, or its name has no known ending.
    StudyError
        There is no study in the folder.
    ConfigError
        There is no such table, it has no rows, or DuckDB is needed and not installed.
    """
    ending = output.suffix.lower()
    writer = WRITERS.get(ending)
    if writer is None:
        raise OutputError(f"{output}: its name must end in one of {', '.join(WRITERS)}")
    of_items = item_tables()
    known = tables() | of_items
    if table not in known:
        raise ConfigError(f"table: {table!r} is not one of {', '.join(known)}")
    check_output(output, sources=[], force=force)
    of_study = read_results(Store(results))
    names = tables() if ending in DATABASES and table not in of_items else [table]
    with understood(results):
        written = {name: known[name](of_study) for name in names}
    if not written[table]:
        raise ConfigError(f"table: {os.fspath(results)} has no rows of {table!r}; name another")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"export{ending}"
        with understood(results):
            writer(path, written)
        write_bytes(output, path.read_bytes(), sources=[], force=force)
    return {name: len(rows) for name, rows in written.items()}


def _csv(path: Path, tables: Tables) -> None:
    (rows,) = tables.values()
    path.write_text(_csv_text(rows), encoding="utf-8", newline="")


def _csv_text(rows: list[Flat]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _sqlite(path: Path, tables: Tables) -> None:
    connection = sqlite3.connect(path)
    try:
        with connection:
            for name, rows in tables.items():
                _fill(connection.execute, name, rows, {int: "INTEGER", float: "REAL", str: "TEXT"})
    finally:
        connection.close()


def _duckdb(path: Path, tables: Tables) -> None:
    with _library().connect(path) as connection:
        for name, rows in tables.items():
            _fill(connection.execute, name, rows, {int: "BIGINT", float: "DOUBLE", str: "VARCHAR"})


def _parquet(path: Path, tables: Tables) -> None:
    ((name, rows),) = tables.items()
    with _library().connect() as connection:
        _fill(connection.execute, name, rows, {int: "BIGINT", float: "DOUBLE", str: "VARCHAR"})
        quoted = str(path).replace("'", "''")
        connection.execute(f"COPY {name} TO '{quoted}' (FORMAT parquet)")


DATABASES = (".sqlite", ".duckdb")
WRITERS = {".csv": _csv, ".parquet": _parquet, ".sqlite": _sqlite, ".duckdb": _duckdb}


def _library() -> Any:
    try:
        import duckdb
    except ImportError:
        raise ConfigError("export: DuckDB is not installed; pip install 'pyquant[study]'") from None
    return duckdb


def _columns(rows: list[Flat]) -> list[str]:
    return list(rows[0]) if rows else []


def _fill(execute: Callable[..., object], name: str, rows: list[Flat], types: dict[type, str]) -> None:
    if not rows:
        return

    def type_of(column: str) -> str:
        value = next((row[column] for row in rows if row[column] is not None), 0.0)
        return types[type(value)]

    columns = _columns(rows)
    definitions = ", ".join(f'"{column}" {type_of(column)}' for column in columns)
    execute(f"CREATE TABLE {name} ({definitions})")
    places = f"({', '.join('?' * len(columns))})"
    for begin in range(0, len(rows), TOGETHER):
        some = rows[begin : begin + TOGETHER]
        values = [value for row in some for value in row.values()]
        execute(f"INSERT INTO {name} VALUES {', '.join([places] * len(some))}", values)
