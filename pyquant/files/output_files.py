"""Write a result of several files, such as shards: they get their names together, or none does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pyquant.files.output_file import OutputFile, check_output, output_errors, require_room


class OutputFiles:
    """Files that appear under their names together. A context manager.

    Each is an `OutputFile`. Leaving the context without `commit` removes all of them.
    """

    def __init__(
        self, sizes: Sequence[tuple[Path, int]], *, sources: list[Path], force: bool, keep: bool = False
    ) -> None:
        """Take all names, and the room.

        sizes: where each file goes, and the bytes that it will have.
        Other parameters and errors are those of `OutputFile`.
        """
        for path, _ in sizes:
            check_output(path, sources=sources, force=force)
        require_room(sizes)
        self._files: list[OutputFile] = []
        with ExitStack() as stack:
            for path, size in sizes:
                file = OutputFile(path, size, sources=sources, force=force, keep=keep)
                self._files.append(stack.enter_context(file))
            self._stack = stack.pop_all()

    def __getitem__(self, index: int) -> OutputFile:
        return self._files[index]

    def commit(self) -> None:
        """Give all files their names. Raises OutputError."""
        rename_together([(file.partial, file.path) for file in self._files])
        for file in self._files:
            file.close()

    def __enter__(self) -> OutputFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()


def rename_together(names: Sequence[tuple[Path, Path]]) -> None:
    """Rename files, the first one last, as readers of shards begin there; after an error or Ctrl-C none.

    names: what each is called, and what it is to be called.
    Raises OutputError.
    """
    try:
        for old, new in reversed(names):
            with output_errors(new):
                os.replace(old, new)
    except BaseException:
        for old, new in names:
            if not old.exists():
                os.replace(new, old)
        raise
