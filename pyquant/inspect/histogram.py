"""Code histograms and zero runs of a model: as it is stored, or seen through a quantizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.formulas import RUN_BINS, entropy, geometric_runs, shares
from pyquant.models.codebook import Codebook, codebook, stored_table, tensor_codebook
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.tensor import UNQUANTIZED, Tensor
from pyquant.models.tensor_reader import Progress, TensorReader
from pyquant.models.tensor_type import TensorType as Type
from pyquant.quantize.make_plan import make_plan
from pyquant.quantize.plan import Part
from pyquant.schemes import Mode
from pyquant.schemes.q8_0 import Q8_0

SCHEMA = "pyquant.histogram/1"
SCALE_BITS = 16 / 32  # an fp16 scale for each 32 codes


@dataclass(frozen=True)
class CodeCounts:
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
        return float(self.counts[self.codebook.zero]) / max(self.n_codes, 1)

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
            "type": book.name,
            "n_codes": self.n_codes,
            "codes": [
                {"code": int(code), "value": int(value), "count": int(count), "share": float(share)}
                for code, value, count, share in zip(
                    book.codes[used], book.values[used], self.counts[used], shares(self.counts)[used]
                )
            ],
            "entropy": self.entropy,
            "entropy_bits_per_weight": self.entropy + SCALE_BITS,
            "zero_code": int(book.codes[book.zero]),
            "zero_value": int(book.values[book.zero]),
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
    """Code statistics of a model. mode, parameters: of the quantizer it was seen through, if any.
    totals: all counted tensors, by type. skipped: name to type."""

    model: str
    mode: str | None
    parameters: dict[str, str | int]
    totals: list[CodeCounts]
    tensors: list[CodeCounts]
    skipped: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The histogram as `pyquant histogram --json` prints it."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "mode": self.mode,
            "parameters": self.parameters,
            "totals": [total.to_json() for total in self.totals],
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "skipped": self.skipped,
        }


def count_codes(
    model: AnyModel,
    mode: Mode | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Histogram:
    """Counts the codes of every Q4_0, Q8_0, IQ4_NL and Q4_T tensor, in one pass over the file.

    mode: the quantizer through which to look at an unquantized model; nothing is written. Raises
    ModelFileError, also where there are no such tensors, and ConfigError.
    """
    model = open_model(model)
    if mode is None:
        types = {tensor.name: tensor.type for tensor in model.tensors}
        stored = stored_table(model)
        books = {tensor.name: tensor_codebook(tensor, stored) for tensor in model.tensors}
    else:
        plan = make_plan(model, mode, threads=threads)
        types = plan.types
        changed = [tensor for tensor in model.tensors if plan.changes(tensor)]
        # Of a Q4_0 mixture some tensors become plain Q8_0: they have no table.
        table = plan.scheme.values if plan.scheme and plan.scheme.storage != Type.Q4_0 else None
        books = {tensor.name: codebook(types[tensor.name], table) for tensor in changed}
    book = {name: one for name, one in books.items() if one is not None}
    tensors = [tensor for tensor in model.tensors if tensor.name in book]
    if not book:
        raise _nothing_to_count(model, mode)
    counted = []
    with (
        TensorReader(model, tensors, threads, progress) as reader,
        plan.factors() if mode else nullcontext() as factors,
    ):
        for tensor in tensors:
            parts = plan.parts(tensor, factors) if mode else [Part(tensor, None, None, tensor.n_bytes)]
            results = [
                reader.run(
                    part.tensor, target=part.target, importance=part.importance, **counting(book[tensor.name])
                )
                for part in parts
            ]
            counted.append(counted_codes(tensor, book[tensor.name], results))
    return Histogram(
        model=str(model.path),
        mode=mode.mode if mode else None,
        parameters=mode.parameters(plan.scheme) if mode else {},
        totals=_totals(counted),
        tensors=counted,
        skipped={name: kind.name for name, kind in types.items() if name not in book},
    )


def code_counts(
    source: Path, *, threads: int | None = None, progress: Progress | None = None
) -> NDArray[np.uint64]:
    """(256,) uint64, modulo 256: Q8_0 codes of a model, or those of a histogram stored as JSON.

    Raises ModelFileError.
    """
    if source.suffix == ".json":
        totals = _read_histogram(source)
    else:
        model = ModelFile(source)
        mode = Q8_0(mode="q8_0") if all(t.type in UNQUANTIZED for t in model.tensors) else None
        totals = count_codes(model, mode, threads=threads, progress=progress).to_json()["totals"]
    counts = np.zeros(256, np.uint64)
    for total in totals:
        if total["type"] == Type.Q8_0.name:
            for code in total["codes"]:
                counts[code["code"] % 256] += np.uint64(code["count"])
    if not counts.any():
        raise ModelFileError(f"{source}: no Q8_0 codes in it")
    return counts


def _read_histogram(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise KeyError
        return content["totals"]
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file") from None
    except (ValueError, KeyError, TypeError):
        raise ModelFileError(f"{path}: not a histogram that `pyquant histogram --json` wrote") from None


def counting(book: Codebook) -> dict[str, Any]:
    """What a pass is to be told for it to count these codes."""
    zero_code = int(book.stored[book.zero])
    return {"count": True, "nibbles": book.storage != Type.Q8_0, "zero_code": zero_code}


def counted_codes(tensor: Tensor, book: Codebook, results: Sequence[_core.PassResult]) -> CodeCounts:
    """What such passes over the tensor's parts have counted. Raises ModelFileError."""
    counts = sum(result.codes for result in results)[book.stored]
    if counts.sum() != tensor.n_weights:
        raise ModelFileError(
            f"{tensor.path}: tensor {tensor.name!r} has codes that are not in the table of its metadata"
        )
    return CodeCounts(tensor.name, book, counts, sum(result.runs for result in results))


def _totals(counted: Iterable[CodeCounts]) -> list[CodeCounts]:
    totals: dict[tuple[str, bytes], CodeCounts] = {}  # counts of different tables do not add up
    for one in counted:
        kind = one.codebook.name, one.codebook.values.tobytes()
        sum_so_far = totals.get(kind)
        totals[kind] = CodeCounts(
            one.codebook.name,
            one.codebook,
            one.counts + (sum_so_far.counts if sum_so_far else 0),
            one.runs + (sum_so_far.runs if sum_so_far else 0),
        )
    return list(totals.values())


def _nothing_to_count(model: ModelFile, mode: Mode | None) -> Exception:
    kinds = ", ".join(sorted({tensor.type.name for tensor in model.tensors}))
    if mode is not None:
        return ConfigError(f"mode: {mode.mode} makes no tensors with countable codes of {model.path}")
    if all(tensor.type in UNQUANTIZED for tensor in model.tensors):
        return ModelFileError(
            f"{model.path}: not quantized ({kinds}); --mode says through which quantizer to look at it"
        )
    return ModelFileError(
        f"{model.path}: no tensor with countable codes (Q4_0, Q8_0, IQ4_NL, Q4_T) among {kinds}"
    )
