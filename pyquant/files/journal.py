"""A list of what is finished, a line each: what a killed run has done, the next one goes on behind."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from pyquant.errors import Tell
from pyquant.files.kept import not_used
from pyquant.files.output_file import output_errors

Entry = TypeVar("Entry")


class Journal(Generic[Entry]):
    """A file of lines below a hash of all that they follow from.

    Lines are used up to the first that a kill cut off, or that is damaged; none if they are of other work.

    Attributes
    ----------
    entries
        What the lines that were there say.
    """

    entries: list[Entry]

    def __init__(
        self,
        path: Path,
        made_of: Iterable[bytes],
        read: Callable[[str], Entry | None],
        tell: Tell | None = None,
    ) -> None:
        """Read what is there, and remove what is not used, as the next run might take it for this one's.

        read: gives what a line says; None where it is damaged. tell: told of a file that is not used.
        Raises OutputError.
        """
        self._path, self.entries = path, []
        self._head = hashlib.sha256(b"\n".join(made_of)).hexdigest()
        n_used = _bytes(self._head)
        for line in self._lines():
            if (entry := read(line)) is None:
                break
            n_used += _bytes(line)
            self.entries.append(entry)
        with output_errors(path):
            if self.entries:
                os.truncate(path, n_used)
            else:
                there = path.exists()
                path.unlink(missing_ok=True)
                if there and tell:
                    tell(not_used(path))

    def add(self, line: str) -> None:
        """Note what is finished. Raises OutputError."""
        self._append([line] if self._path.exists() else [self._head, line])

    def _append(self, lines: Iterable[str]) -> None:
        with output_errors(self._path), self._path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def _lines(self) -> list[str]:
        try:
            first, *lines = self._path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return []
        return lines[:-1] if first == self._head else []


def _bytes(line: str) -> int:
    return len(f"{line}\n".encode())
