"""Files of lines that grow over hours: what is interrupted goes on behind the last whole line."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pyquant.errors import OutputError
from pyquant.files.kept import keeping
from pyquant.files.output_file import check_output, output_errors


@contextmanager
def growing(path: Path, what: str) -> Iterator[BinaryIO]:
    """Open `.NAME.partial`, which no other process writes meanwhile; rename it if all goes well.

    Otherwise it stays for the next process, unless it has no line but the first.

    Parameters
    ----------
    path
        The file that it becomes.
    what
        What it holds, such as "a record".

    Raises
    ------
    OutputError
        Another process is writing it, or the system refuses.
    """
    partial = path.with_name(f".{path.name}.partial")
    check_output(partial, sources=[], force=True)
    with output_errors(partial):
        number = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        with os.fdopen(number, "r+b") as file:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OutputError(f"{path}: another process is writing it") from None
            with keeping(partial, f"{what}, which the same command goes on with"):
                try:
                    yield file
                except BaseException:
                    if os.pread(number, os.fstat(number).st_size, 0).count(b"\n") <= 1:
                        partial.unlink(missing_ok=True)  # nothing is in it
                    raise
            os.replace(partial, path)


def go_on(file: BinaryIO, header: str, is_ours: Callable[[str], bool]) -> list[str]:
    """Return the whole lines behind the first; what a stopped process wrote of another one is cut off.

    Parameters
    ----------
    file
        Of `growing`.
    header
        The first line of a file that begins anew, with its end.
    is_ours
        Told the first line, if there is one, says whether the file goes on; else it begins anew.
    """
    data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.decode(errors="replace").splitlines()
    if not lines or not is_ours(lines[0]):
        lines, whole = [header], header.encode()
    file.seek(0)
    file.truncate()
    file.write(whole)
    file.flush()
    return lines[1:]
