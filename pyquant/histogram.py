"""Code histograms and zero runs of a model: as it is stored, or seen through a quantizer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.model_file import UNQUANTIZED, ModelFile, Tensor
from pyquant.schemes import Mode
from pyquant.schemes.base import grid_codes
from pyquant.statistics import RUN_BINS, entropy, geometric_runs, shares
from pyquant.tensor_pass import Progress, TensorReader

SCALE_BITS = 16 / 32  # an fp16 scale for each 32 codes

# What the nibbles of an IQ4_NL block stand for (ggml-common.h, kvalues_iq4nl).
IQ4_NL_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)


@dataclass(frozen=True)
class Codebook:
    """What the codes of a type stand for.

    stored: (n,) int, the codes as blocks hold them; values: (n,) int8, in multiples of the scale.
    zero_code: the stored code of value 0, or where there is none the one nearest to it: its runs
    are counted.
    """

    type: str
    stored: NDArray[np.int64]
    values: NDArray[np.int8]

    @property
    def nibbles(self) -> bool:
        return self.type != "Q8_0"

    @property
    def zero_code(self) -> int:
        return int(self.stored[np.abs(self.values.astype(int)).argmin()])

    @property
    def zero_value(self) -> int:
        return int(self.values[np.abs(self.values.astype(int)).argmin()])


CODEBOOKS = {
    Type.Q4_0: Codebook("Q4_0", np.arange(16), np.arange(-8, 8, dtype=np.int8)),
    Type.IQ4_NL: Codebook("IQ4_NL", np.arange(16), IQ4_NL_VALUES),
    Type.Q8_0: Codebook("Q8_0", np.arange(-128, 128) % 256, np.roll(grid_codes(), 128)),
}


@dataclass(frozen=True)
class CodeStatistics:
    """Counts over the codes of one tensor, or of all tensors of one type.

    counts: (n,) uint64, in the order of `codebook`. runs: (16,) uint64, runs of the zero code of
    length 1..15 and >= 16; a run ends with its row.
    """

    name: str
    codebook: Codebook
    counts: NDArray[np.uint64]
    runs: NDArray[np.uint64]

    @property
    def n_codes(self) -> int:
        return int(self.counts.sum())

    @property
    def zero_share(self) -> float:
        zeros = self.counts[self.codebook.stored == self.codebook.zero_code].sum()
        return float(zeros) / max(self.n_codes, 1)

    @property
    def entropy(self) -> float:
        """Order-0, in bits per code: what no coder of single codes can go below."""
        return entropy(self.counts)

    @property
    def isolated_share(self) -> float:
        """Share of runs of length 1."""
        return float(shares(self.runs)[0])

    def to_json(self) -> dict[str, Any]:
        used = self.counts > 0 if len(self.counts) > 16 else np.ones(len(self.counts), bool)
        book = self.codebook
        return {
            "name": self.name,
            "type": book.type,
            "n_codes": self.n_codes,
            "codes": [
                {"code": int(code), "value": int(value), "count": int(count), "share": float(share)}
                for code, value, count, share in zip(
                    book.stored[used], book.values[used], self.counts[used], shares(self.counts)[used]
                )
            ],
            "entropy": self.entropy,
            "entropy_bits_per_weight": self.entropy + SCALE_BITS,
            "zero_code": book.zero_code,
            "zero_value": book.zero_value,
            "zero_share": self.zero_share,
            "zero_runs": {
                "lengths": [*map(str, range(1, RUN_BINS)), f">={RUN_BINS}"],
                "counts": self.runs.tolist(),
                "shares": shares(self.runs).tolist(),
                "geometric": geometric_runs(self.zero_share).tolist(),
            },
        }


@dataclass(frozen=True)
class Histogram:
    """Code statistics of a model. totals: all counted tensors, by type. skipped: name to type."""

    model: str
    mode: str | None
    totals: list[CodeStatistics]
    tensors: list[CodeStatistics]
    skipped: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The histogram as `pyquant histogram --json` prints it."""
        return {
            "schema": "pyquant.histogram/1",
            "model": self.model,
            "mode": self.mode,
            "totals": [total.to_json() for total in self.totals],
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "skipped": self.skipped,
        }


