"""Columns of tables for people."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

# A row of a flat table: what there is to know by the names of columns; None where nothing is known.
Flat = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    key
        Name of its values in a flat row.
    head
        What stands above it.
    meaning
        One sentence that defines the number.
    style
        How it is written: with three decimals or three digits, as percent (of a share), or as megabytes
        (of bytes).
    error
        Name of its standard error in a flat row.
    ends
        Names of the ends of its range.
    lesser
        Whether a page shows it only to those who ask for all columns.
    """

    key: str
    head: str
    meaning: str
    style: Literal["number", "digits", "percent", "bytes"] = "number"
    error: str | None = None
    ends: tuple[str, str] | None = None
    lesser: bool = False

    def text(self, row: Flat) -> str:
        """Write a cell: rounded to its error where it has one; a dash where nothing is known."""
        value = row[self.key]
        if value is None:
            return "-"
        if self.style == "bytes":
            return f"{value / 1e6:,.2f}"
        if self.style == "digits":
            return f"{value:.3g}"
        factor = 100 if self.style == "percent" else 1
        error = row[self.error] if self.error else None
        if error is not None:
            return plus_minus(factor * value, factor * error)
        if self.ends:
            low, high = (row[end] for end in self.ends)
            return f"{value:,.0f} ± {(high - low) / 2:,.0f}"
        return f"{100 * value:.2f}" if self.style == "percent" else f"{value:.3f}"


def known_columns(columns: Iterable[Column], rows: list[Flat]) -> list[Column]:
    """Return the columns of which at least one row has a value."""
    return [column for column in columns if any(row[column.key] is not None for row in rows)]


def plus_minus(value: float, error: float) -> str:
    """Write a value and its error, both to the second digit of the error.

    Examples
    --------
    >>> plus_minus(6.2317, 0.0123)
    '6.232 ± 0.012'
    """
    if not error > 0:
        return f"{value:.4g} ± 0"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > 6 or abs(value) >= 1e6:
        return f"{value:.2e} ± {error:.1e}"
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def get(result: dict[str, Any] | None, *path: str) -> Any:
    """Return what lies at a path of keys in a result, or None where there is nothing."""
    for key in path:
        if not isinstance(result, dict):
            return None
        result = result.get(key)
    return result
