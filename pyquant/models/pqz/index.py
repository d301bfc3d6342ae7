"""Read and write the beginning of a pqz file: what is in it, and where."""

from __future__ import annotations

import math
import struct
from dataclasses import asdict, dataclass
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Checked

from pyquant import _core
from pyquant.models.pqz.block_layout import TEXT, Content, Field, Layout, block_bytes, kernel

MAGIC = b"PYQUANTZ"
VERSION = 2  # 1 had groups of symbols in Huffman codes
FRAME_BYTES = 1 << 20  # expanded, about: enough to learn a code, and two of them fit a core's cache

# Size that a reader makes room for. Whoever can pack zeros can make a small file ask for much.
LARGEST_FRAME = 1 << 22
LARGEST_DESCRIPTION = 8 << 20  # some 80,000 tensors
MOST_LAYOUTS = 256
FEWEST_BYTES = 1024  # of the file for a frame, on average, beyond the first FREE_FRAMES
FREE_FRAMES = 1 << 16

# magic, version, frames, coded and expanded bytes of the description, bytes of the GGUF, checksum of
# the index, SHA-256 of the GGUF; and the checksum of these.
HEAD = struct.Struct("<8sIIIIQQ32s")
CHECKSUM = struct.Struct("<Q")
HEAD_BYTES = HEAD.size + CHECKSUM.size
FRAME = struct.Struct("<IQ")  # coded bytes, checksum

Count = Annotated[int, Checked(ge=0, lt=2**62)]


class BadIndex(ValueError):
    """The beginning of a file that is not a pqz file; its message says why."""


class CodedFrame(NamedTuple):
    """An entry of the frame table: the length of a coded frame in bytes, and the checksum of these."""

    n_bytes: int
    checksum: int


class _FieldEntry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    content: Content
    length: Annotated[int, Checked(ge=1, le=1 << 16)]
    bits: Annotated[int, Checked(ge=1, le=8)]


class PqzTensor(BaseModel):
    """A tensor of the GGUF: its name, the name of its layout (`type`), and its place in the GGUF in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    type: str
    begin: Count
    n_bytes: Count


class _Description(BaseModel):
    tools: Annotated[dict[str, str], Checked(max_length=MOST_LAYOUTS)]
    frame_bytes: Annotated[int, Checked(ge=1, le=LARGEST_FRAME)]
    layouts: Annotated[
        dict[str, Annotated[list[_FieldEntry], Checked(min_length=1, max_length=64)]],
        Checked(max_length=MOST_LAYOUTS),
    ]
    tensors: list[PqzTensor]


@dataclass(frozen=True)
class Part:
    """Bytes that are cut into frames together; name: the tensor's, or None for all outside of tensors."""

    name: str | None
    layout: Layout
    begin: int
    n_bytes: int


