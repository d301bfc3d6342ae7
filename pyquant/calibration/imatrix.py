"""Read and write importance matrices as llama-imatrix does."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.soundness import check_values
from pyquant.errors import ModelFileError
from pyquant.files.output_file import write_bytes
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.tensor import Tensor, padded
from pyquant.models.tensor_type import TensorType as Type

MOST_TENSORS = 1 << 15  # as many as a GGUF may have
KEYS = ("imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size")  # llama-quantize takes none without


@dataclass(frozen=True)
class ImportanceMatrix:
    """Mean squared activations that met each column of a matrix."""

    path: Path
    weights: Mapping[str, NDArray[np.float32]]  # (n_experts, n_per_row) float32 by tensor name
    # (n_experts,) by tensor name: tokens that are in the means; the older format counts chunks instead
    counts: Mapping[str, NDArray[np.float64]]
    datasets: list[str] = field(default_factory=list)  # what it was made from: texts, and chunks of them
    n_chunks: int = 0

    def of(self, tensor: Tensor) -> NDArray[np.float32] | None:
        """Give the weights of a tensor's columns.

        Returns (n_experts, n_per_row) float32: None if the tensor is not in the matrix.
        Raises ModelFileError: the matrix has another number of values for the tensor.
        """
        weights = self.weights.get(tensor.name)
        if weights is None:
            return None
        n_experts = tensor.n_experts
        if weights.size != n_experts * tensor.n_per_row:
            if tensor.name.endswith("token_embd.weight"):  # llama-quantize passes over these too
                return None
            raise ModelFileError(
                f"{self.path}: {weights.size} values for tensor {tensor.name!r}, "
                f"which has {n_experts} x {tensor.n_per_row}: made from another model?"
            )
        return np.ascontiguousarray(weights, dtype=np.float32).reshape(n_experts, tensor.n_per_row)


def read_imatrix(file: AnyModel) -> ImportanceMatrix:
    """Read an importance matrix, GGUF or legacy.

    Raises ModelFileError: the file cannot be read, or its values are not finite or negative. The message
    names file and tensor.
    """
    with np.errstate(all="ignore"):  # what comes out infinite or NaN is refused below
        if isinstance(file, ModelFile) or is_gguf(Path(file)):
            matrix = _read_gguf(open_model(file))
        else:
            matrix = _read_legacy(Path(file))
    for name, weights in matrix.weights.items():
        check_values(matrix.path, f"values for tensor {name!r}", weights)
        check_values(matrix.path, f"counts of tokens for tensor {name!r}", matrix.counts[name])
    return matrix


def is_gguf(path: Path) -> bool:
    """Say whether a file begins as a GGUF does. Raises ModelFileError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # a zero byte in its name
        raise ModelFileError(f"{str(path)!r}: {error}") from None


def _read_gguf(file: ModelFile) -> ImportanceMatrix:
    path = file.path
    tensors = {tensor.name: tensor for tensor in file.tensors}
    weights, all_counts = {}, {}
    for name, tensor in tensors.items():
        if name.endswith(".counts") and f"{name.removesuffix('.counts')}.in_sum2" not in tensors:
            raise ModelFileError(f"{path}: counts but no sums for tensor {name.removesuffix('.counts')!r}")
        if not name.endswith(".in_sum2"):
            continue
        matrix = name.removesuffix(".in_sum2")
        if f"{matrix}.counts" not in tensors:
            raise ModelFileError(f"{path}: sums but no counts for tensor {matrix!r}")
        counts, sums = _floats(tensors[f"{matrix}.counts"]), _floats(tensor)
        if len(sums) % len(counts):
            raise ModelFileError(f"{path}: {len(sums)} sums for {len(counts)} counts of tensor {matrix!r}")
        sums, counts = sums.reshape(len(counts), -1), np.floor(counts + np.float32(0.5))  # as lround
        all_counts[matrix] = counts.astype(np.float64)
        # Experts that no token came to weigh every column alike, as in llama.cpp.
        seen = counts[:, None] > 0
        weights[matrix] = np.where(seen, sums / np.where(seen, counts[:, None], 1), 1).astype(np.float32)
    if not weights:
        raise ModelFileError(f"{path}: a GGUF file, but not an importance matrix")
    if missing := [key for key in KEYS if key not in file.keys]:
        raise ModelFileError(f"{path}: has no {', '.join(missing)}, so llama-quantize refuses it too")
    datasets, n_chunks, _ = map(file.get, KEYS)
    # One text, as some write it: llama-quantize takes it for none.
    if not isinstance(datasets, list) or not all(isinstance(dataset, str) for dataset in datasets):
        datasets = []
    if not isinstance(n_chunks, int) or not 0 <= n_chunks < 2**32:
        raise ModelFileError(f"{path}: imatrix.chunk_count is of another type")
    return ImportanceMatrix(path, weights, all_counts, datasets, n_chunks if n_chunks < 2**31 else 0)


