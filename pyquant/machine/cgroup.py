"""Memory that a container's limit leaves: the system's own figures are those of the whole machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Names in version 2 and in version 1: the limit, and what is used of it.
FILES = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
# Lines of memory.stat: files in memory, of which the system drops some where memory is wanted.
OF_FILES = ("inactive_file", "active_file", "total_inactive_file", "total_active_file")


def memory_left(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Give the bytes that this process's control groups leave it; None where none has a limit.

    own: lists the groups. root: where their files are.
    """
    return min((left for folder in _folders(own, root) if (left := _left(folder)) is not None), default=None)


def _folders(own: Path, root: Path) -> Iterator[Path]:
    """Give the folder of each group of memory, and of those that it is in."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top = root / "memory" if controllers else root
            folder = top / path.lstrip("/")
            # A container may lack the path, which is the host's: its own group is the top.
            yield from (each for each in (folder, *folder.parents) if each == top or top in each.parents)


def _left(folder: Path) -> int | None:
    for limit, used in FILES:
        with suppress(OSError, ValueError):  # "max": none
            left = int((folder / limit).read_text()) - int((folder / used).read_text())
            return max(0, left + _cached(folder))
    return None


def _cached(folder: Path) -> int:
    with suppress(OSError, ValueError):
        lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        known = {name: int(value) for name, value in lines}
        return max(sum(known.get(name, 0) for name in names) for names in (OF_FILES[:2], OF_FILES[2:]))
    return 0