@dataclass(frozen=True)
class Index:
    """Index of a pqz file: what is in it."""

    n_bytes: int  # the size of the GGUF
    tools: dict[str, str]  # the versions of the tools that wrote the file, by name
    layouts: dict[str, Layout]  # the layouts of the tensors' blocks, by the name of the type
    tensors: list[PqzTensor]  # as they lie in the GGUF
    frame_bytes: int = FRAME_BYTES  # the length of a frame before coding, about

    def gaps(self) -> list[tuple[int, int]]:
        """Give (begin, end) of the bytes of the GGUF outside of tensors: header and padding."""
        ends = [0, *(tensor.begin + tensor.n_bytes for tensor in self.tensors)]
        begins = [*(tensor.begin for tensor in self.tensors), self.n_bytes]
        return [(end, begin) for end, begin in zip(ends, begins) if begin > end]

    def parts(self) -> list[Part]:
        """List the parts: first all bytes outside of tensors, then the tensors."""
        rest = Part(None, TEXT, 0, sum(end - begin for begin, end in self.gaps()))
        return [rest, *(Part(t.name, self.layouts[t.type], t.begin, t.n_bytes) for t in self.tensors)]

    def frames(self) -> list[_core.Frame]:
        """List all frames in the order of `parts`. Where they are coded is not known yet."""
        frames = []
        for number, part in enumerate(self.parts()):
            size = self._frame_size(part)
            for begin in range(0, part.n_bytes, size):
                n_bytes = min(size, part.n_bytes - begin)
                frames.append(_core.Frame(part.begin + begin, n_bytes, number))
        return frames

    def n_frames(self) -> int:
        """Count the frames."""
        return sum(math.ceil(part.n_bytes / self._frame_size(part)) for part in self.parts())

    def _frame_size(self, part: Part) -> int:
        block = block_bytes(part.layout)
        return max(1, self.frame_bytes // block) * block

    def description(self) -> bytes:
        """Write all of it but n_bytes, as JSON."""
        described = _Description(
            tools=self.tools,
            frame_bytes=self.frame_bytes,
            layouts={name: [asdict(field) for field in layout] for name, layout in self.layouts.items()},
            tensors=self.tensors,
        )
        return described.model_dump_json().encode()


def write_index(index: Index, description: bytes, frames: list[CodedFrame], sha256: bytes) -> bytes:
    """Make the beginning of a file.

    description: `index.description()`, coded. frames: all of them. sha256: of the GGUF, 32 bytes.
    """
    tail = description + b"".join(FRAME.pack(*frame) for frame in frames)
    raw = len(index.description())
    head = HEAD.pack(
        MAGIC, VERSION, len(frames), len(description), raw, index.n_bytes, _core.checksum(tail), sha256
    )
    return head + CHECKSUM.pack(_core.checksum(head)) + tail


@dataclass(frozen=True)
class Head:
    """The first HEAD_BYTES of a file."""

    n_frames: int
    coded_description: int
    description: int
    n_bytes: int
    checksum: int
    sha256: bytes

    @property
    def end(self) -> int:
        """Byte at which the index ends and frames begin."""
        return HEAD_BYTES + self.coded_description + self.n_frames * FRAME.size


def read_head(data: bytes, size: int) -> Head:
    """Read the first HEAD_BYTES of a file of `size` bytes.

    Raises BadIndex: the file is damaged, cut off or of another version, or its index would take too much
    memory.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise BadIndex("not a pqz file")
    if len(data) < HEAD_BYTES:
        raise BadIndex("cut off in its first bytes")
    (checksum,) = CHECKSUM.unpack_from(data, HEAD.size)
    _, version, *rest = HEAD.unpack_from(data)
    if checksum != _core.checksum(data[: HEAD.size]):
        raise BadIndex(f"its first {HEAD_BYTES} bytes are damaged")
    if version != VERSION:
        raise BadIndex(f"of version {version} of the format; this pyquant reads version {VERSION}")
    head = Head(*rest)
    if size < head.end:
        raise BadIndex(f"cut off: its index ends at byte {head.end:,}, the file at {size:,}")
    if max(head.description, head.coded_description) > LARGEST_DESCRIPTION:
        raise BadIndex(f"a description of {head.description:,} bytes, {LARGEST_DESCRIPTION:,} may be")
    if head.n_frames > FREE_FRAMES + size // FEWEST_BYTES:
        raise BadIndex(f"{head.n_frames:,} frames in a file of {size:,} bytes")
    return head


def read_index(head: Head, tail: bytes) -> tuple[Index, list[CodedFrame]]:
    """Read what `write_index` wrote after the head: the index, and the frame table. Raises BadIndex."""
    if _core.checksum(tail) != head.checksum:
        raise BadIndex("its index is damaged")
    try:
        raw = _core.decode_frame(kernel(TEXT), tail[: head.coded_description], head.description)
        described = _Description.model_validate_json(raw)
    except (_core.DamagedError, ValidationError) as error:
        raise BadIndex(f"its index is not one: {str(error).splitlines()[0]}") from None
    layouts = {
        name: tuple(Field(f.content, f.length, f.bits) for f in fields)
        for name, fields in described.layouts.items()
    }
    _check_tensors(described.tensors, layouts, head.n_bytes)
    index = Index(head.n_bytes, described.tools, layouts, described.tensors, described.frame_bytes)
    if index.n_frames() != head.n_frames:
        raise BadIndex(f"{head.n_frames} frames where its tensors need {index.n_frames()}")
    return index, [CodedFrame(*entry) for entry in FRAME.iter_unpack(tail[head.coded_description :])]


def _check_tensors(tensors: list[PqzTensor], layouts: dict[str, Layout], n_bytes: int) -> None:
    end = 0
    for tensor in tensors:
        if tensor.type not in layouts:
            raise BadIndex(f"tensor {tensor.name!r} has no layout")
        if tensor.begin < end or tensor.begin + tensor.n_bytes > n_bytes:
            raise BadIndex(f"tensor {tensor.name!r} is not where it can be")
        if tensor.n_bytes % block_bytes(layouts[tensor.type]):
            raise BadIndex(f"tensor {tensor.name!r} has no whole number of blocks")
        end = tensor.begin + tensor.n_bytes