def _floats(tensor: Tensor) -> NDArray[np.float32]:
    if tensor.type is not Type.F32:
        raise ModelFileError(f"{tensor.path}: tensor {tensor.name!r} is {tensor.type.name}, expected F32")
    return np.frombuffer(tensor.data(), np.float32)


def _read_legacy(path: Path) -> ImportanceMatrix:
    data = path.read_bytes()
    at = 0

    def take(n: int) -> bytes:
        nonlocal at
        if n < 0 or at + n > len(data):
            raise ModelFileError(f"{path}: not an importance matrix, or cut off at byte {len(data)}")
        at += n
        return data[at - n : at]

    def integer() -> int:
        return struct.unpack("<i", take(4))[0]

    weights: dict[str, NDArray[np.float32]] = {}
    counts: dict[str, NDArray[np.float64]] = {}
    for _ in range(min(integer(), MOST_TENSORS + 1)):
        name = take(integer()).decode(errors="replace")
        n_calls = integer()
        sums = np.frombuffer(take(4 * integer()), "<f4")
        weights[name] = (sums / max(n_calls, 1)).astype(np.float32)
        counts[name] = np.array([n_calls], np.float64)
    if not weights:
        raise ModelFileError(f"{path}: not an importance matrix")
    if len(weights) > MOST_TENSORS:
        raise ModelFileError(f"{path}: of more than {MOST_TENSORS:,} tensors")
    n_chunks, datasets = _legacy_origin(data[at:])
    return ImportanceMatrix(path, weights, counts, datasets, n_chunks)


def _legacy_origin(data: bytes) -> tuple[int, list[str]]:
    """Read the chunks and the text behind the matrices: as in llama.cpp, they need not be whole."""
    n_chunks, length = struct.unpack("<ii", data[:8].ljust(8, b"\0"))
    text = data[8 : 8 + max(length, 0)]
    is_whole = 0 < length == len(text)
    return n_chunks, [text.decode(errors="surrogateescape")] if is_whole else []


def write_imatrix(
    path: Path,
    sums: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float64]]],
    *,
    datasets: list[str],
    chunk_size: int,
    sources: list[Path],
    force: bool,
) -> None:
    """Write what llama-imatrix would write of the same sums, byte for byte.

    Parameters
    ----------
    sums
        By tensor name, (n_experts, n_per_row) float32 sums of squared activations, and (n_counts,) float64
        tokens that are in them.
    datasets
        Names of the texts.
    chunk_size
        Tokens of a chunk.
    sources
        Files that must not be replaced.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    header, data = _core.Gguf(), []
    header.set_text("general.type", "imatrix")
    header.set_texts("imatrix.datasets", datasets)
    most = max((counts.max() for _, counts in sums.values()), default=0)
    header.set_u32("imatrix.chunk_count", int(most // chunk_size))
    header.set_u32("imatrix.chunk_size", chunk_size)
    for name in sorted(sums, key=str.encode):
        squares, counts = sums[name]
        for suffix, values in (("in_sum2", squares), ("counts", counts[:, None].astype(np.float32))):
            header.add_tensor(f"{name}.{suffix}", Type.F32, values.shape[::-1])
            data.append(values.tobytes().ljust(padded(values.nbytes), b"\0"))
    write_bytes(path, b"".join([header.header(), *data]), sources=sources, force=force)
