"""A study's tables as files for other tools."""

from __future__ import annotations

import csv
import io
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyquant.errors import ConfigError, OutputError
from pyquant.files.output_file import check_output, write_bytes
from pyquant.study.report.columns import TABLES, Flat
from pyquant.study.report.results import read_results
from pyquant.study.store import Store

Tables = dict[str, list[Flat]]


def export(
    results: str | os.PathLike[str], output: Path, *, table: str = "results", force: bool = False
) -> dict[str, int]:
    """Writes a table to .csv or .parquet, or all tables to .sqlite or .duckdb; returns their lengths.

    Raises OutputError, StudyError, and ConfigError where DuckDB is needed and not installed.
    """
    writer = WRITERS.get(output.suffix.lower())
    if writer is None:
        raise OutputError(f"{output}: its name must end in one of {', '.join(WRITERS)}")
    if table not in TABLES:
        raise ConfigError(f"table: {table!r} is not one of {', '.join(TABLES)}")
    check_output(output, sources=[], force=force)
    found = read_results(Store(results))
    databases = (".sqlite", ".duckdb")
    names = TABLES if output.suffix.lower() in databases else [table]
    tables = {name: TABLES[name](found) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"export{output.suffix.lower()}"
        writer(path, tables)
        write_bytes(output, path.read_bytes(), sources=[], force=force)
    return {name: len(rows) for name, rows in tables.items()}


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
        connection.execute(f"COPY {name} TO '{path}' (FORMAT parquet)")


WRITERS = {".csv": _csv, ".parquet": _parquet, ".sqlite": _sqlite, ".duckdb": _duckdb}


def _library():
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

    def kind(column: str) -> str:
        found = [row[column] for row in rows if row[column] is not None]
        return types[type(found[0]) if found else float]

    columns = _columns(rows)
    definitions = ", ".join(f'"{column}" {kind(column)}' for column in columns)
    execute(f"CREATE TABLE {name} ({definitions})")
    places = ", ".join("?" * len(columns))
    for row in rows:
        execute(f"INSERT INTO {name} VALUES ({places})", list(row.values()))
