"""Pack a GGUF of any types into a pqz file, frame by frame, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError, OutputError
from pyquant.files.output_file import OutputFile, write_fully
from pyquant.files.sha256 import SourceHash
from pyquant.formulas import bits_per_weight, entropy
from pyquant.machine.memory import threads_with_room
from pyquant.models.conversion import Conversion, Converted
from pyquant.models.model_file import AnyModel, ModelFile
from pyquant.models.pqz.block_layout import BYTES, TEXT, Field, kernel
from pyquant.models.pqz.index import FRAME, HEAD_BYTES, CodedFrame, Index, Part, PqzTensor, write_index
from pyquant.models.pqz.layout_of_type import LAYOUTS
from pyquant.models.pqz.pqz_file import is_pqz, scratch_errors, scratch_file
from pyquant.models.progress import Progress
from pyquant.models.shard import read_shard


@dataclass(frozen=True)
class StreamUse:
    """Sizes of all streams of one content in tensors of one type.

    Attributes
    ----------
    type
        The type of the tensors; None for what is outside of tensors.
    content
        What the bytes mean: "codes", "numbers" or "text".
    n_bytes, coded_bytes
        Their size in the GGUF, and in the pqz file.
    entropy_bytes
        The order-0 entropy of their symbols, summed over the tensors.
    """

    type: str | None
    content: str
    n_bytes: int
    coded_bytes: int
    entropy_bytes: float

    def __add__(self, other: StreamUse) -> StreamUse:
        return StreamUse(
            self.type,
            self.content,
            self.n_bytes + other.n_bytes,
            self.coded_bytes + other.coded_bytes,
            self.entropy_bytes + other.entropy_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class PackResult(Converted):
    """Result of packing.

    Attributes
    ----------
    n_weights
        Weights in the file.
    sha256
        The hash of the GGUF.
    streams
        What each content of each type takes, the largest first.
    """

    SCHEMA = "pyquant.pack/1"

    n_weights: int
    sha256: str
    streams: list[StreamUse]

    @property
    def bits_per_weight(self) -> float | None:
        """Bits of the whole pqz file; None for a file without weights."""
        return bits_per_weight(self.output_bytes, self.n_weights)

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant pack --json` prints it."""
        return {**super().to_json(), "bits_per_weight": self.bits_per_weight}


def pack_model(
    source: AnyModel,
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PackResult:
    """Pack one GGUF file. The bytes that come out do not depend on the number of threads.

    Parameters
    ----------
    source
        A path, or an opened model. Of a split model, the path of one shard: each is packed by itself.
    output
        The pqz file to write. It appears complete or not at all.
    force
        Replace an existing `output`.
    threads
        None: one for each core.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        `source` cannot be read, is a pqz file already, or is an opened model of several shards.
    OutputError
        `output` cannot be written.
    """
    source, output = _one_file(source), Path(output)
    if is_pqz(source):
        raise ModelFileError(f"{source}: is already a pqz file")
    work = Conversion([source], output, force=force)
    tensors = sorted(read_shard(source).tensors, key=lambda tensor: tensor.offset)
    index = Index(
        n_bytes=source.stat().st_size,
        tools=_tools(),
        layouts={tensor.type.name: LAYOUTS.get(tensor.type, BYTES) for tensor in tensors},
        tensors=[
            PqzTensor(name=t.name, type=t.type.name, begin=t.offset, n_bytes=t.n_bytes) for t in tensors
        ],
    )
    with SourceHash([source]) as source_hash:
        uses, sha256 = _write(source, output, index, force, threads_with_room(threads), progress, source_hash)
    n_weights = sum(tensor.n_weights for tensor in tensors)
    return work.result(
        PackResult,
        source_bytes=index.n_bytes,
        output_bytes=output.stat().st_size,
        n_weights=n_weights,
        sha256=sha256,
        streams=uses,
    )


def _one_file(model: AnyModel) -> Path:
    if not isinstance(model, ModelFile):
        return Path(model)
    if len(model.paths) > 1:
        raise ModelFileError(f"{model.path}: one of {len(model.paths)} shards; pack each of them")
    return model.path


def _tools() -> dict[str, str]:
    build = _core.build_info()
    return {"pyquant": build["pyquant"], "zstd": _core.ZSTD_VERSION, "ggml": build["ggml"]}


def _copy_rest(index: Index, source: int, target: int) -> None:
    """Write what is in no tensor to an open scratch file, one piece after the other."""
    offset = 0
    for begin, end in index.gaps():
        data = os.pread(source, end - begin, begin)
        with scratch_errors("the metadata"):
            write_fully(target, data, offset)
        offset += len(data)


def _write(
    source: Path,
    output: Path,
    index: Index,
    force: bool,
    threads: int,
    progress: Progress | None,
    source_hash: SourceHash,
) -> tuple[list[StreamUse], str]:
    parts, frames = index.parts(), index.frames()
    layouts = [kernel(part.layout) for part in parts]
    rest = [frame for frame in frames if frame.part == 0]
    description = _core.encode_frame(kernel(TEXT), index.description())
    data_begin = HEAD_BYTES + len(description) + len(frames) * FRAME.size
    total = sum(part.n_bytes for part in parts)

    def tell(done: int) -> None:
        if progress:
            progress(done, total, "")

    with (
        OutputFile(output, 0, sources=[source], force=force) as file,
        source.open("rb", buffering=0) as whole,
        scratch_file() as between,
    ):
        try:
            _copy_rest(index, whole.fileno(), between.fileno())
            work: dict[str, Any] = {
                "layouts": layouts,
                "out_file": file.fileno(),
                "n_threads": threads,
                "progress": tell,
            }
            rest, rest_uses = _core.pack_frames(
                in_file=between.fileno(), frames=rest, out_begin=data_begin, **work
            )
            end = data_begin + sum(frame.coded_bytes for frame in rest)
            body, uses = _core.pack_frames(
                in_file=whole.fileno(), frames=frames[len(rest) :], out_begin=end, **work
            )
        except _core.WriteError as error:
            raise OutputError(f"{output}: {error.strerror}") from None
        except OSError as error:
            raise ModelFileError(f"{source}: {error.strerror}") from None
        coded = [CodedFrame(frame.coded_bytes, frame.checksum) for frame in [*rest, *body]]
        sha256 = source_hash.result()
        file.write(write_index(index, description, coded, bytes.fromhex(sha256)), 0)
        file.commit()
    types = [None, *(tensor.type for tensor in index.tensors)]
    return _uses(zip(types, parts, [rest_uses[0], *uses[1:]])), sha256


def _uses(parts: Iterable[tuple[str | None, Part, Any]]) -> list[StreamUse]:
    sums: dict[tuple[str | None, str], StreamUse] = {}
    for tensor_type, part, (counts, coded) in parts:
        for field, field_counts, coded_bytes in zip(part.layout, counts, coded):
            key = tensor_type, field.content
            use = StreamUse(*key, int(field_counts.sum()), coded_bytes, entropy_bytes(field, field_counts))
            sums[key] = sums[key] + use if key in sums else use
    return sorted(sums.values(), key=lambda use: -use.n_bytes)


def entropy_bytes(field: Field, counts: NDArray[np.uint64]) -> float:
    """Give the bytes that a field's symbols cost at least, each coded by itself.

    counts: (256,) how often each byte occurs in the field.
    """
    symbols = np.zeros(1 << field.bits, np.uint64)
    for shift in range(0, 8, field.bits):
        np.add.at(symbols, (np.arange(256) >> shift) % len(symbols), counts)
    return entropy(symbols) * float(symbols.sum()) / 8