def histogram(
    model: ModelFile | str | os.PathLike[str],
    mode: Mode | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Histogram:
    """Counts the codes of every Q4_0, Q8_0 and IQ4_NL tensor, in one pass over the file.

    mode: the quantizer through which to look at an unquantized model; nothing is written. Raises
    ModelFileError, also where there are no such tensors, and ConfigError.
    """
    from pyquant.quantize import make_plan  # the plan of a quantization that is not carried out

    model = model if isinstance(model, ModelFile) else ModelFile(model)
    if mode is None:
        book = {t.name: CODEBOOKS[t.type] for t in model.tensors if t.type in CODEBOOKS}
        target = {}
        types = {t.name: t.type for t in model.tensors}
    else:
        plan = make_plan(model, mode)
        types = plan.types
        changed = [t for t in model.tensors if plan.changes(t) and types[t.name] in CODEBOOKS]
        book = {t.name: CODEBOOKS[types[t.name]] for t in changed}
        target = {t.name: (plan.codec(t), plan.importance_of(t)) for t in changed}
    if not book:
        raise _nothing_to_count(model, mode)
    tensors = [t for t in model.tensors if t.name in book]
    counted = []
    with TensorReader(model, tensors, threads or (mode and mode.threads), progress) as reader:
        for tensor in tensors:
            work = dict(zip(("target", "importance"), target.get(tensor.name, ())))
            counted.append(_count(reader, tensor, book[tensor.name], **work))
    return Histogram(
        model=str(model.path),
        mode=mode.mode if mode else None,
        totals=_totals(counted),
        tensors=counted,
        skipped={name: kind.name for name, kind in types.items() if name not in book},
    )


def q8_0_codes(model: ModelFile, tensors: list[Tensor], *, threads: int | None = None) -> NDArray[np.uint64]:
    """(256,) uint64: how often each code occurs where these tensors are made Q8_0, modulo 256."""
    counts = np.zeros(256, np.uint64)
    with TensorReader(model, tensors, threads, None) as reader:
        for tensor in tensors:
            counts += reader.run(tensor, target=_core.ggml_codec(int(Type.Q8_0)), count=True).codes
    return counts


def _count(reader: TensorReader, tensor: Tensor, book: Codebook, **work: Any) -> CodeStatistics:
    result = reader.run(tensor, count=True, nibbles=book.nibbles, zero_code=book.zero_code, **work)
    return CodeStatistics(tensor.name, book, result.codes[book.stored], result.runs)


def _totals(counted: Iterable[CodeStatistics]) -> list[CodeStatistics]:
    totals: dict[str, CodeStatistics] = {}
    for one in counted:
        kind = one.codebook.type
        sum_so_far = totals.get(kind)
        totals[kind] = CodeStatistics(
            kind,
            one.codebook,
            one.counts + (sum_so_far.counts if sum_so_far else 0),
            one.runs + (sum_so_far.runs if sum_so_far else 0),
        )
    return list(totals.values())


def _nothing_to_count(model: ModelFile, mode: Mode | None) -> Exception:
    kinds = ", ".join(sorted({tensor.type.name for tensor in model.tensors}))
    if mode is not None:
        return ConfigError(f"mode: {mode.mode} makes no Q4_0, Q8_0 or IQ4_NL tensors of {model.path}")
    if all(tensor.type in UNQUANTIZED for tensor in model.tensors):
        return ModelFileError(
            f"{model.path}: not quantized ({kinds}); --mode says through which quantizer to look at it"
        )
    return ModelFileError(f"{model.path}: no tensor with countable codes (Q4_0, Q8_0, IQ4_NL) among {kinds}")
