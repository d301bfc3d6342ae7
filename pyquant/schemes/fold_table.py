"""Tables that fold 8-bit codes to 16: as printed in the thesis, balanced, or from a TOML file."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyquant.errors import ConfigError
from pyquant.files.toml import read_toml, toml_string

N_CODES = 16
LOWEST, HIGHEST = -128, 127


@dataclass(frozen=True)
class Table:
    """16 ranges of 8-bit codes, and the int8 value that each of them decodes to.

    Attributes
    ----------
    name
        What reports and files call the table.
    values
        (16,) int8, ascending.
    lower
        (16,) int16, ascending: the lowest 8-bit code of each range. Range i holds the codes
        lower[i] .. lower[i + 1] - 1; the first range begins at -128 and the last ends at 127.
    """

    name: str
    values: NDArray[np.int8]
    lower: NDArray[np.int16]

    @property
    def fold(self) -> NDArray[np.uint8]:
        """(256,) uint8: the range of each 8-bit code, indexed by the code modulo 256."""
        codes = np.arange(256).astype(np.uint8).view(np.int8)
        return (np.searchsorted(self.lower, codes, side="right") - 1).astype(np.uint8)

    def to_toml(self) -> str:
        """Write the text that `read_table` reads."""
        return (
            f"name = {toml_string(self.name)}\n"
            f"values = {self.values.tolist()}\n"
            f"# the lowest 8-bit code of each range\n"
            f"lower = {self.lower.tolist()}\n"
        )

    def to_json(self) -> dict[str, Any]:
        """Give the table as JSON, schema pyquant.table/1."""
        return {
            "schema": "pyquant.table/1",
            "name": self.name,
            "values": self.values.tolist(),
            "lower": self.lower.tolist(),
        }


def basic() -> Table:
    """Powers of two; table 4.1.1 of the thesis."""
    powers = 1 << np.arange(8)
    values = np.concatenate([-powers[::-1], [0], powers[:-1]])
    lower = [-128, -64, -32, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, 32, 64]
    return Table("basic", values.astype(np.int8), np.array(lower, np.int16))


def balanced(counts: ArrayLike) -> Table:
    """Make 16 ranges that hold equal shares of the codes, as nearly as whole codes allow.

    Of all partitions into 16 ranges this has the least sum of squared deviations of the shares from 1/16.
    Dynamic programming finds it. A range decodes to its value nearest to 0, the outermost ranges to -128
    and 127.

    Parameters
    ----------
    counts
        (256,): how often each Q8_0 code occurs, indexed by the code modulo 256.

    Raises
    ------
    ConfigError
        Nothing was counted.
    """
    by_code = np.roll(np.asarray(counts, dtype=float), 128)
    if by_code.shape != (256,) or not by_code.sum() > 0:
        raise ConfigError("a balanced table needs counts of 256 codes, and at least one code counted")
    lower = np.array(_equal_parts(by_code / by_code.sum())) + LOWEST
    upper = np.append(lower[1:], HIGHEST + 1) - 1
    values = np.clip(0, lower, upper)
    values[0], values[-1] = LOWEST, HIGHEST
    return Table("balanced", values.astype(np.int8), lower.astype(np.int16))


def _equal_parts(shares: NDArray[np.float64]) -> list[int]:
    """Find the first indices of the 16 non-empty ranges whose sums are closest to equal."""
    n = len(shares)
    sums = np.concatenate([[0.0], np.cumsum(shares)])
    # cost[i, j]: of the range i .. j - 1
    cost = np.square(sums[None, :] - sums[:, None] - 1 / N_CODES)
    cost[np.tri(n + 1, dtype=bool)] = np.inf
    best = cost[0]
    first = []
    for _ in range(N_CODES - 1):
        total = best[:, None] + cost
        first.append(total.argmin(axis=0))
        best = total.min(axis=0)
    bounds = [n]
    for choice in reversed(first):
        bounds.append(int(choice[bounds[-1]]))
    return [0, *reversed(bounds[1:])]


BUILT_IN = {"basic": basic}


def named_table(name: str) -> Table:
    """Find a built-in table, or read the one in a file whose name ends in .toml.

    Raises ConfigError: there is no such table, or its file is wrong.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if name.endswith(".toml"):
        return read_table(name)
    choices = ", ".join([*BUILT_IN, "balanced"])
    raise ConfigError(f"table: {name!r} is neither one of {choices} nor a .toml file")


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a table from TOML: `values`, and optionally `lower` and `name`.

    Without `lower` every code goes to the nearest value, and between two to the one nearer to 0.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ConfigError
        The file is missing, or a key in it is wrong. The message names file and key.
    """
    path = Path(path)
    content = read_toml(path, "table")
    unknown = set(content) - {"name", "values", "lower"}
    if unknown:
        raise ConfigError(f"{path}: unknown key {min(unknown)!r}; known: name, values, lower")
    if "values" not in content:
        raise ConfigError(f"{path}: the key 'values' is missing: 16 integers in -128..127, ascending")
    values = ascending(path, "values", content["values"])
    if "lower" in content:
        lower = ascending(path, "lower", content["lower"])
        if lower[0] != LOWEST:
            raise ConfigError(f"{path}: lower: the first range begins at -128, not at {lower[0]}")
    else:
        return nearest_table(checked_name(path, content), values)
    return Table(checked_name(path, content), values.astype(np.int8), lower.astype(np.int16))


def checked_name(path: Path, content: dict[str, Any]) -> str:
    """Give the name in a table's file, or the file's own. Raises ConfigError if it cannot be a name."""
    return check_name(f"{path}: name", content.get("name", path.stem))


def check_name(where: str, name: object) -> str:
    """Give a table's name. Raises ConfigError if it cannot be one; where: it came from."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 64 or '"' in name:
        raise ConfigError(f"{where}: expected up to 64 printable characters without quotes")
    return name


def nearest_table(name: str, values: NDArray[np.int8] | NDArray[np.int64]) -> Table:
    """Make the table in which every code goes to the nearest of 16 ascending values; see `read_table`."""
    return Table(name, values.astype(np.int8), _nearest(values.astype(np.int64)).astype(np.int16))


def ascending(path: Path, key: str, given: object) -> NDArray[np.int64]:
    """Check the 16 values of a key of a TOML file.

    Returns (16,) int64.
    Raises ConfigError: they are not 16 ascending integers in -128..127. The message names file and key.
    """
    if not isinstance(given, list) or not _fits(given):
        raise ConfigError(
            f"{path}: {key}: expected 16 integers in -128..127, each greater than the one before"
        )
    return np.array(given)


def _fits(given: list[Any]) -> bool:
    integers = len(given) == N_CODES and all(type(v) is int and LOWEST <= v <= HIGHEST for v in given)
    return integers and all(a < b for a, b in itertools.pairwise(given))


def _nearest(values: NDArray[np.int64]) -> NDArray[np.int64]:
    codes = np.arange(LOWEST, HIGHEST + 1)
    # A tie goes to the value nearer to 0: magnitudes, below 256, decide among equal distances.
    distance = 256 * np.abs(codes[:, None] - values) + np.abs(values)
    nearest = distance.argmin(axis=1)
    return codes[np.searchsorted(nearest, np.arange(N_CODES))]
