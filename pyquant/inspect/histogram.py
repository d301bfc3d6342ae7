"""Count the codes and the zero runs of a model: as it is stored, or seen through a quantizer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.files.json import read_json
from pyquant.files.temporary import temporary_folder
from pyquant.inspect.code_counts import SCHEMA, CodeCounts, Histogram
from pyquant.models.codebook import Codebook, codebook, stored_table, tensor_codebook
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.progress import Progress
from pyquant.models.tensor import UNQUANTIZED, Tensor
from pyquant.models.tensor_reader import TensorReader
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.plan import Plan
from pyquant.rounding.quantize_model import write_plan
from pyquant.schemes import Mode
from pyquant.schemes.asked import parameters_of
from pyquant.schemes.q8_0 import Q8_0


def count_codes(
    model: AnyModel,
    mode: Mode | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Histogram:
    """Count the codes of every Q4_0, Q8_0, IQ4_NL and Q4_T tensor, in one pass over the file.

    Parameters
    ----------
    model
        A path, or an opened model.
    mode
        The quantizer through which to look at an unquantized model; nothing is written.
    threads
        None: one for each core.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        The model cannot be read, or has no such tensors.
    ConfigError
        The mode does not fit the model, or makes no such tensors.
    """
    model = open_model(model)
    if mode is not None and mode.equalize:
        from pyquant.rounding.equalize.equalize_model import equalized

        with equalized(model, mode, threads) as (scaled, plain):
            seen = count_codes(scaled, plain, threads=threads, progress=progress)
        return replace(seen, model=str(model.path))
    if mode is None:
        types = {tensor.name: tensor.type for tensor in model.tensors}
        stored = stored_table(model)
        counts = _count(
            model, {t.name: tensor_codebook(t, stored) for t in model.tensors}, None, threads, progress
        )
        parameters: dict[str, str | int] = {}
    else:
        plan = make_plan(model, mode, threads=threads)
        types, parameters = plan.types, parameters_of(mode, plan.scheme)
        # Some tensors of a Q4_0 mixture become plain Q8_0: they have no table.
        scheme = plan.scheme if plan.scheme and plan.scheme.storage != Type.Q4_0 else None
        changed = [tensor for tensor in model.tensors if plan.changes(tensor)]
        books = {
            tensor.name: codebook(types[tensor.name], scheme.values_of(tensor.name) if scheme else None)
            for tensor in changed
        }
        if plan.staged or any(map(plan.has_output_side, changed)):  # no tensor is rounded alone
            with temporary_folder() as folder:
                made = folder / "model.gguf"
                write_plan(plan, made, threads, False, progress)
                counts = _count(ModelFile(made), books, None, threads, None)
        else:
            counts = _count(model, books, plan, threads, progress)
    if not counts:
        raise _nothing_to_count(model, mode)
    counted = {tensor.name for tensor in counts}
    return Histogram(
        model=str(model.path),
        mode=mode.mode if mode else None,
        parameters=parameters,
        totals=_totals(counts),
        tensors=counts,
        skipped={name: type_.name for name, type_ in types.items() if name not in counted},
    )


def _count(
    model: ModelFile,
    codebooks: dict[str, Codebook | None],
    plan: Plan | None,
    threads: int | None,
    progress: Progress | None,
) -> list[CodeCounts]:
    """Count the codes of the tensors that have a codebook; plan: what they are seen through."""
    books = {name: book for name, book in codebooks.items() if book is not None}
    tensors = [tensor for tensor in model.tensors if tensor.name in books]
    with TensorReader(model, tensors, threads, progress) as reader:
        if plan is None:
            return [
                counted_codes(t, books[t.name], [reader.run(t, target=None, **counting(books[t.name]))])
                for t in tensors
            ]
        counts = []
        with plan.factors(threads) as factors:
            for tensor in tensors:
                book = books[tensor.name]
                passes = [
                    reader.run(part.tensor, target=part.target, importance=part.importance, **counting(book))
                    for part in plan.parts(tensor, factors)
                ]
                counts.append(counted_codes(tensor, book, passes))
        return counts


def code_counts(
    source: AnyModel, *, threads: int | None = None, progress: Progress | None = None
) -> NDArray[np.uint64]:
    """Count the Q8_0 codes of a model, or read them from a stored histogram.

    source: a model, by its path or opened, or a histogram that `pyquant histogram --json` wrote. An
    unquantized model is seen through mode q8_0.
    Returns (256,) uint64: how often each code occurs, indexed by the code modulo 256.
    Raises ModelFileError: the file cannot be read, or has no Q8_0 codes.
    """
    counts = np.zeros(256, np.uint64)
    if not isinstance(source, ModelFile) and Path(source).suffix == ".json":
        name: str | os.PathLike[str] = source
        for code, count in _read_histogram(Path(source)):
            counts[code % 256] += np.uint64(count)
    else:
        model = open_model(source)
        name = model.path
        mode = Q8_0(mode="q8_0") if all(t.type in UNQUANTIZED for t in model.tensors) else None
        for tensors in count_codes(model, mode, threads=threads, progress=progress).totals:
            if tensors.codebook.name == Type.Q8_0.name:
                counts[tensors.codebook.codes % 256] += tensors.counts
    if not counts.any():
        raise ModelFileError(f"{name}: no Q8_0 codes in it")
    return counts


def _read_histogram(path: Path) -> list[tuple[int, int]]:
    """(code, count) of Q8_0 codes."""
    try:
        content = read_json(path)
        totals = [total["codes"] for total in content["totals"] if total["type"] == Type.Q8_0.name]
        counts = [(code["code"], code["count"]) for codes in totals for code in codes]
        if content["schema"] != SCHEMA or not all(_is_count(*pair) for pair in counts):
            raise ValueError
        return counts
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file") from None
    except (ValueError, KeyError, TypeError):
        raise ModelFileError(f"{path}: not a histogram that `pyquant histogram --json` wrote") from None


def _is_count(code: object, count: object) -> bool:
    return type(code) is int and -128 <= code < 256 and type(count) is int and 0 <= count < 2**48


def counting(book: Codebook) -> dict[str, Any]:
    """List the arguments with which a pass counts the codes of a codebook."""
    zero_code = int(book.stored[book.zero])
    return {"count": True, "nibbles": book.storage != Type.Q8_0, "zero_code": zero_code}


def counted_codes(
    tensor: Tensor, book: Codebook, passes: Sequence[_core.PassResult | _core.ComparisonResult]
) -> CodeCounts:
    """Add up what passes over the parts of a tensor counted.

    Raises ModelFileError: the tensor has codes that are not in the codebook.
    """
    counts = sum((one_pass.codes for one_pass in passes), np.zeros(256, np.uint64))[book.stored]
    if counts.sum() != tensor.n_weights:
        raise ModelFileError(
            f"{tensor.path}: tensor {tensor.name!r} has codes that are not in the table of its metadata"
        )
    first, *others = passes
    return CodeCounts(tensor.name, book, counts, sum((one_pass.runs for one_pass in others), first.runs))


def _totals(counts: Iterable[CodeCounts]) -> list[CodeCounts]:
    totals: dict[tuple[str, bytes], CodeCounts] = {}  # counts of different tables do not add up
    for tensor in counts:
        book = tensor.codebook
        key = book.name, book.values.tobytes()
        before = totals.get(key)
        totals[key] = CodeCounts(
            book.name,
            book,
            tensor.counts if before is None else before.counts + tensor.counts,
            tensor.runs if before is None else before.runs + tensor.runs,
        )
    return list(totals.values())


def _nothing_to_count(model: ModelFile, mode: Mode | None) -> Exception:
    model.architecture  # noqa: B018 - what is no model has none, and is refused for that
    if not model.tensors:
        return ModelFileError(f"{model.path}: has no tensors")
    types = ", ".join(sorted({tensor.type.name for tensor in model.tensors}))
    if mode is not None:
        quantized = any(tensor.type not in UNQUANTIZED for tensor in model.tensors)
        hint = ", which is quantized: its own codes are counted without a mode" if quantized else ""
        return ConfigError(f"mode: {mode.mode} makes no tensors with countable codes of {model.path}{hint}")
    if all(tensor.type in UNQUANTIZED for tensor in model.tensors):
        return ModelFileError(
            f"{model.path}: not quantized ({types}); --mode says through which quantizer to look at it"
        )
    return ModelFileError(
        f"{model.path}: no tensor with countable codes (Q4_0, Q8_0, IQ4_NL, Q4_T) among {types}"
    )
