"""A list of what is finished, a line each: what a killed run has done, the next one goes on behind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from pyquant.files.output_file import output_errors

Entry = TypeVar("Entry")


class Journal(Generic[Entry]):
    """A file of lines below a hash of all that they follow from.

    Lines are used up to the first that a kill cut off, or that is damaged. Of other work none is used.

    Attributes
    ----------
    entries
        What the lines that were there say.
    """

    entries: list[Entry]

    def __init__(self, path: Path, made_of: Iterable[bytes], read: Callable[[str], Entry | None]) -> None:
        """Read what is there.

        read: gives what a line says; None where it is damaged.
        """
        self._path, self.entries = path, []
        head = hashlib.sha256(b"\n".join(made_of)).hexdigest()
        self._used: list[str] | None = [head]  # lines that the file begins with; None: it does already
        for line in self._lines(head):
            if (entry := read(line)) is None:
                break
            self._used.append(line)
            self.entries.append(entry)

    def add(self, line: str) -> None:
        """Note what is finished. Raises OutputError."""
        before = self._used or []
        with output_errors(self._path), self._path.open("w" if before else "a") as file:
            file.write("".join(f"{each}\n" for each in [*before, line]))
        self._used = None

    def _lines(self, head: str) -> list[str]:
        try:
            first, *lines = self._path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return []
        return lines[:-1] if first == head else []
