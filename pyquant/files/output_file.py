"""Write results: complete or not at all, and never over an input."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyquant import _core
from pyquant.errors import OutputError

CLOSED, OPENING = -1, -2  # what stands for the number of a file that has none, or none yet

_inputs: list[Path] = []


def protect(path: Path) -> None:
    """Name an input of this process, which no output replaces from now on, whoever writes.

    For the command line, where a process is one command, so that no command can forget a file.
    """
    _inputs.append(path)


class OutputFile:
    """A file that appears under its name complete or not at all. A context manager.

    It is written beside as `.NAME.partial`, and `commit` renames it. What a killed run leaves there is taken
    over by the next run to the same name. Leaving the context without `commit` removes it.
    """

    def __init__(
        self, path: str | os.PathLike[str], size: int, *, sources: list[Path], force: bool, keep: bool = False
    ) -> None:
        """Take the name and the room.

        size: the bytes it will have; room for them is taken now.
        sources: files that it must not replace.
        keep: let what is written stay beside where the context is left without `commit`, and begin with what
        a run of before left there.
        Raises OutputError: the folder is missing, the file exists and may not be replaced, another process
        writes it, or there is no room.
        """
        self.path = Path(path)
        check_output(self.path, sources=sources, force=force)
        require_room([(self.path, size)])
        self.partial = partial_of(self.path)
        self._keep = keep
        self._file = CLOSED
        try:
            self._open(sources)
            check_output(self.path, sources=sources, force=force)  # again: nobody else can make it now
            with output_errors(self.path):
                os.ftruncate(self._file, size if keep else 0)
                _core.reserve(self._file, size)
        except BaseException:  # Ctrl-C too, as nobody is within the context yet
            self.__exit__(None, None, None)
            raise

    def _open(self, sources: list[Path]) -> None:
        """Make the file beside, or take it over, so that no other process writes it."""
        with output_errors(self.path):
            # Another file's name for one of these would be emptied.
            if any(_same(self.partial, source) for source in [*sources, *_inputs]):
                raise OutputError(f"{self.partial}: is an input, and where {self.path.name} is written first")
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = OPENING
            try:
                self._file = os.open(self.partial, flags, 0o666)
            except OSError:
                self._file = CLOSED
                raise
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have finished between these two lines: then this is its output.
            if not os.path.samestat(os.fstat(self._file), os.stat(self.partial)):
                raise OSError
        except OSError:
            os.close(self._file)
            self._file = CLOSED
            raise OutputError(f"{self.path}: another process is writing it") from None

    def fileno(self) -> int:
        """Give the number of the open file."""
        return self._file

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`, in bytes. Raises OutputError."""
        with output_errors(self.path):
            write_fully(self._file, data, offset)

    def commit(self) -> None:
        """Give the file its name."""
        with output_errors(self.path):
            os.replace(self.partial, self.path)
        self.close()

    def close(self) -> None:
        """Let go of the file, which has its name."""
        os.close(self._file)
        self._file = CLOSED

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._file == OPENING:  # Ctrl-C came when it was made, before its number was known
            _remove_unlocked(self.partial)
        elif self._file != CLOSED:
            if not self._keep:
                self.partial.unlink(missing_ok=True)
            self.close()
        self._file = CLOSED


def partial_of(path: Path) -> Path:
    """Say where a file is until it is complete."""
    return path.with_name(f".{path.name}.partial")


def require_room(sizes: Sequence[tuple[Path, int]]) -> None:
    """Refuse files that the disk has no room for. Raises OutputError.

    sizes: the path of each, in one folder, and its bytes. What a run of before left of them is overwritten.
    """
    (path, _), size = sizes[0], sum(size for _, size in sizes)
    with output_errors(path):
        free = shutil.disk_usage(path.parent).free
    for each, _ in sizes:
        with contextlib.suppress(OSError):
            free += partial_of(each).stat().st_blocks * 512
    if free < size:
        raise OutputError(f"{path}: needs {size:,} bytes, {free:,} are free in {path.parent}")


def _remove_unlocked(path: Path) -> None:
    """Remove a file unless a process writes it."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def check_output(path: Path, *, sources: list[Path], force: bool) -> None:
    """Refuse a path where a result cannot or must not be written.

    sources: files that it must not replace.
    Raises OutputError: the folder is missing, or the path is a folder, no file, an input, or exists.
    """
    with output_errors(path):
        if not path.parent.is_dir():
            raise OutputError(f"{path}: the folder {path.parent} does not exist")
        if not path.exists():
            if path.is_symlink() and not force:
                raise OutputError(
                    f"{path}: a link to {path.readlink()}, which is not there; --force replaces it"
                )
            return
        if path.is_dir():
            raise OutputError(f"{path}: a folder; give the file's name too")
        if not path.is_file():
            raise OutputError(f"{path}: not a file")
        if any(_same(path, source) for source in [*sources, *_inputs]):
            raise OutputError(f"{path}: is the input, which is never overwritten")
        if not force:
            raise OutputError(f"{path}: exists; --force replaces it")


def check_apart(path: Path, other: Path) -> None:
    """Refuse one path for two results. Raises OutputError."""
    if path.resolve() == other.resolve():
        raise OutputError(f"{path}: is to hold two results; name another file for one of them")


def _same(path: Path, source: Path) -> bool:
    # A source may be a folder, a pipe, or missing, which its reader says better.
    with contextlib.suppress(OSError):
        return path.samefile(source)
    return False


@contextlib.contextmanager
def output_errors(where: str | os.PathLike[str], doing: str = "") -> Iterator[None]:
    """Turn the system's errors into OutputError, which names `where` and, if given, what it was `doing`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{where}: {error.strerror}{doing and ' while ' + doing}") from None


def write_fully(file: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` to an open file at `offset`. Raises OSError."""
    while data:
        n = os.pwrite(file, data, offset)
        data, offset = data[n:], offset + n


def write_bytes(path: Path, data: bytes, *, sources: list[Path], force: bool) -> None:
    """Write a small result by the rules of `OutputFile`. Raises OutputError."""
    with OutputFile(path, len(data), sources=sources, force=force) as file:
        file.write(data, 0)
        file.commit()
