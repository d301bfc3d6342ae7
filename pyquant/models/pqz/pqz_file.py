"""Open a pqz file for reading: its index, and its tensors as the GGUF had them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import IO

from pyquant import _core
from pyquant.errors import ModelFileError, OutputError
from pyquant.files.output_file import output_errors, write_fully
from pyquant.files.sha256 import OutputHash
from pyquant.models.pqz.block_layout import kernel
from pyquant.models.pqz.index import HEAD_BYTES, MAGIC, BadIndex, read_head, read_index
from pyquant.models.progress import Progress

PQZ_SUFFIX = ".pqz"
PORTION = 1 << 20  # bytes that are copied at a time


def is_pqz(path: Path) -> bool:
    """Say whether a file begins as pqz files do; False also where it cannot be read."""
    with contextlib.suppress(OSError):
        if path.is_file():  # opening a pipe would wait for its writer
            with path.open("rb", buffering=0) as file:
                return file.read(len(MAGIC)) == MAGIC
    return False


class PqzFile:
    """A pqz file, opened.

    index: the tensors, and where they lie in the GGUF.
    sha256: the hash of the GGUF, in hex.
    n_bytes: the size of the GGUF.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the index.

        Raises ModelFileError: the file is damaged, cut off, or of another version of the format.
        """
        self.path = Path(path)
        try:
            if self.path.exists() and not self.path.is_file():
                raise BadIndex("not a file")
            with self.path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                head = read_head(file.read(HEAD_BYTES), size)
                file.seek(0)
                data = file.read(head.end)
                self.index, coded = read_index(head, data[HEAD_BYTES:])
        except OSError as error:
            raise ModelFileError(f"{self.path}: {error.strerror}") from None
        except BadIndex as error:
            raise ModelFileError(f"{self.path}: {error}") from None
        self.sha256 = head.sha256.hex()
        self.n_bytes = head.n_bytes
        self._index_bytes = head.end
        self._parts = self.index.parts()
        self._layouts = [kernel(part.layout) for part in self._parts]
        begins = accumulate((frame.n_bytes for frame in coded), initial=head.end)
        self._frames = [
            _core.Frame(f.begin, f.n_bytes, f.part, begin, n, checksum)
            for f, begin, (n, checksum) in zip(self.index.frames(), begins, coded)
        ]
        self._check_end(size)
        numbers = [frame.part for frame in self._frames]
        self._first_frame = [bisect_left(numbers, part) for part in range(len(self._parts) + 1)]
        self._part_of = {part.name: number for number, part in enumerate(self._parts)}

    def _frames_of(self, part: int) -> list[_core.Frame]:
        return self._frames[self._first_frame[part] : self._first_frame[part + 1]]

    def _check_end(self, size: int) -> None:
        end = self._index_bytes
        for frame in self._frames:
            end = frame.coded_begin + frame.coded_bytes
            if end > size:
                raise ModelFileError(
                    f"{self.path}: cut off: {self._name(frame.part)} is coded up to byte {end:,} and more, "
                    f"the file ends at {size:,}"
                )
        if end < size:
            raise ModelFileError(f"{self.path}: {size - end:,} bytes too many at its end")

    def _name(self, part: int) -> str:
        name = self._parts[part].name
        return "the metadata" if name is None else f"tensor {name!r}"

    def holds(self, name: str, begin: int, n_bytes: int) -> bool:
        """Say whether a tensor has this place in the GGUF, in bytes."""
        part = self._parts[self._part_of.get(name, 0)]
        return (part.name, part.begin, part.n_bytes) == (name, begin, n_bytes)

    def begin_of(self, name: str) -> int:
        """Say where a tensor's data begin in the GGUF, in bytes."""
        return self._parts[self._part_of[name]].begin

    def expand(self, file: int, threads: int, progress: Progress | None = None) -> None:
        """Write the GGUF, bit for bit, and read it again to check its SHA-256.

        file: the number of an open file, for writing and reading.
        Raises ModelFileError: the pqz file is damaged. The message names the tensor, unless every frame is
        sound by itself and only the whole has another hash. OutputError: the file cannot be written.
        """
        with OutputHash(file) as written:
            self._write_rest(file, self.n_bytes)
            self._unpack(file, self._frames[self._first_frame[1] :], threads, progress, written.reach)
            with output_errors(self.path, "reading what it expands to"):
                sha256 = written.result(self.n_bytes)
        if sha256 != self.sha256:
            raise ModelFileError(
                f"{self.path}: is damaged: the SHA-256 of what it expands to begins with {sha256[:12]}, "
                f"that of what was packed with {self.sha256[:12]}"
            )

    def verify(self, threads: int, progress: Progress | None = None) -> None:
        """Expand all of it to nowhere, which checks frame by frame, not the SHA-256. Raises as `expand`."""
        self._unpack(-1, self._frames, threads, progress)

    def expand_tensor(self, name: str, file: int, threads: int) -> None:
        """Write a tensor's data to the beginning of an open file. Raises what `expand` raises."""
        number = self._part_of[name]
        check_room(self._parts[number].n_bytes, f"{self.path}: {self._name(number)}")
        origin = self._parts[number].begin
        frames = [
            _core.Frame(f.begin - origin, f.n_bytes, f.part, f.coded_begin, f.coded_bytes, f.checksum)
            for f in self._frames_of(number)
        ]
        self._unpack(file, frames, threads, None)

    @contextlib.contextmanager
    def header(self) -> Iterator[Path]:
        """Make a temporary GGUF with the metadata; in the place of the tensors' data it has a hole."""
        with scratch_file() as file:
            self._write_rest(file.fileno(), _core.LARGEST_HEADER)
            with scratch_errors("the metadata"):
                file.truncate(self.n_bytes)
            yield path_of(file)

    def _write_rest(self, file: int, before: int) -> None:
        """Write the bytes of the GGUF that are in no tensor, as far as they lie before a place."""
        gaps = [(begin, min(end, before)) for begin, end in self.index.gaps() if begin < before]
        size = sum(end - begin for begin, end in gaps)
        frames = [frame for frame in self._frames_of(0) if frame.begin < size]
        with scratch_file() as rest, scratch_errors(self._name(0)):
            self._unpack(rest.fileno(), frames, 1, None)
            for begin, end in gaps:
                for at in range(begin, end, PORTION):
                    write_fully(file, rest.read(min(PORTION, end - at)), at)

    def _unpack(
        self,
        file: int,
        frames: list[_core.Frame],
        threads: int,
        progress: Progress | None,
        reach: Callable[[int], None] | None = None,
    ) -> None:
        """reach: called with the byte before which all frames are written."""
        if not frames:
            return
        tell = None
        if progress or reach:
            ends = list(accumulate(frame.n_bytes for frame in frames))

            def tell(done: int) -> None:
                at = frames[min(bisect_right(ends, done), len(ends) - 1)]
                if reach:
                    reach(at.begin)
                if progress:
                    progress(done, ends[-1], self._parts[at.part].name or "")

        try:
            with self.path.open("rb", buffering=0) as source:
                _core.unpack_frames(
                    in_file=source.fileno(),
                    frames=frames,
                    layouts=self._layouts,
                    out_file=file,
                    n_threads=threads,
                    progress=tell,
                )
        except _core.FrameError as error:
            where = self._name(frames[error.frame].part)
            raise ModelFileError(f"{self.path}: {where} is damaged: {error}") from None
        except _core.WriteError as error:
            raise OutputError(f"{error.strerror} while expanding {self.path}") from None
        except OSError as error:
            raise ModelFileError(f"{self.path}: {error.strerror}") from None


def check_room(n_bytes: int, what: str) -> None:
    """Refuse to expand what does not fit into the folder for temporary files. Raises OutputError."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < n_bytes:
        raise OutputError(
            f"{what}: expands to {n_bytes:,} bytes, {free:,} are free in {tempfile.gettempdir()}; "
            f"let TMPDIR name a folder with more room, or unpack it with `pyquant unpack`"
        )


def scratch_file() -> IO[bytes]:
    """Make an empty temporary file without a name, which goes when it is closed.

    Raises OutputError: the folder for temporary files lacks the room.
    """
    with scratch_errors("a temporary file"):
        return tempfile.TemporaryFile(buffering=0)


def path_of(file: IO[bytes]) -> Path:
    """Give a path by which an open file can be opened again in this process."""
    return Path(f"/dev/fd/{file.fileno()}")


def scratch_errors(what: str) -> contextlib.AbstractContextManager[None]:
    """Turn the system's errors into OutputError, which names the folder for temporary files.

    what: what is written there, after "writing".
    """
    return output_errors(tempfile.gettempdir(), f"writing {what}")
