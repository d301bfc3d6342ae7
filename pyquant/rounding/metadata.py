"""Write what a file says of its making: metadata under "pyquant." and "quantize.imatrix."."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gguf import GGML_QUANT_VERSION

from pyquant import _core
from pyquant.calibration.imatrix import ImportanceMatrix
from pyquant.machine.caches import cache_folder
from pyquant.models.header import EQUALIZED_FROM, LAYOUT_KEYS, set_metadata, split_keys
from pyquant.models.model_file import ModelFile
from pyquant.models.q4_t import Q4_T_FILE_TYPE, table_entries
from pyquant.models.type_policy import copied_file_type
from pyquant.rounding.plan import Plan
from pyquant.schemes.asked import parameters_of
from pyquant.schemes.dampening import ROWS

# What is done, in the words of people.
GPTQ = "GPTQ"
OUTPUT_SIDE = "output-side Hessian"
EQUALIZATION = "cross-layer equalization"
PROPAGATION = "error propagation"
TRAINED_SCALES = "trained scales"

METHOD = "pyquant.method"  # says which of these
MOST_TEXT = 127  # bytes of a text that llama-quantize keeps


def metadata(plan: Plan, sha256: str) -> dict[str, str | int]:
    """List what pyquant says of a file's making: only what was done.

    Parameters
    ----------
    sha256
        The hash of the source, in hex.

    Returns
    -------
    Metadata by key; empty for files that llama-quantize makes of an unquantized model too.
        pyquant.requantized_from: the types of tensors that were quantized already. pyquant.mode and the
        mode's parameters. Where GPTQ rounds pyquant.version, pyquant.method: all that was done,
        pyquant.texts.sha256: hashes of the texts that it was calibrated on, separated by spaces,
        pyquant.dampening and pyquant.error_propagation; pyquant.row_dampening, with the output-side Hessian.
        pyquant.without_gptq: the names of quantized tensors where they are not, separated by spaces.
        Tables of Q4_T tensors. pyquant.source.sha256.
    """
    mode, scheme = plan.mode, plan.scheme
    entries: dict[str, str | int] = {}
    if plan.requantized_from:
        entries["pyquant.requantized_from"] = " ".join(plan.requantized_from)
    if scheme is None and plan.calibration is None:
        return entries
    entries["pyquant.mode"] = mode.mode
    for key, value in parameters_of(mode, scheme).items():
        entries[f"pyquant.{key}"] = value
    if any(plan.by_gptq(tensor) for tensor in plan.model.tensors):
        entries["pyquant.version"] = _core.build_info()["pyquant"]
        entries[METHOD] = ", ".join(_methods(plan))
        if hashes := _text_hashes(plan):
            entries["pyquant.texts.sha256"] = " ".join(hashes)
        entries["pyquant.dampening"] = f"{mode.dampening:g}"
        if mode.error_propagation:
            entries["pyquant.error_propagation"] = mode.error_propagation
        if any(plan.has_output_side(tensor) for tensor in plan.model.tensors):
            entries["pyquant.row_dampening"] = f"{ROWS:g}"
        others = [tensor.name for tensor in plan.model.tensors if plan.without_gptq(tensor)]
        if others:
            entries["pyquant.without_gptq"] = " ".join(others)
    if scheme is not None and scheme.q4_t:
        q4_t = (name for name, type_ in plan.types.items() if type_ == scheme.storage)
        entries |= table_entries((name, scheme.table_of(name)) for name in q4_t)
        entries["general.file_type"] = Q4_T_FILE_TYPE
    return {**entries, "pyquant.source.sha256": sha256}


def _methods(plan: Plan) -> Iterator[str]:
    yield GPTQ
    if any(plan.has_output_side(tensor) for tensor in plan.model.tensors):
        yield OUTPUT_SIDE
    if EQUALIZED_FROM in plan.model.keys:
        yield EQUALIZATION
    if plan.mode.error_propagation:
        yield PROPAGATION


def _text_hashes(plan: Plan) -> list[str]:
    origin = plan.calibration.origin if plan.calibration else None
    return [text.sha256 for text in origin.texts if text.sha256] if origin else []


def importance_metadata(plan: Plan) -> dict[str, str | int]:
    """List the keys that llama-quantize writes for an importance matrix; none if the file owes it nothing."""
    return _importance_entries(plan.importance) if plan.importance and plan.uses_importance else {}


def _importance_entries(importance: ImportanceMatrix) -> dict[str, str | int]:
    entries: dict[str, str | int] = {"quantize.imatrix.file": _cut(_called(importance.path))}
    if importance.datasets:
        entries["quantize.imatrix.dataset"] = _cut(importance.datasets[0])
    entries["quantize.imatrix.entries_count"] = len(importance.weights)
    if importance.n_chunks > 0:
        entries["quantize.imatrix.chunks_count"] = importance.n_chunks
    return entries


def most_importance_bytes() -> int:
    """Count the bytes that the keys of an importance matrix take at the most."""
    text = "x" * MOST_TEXT
    called = ImportanceMatrix(Path(text), {}, {}, [text], n_chunks=1)
    return _n_bytes(_importance_entries(called))


def most_method_bytes(model: ModelFile) -> int:
    """Count the bytes that GPTQ adds to metadata at the most, of up to 32 texts."""
    every = sum(len(tensor.name.encode()) + 1 for tensor in model.tensors)
    return every + 32 * 65 + 2048  # names, hashes of 64 digits, and all other keys


def most_equalization_bytes() -> int:
    """Count the bytes that a file's metadata grow by at the most where its model is equalized."""
    hash_and_method = "0" * 64 + f", {EQUALIZATION}"  # the latter in another text, which is there anyway
    return _n_bytes({EQUALIZED_FROM: hash_and_method})


def most_trained_bytes() -> int:
    """Count the bytes that a file's metadata grow by at the most where its scales are trained."""
    return _n_bytes({METHOD: f", {TRAINED_SCALES}"})


def _n_bytes(entries: dict[str, str | int]) -> int:
    header = _core.Gguf()
    set_metadata(header, entries)
    return len(header.header())


def _outdated(plan: Plan) -> set[str]:
    """List what the source says of blocks that its quantized tensors no longer have."""
    tensors = plan.model.tensors
    if not any(plan.changes_quantized(tensor) for tensor in tensors):
        return set()
    kept = ((tensor.name, tensor.table) for tensor in tensors if tensor.table and not plan.changes(tensor))
    return {key for key in plan.model.keys if key.startswith("pyquant.")} - table_entries(kept).keys()


def _called(path: Path) -> str:
    """Call what is in the cache alike for everyone: a file that is published tells nothing of its maker."""
    cache = cache_folder()
    return str(path.relative_to(cache) if cache and path.is_relative_to(cache) else path)


def _cut(text: str) -> str:
    return text.encode(errors="surrogateescape")[:MOST_TEXT].decode(errors="surrogateescape")


def fill_header(plan: Plan) -> None:
    """Write the metadata and tensors of all files into their headers; shards behind the first have few.

    The source's hash is written as zeros where it is not known yet.
    """
    header, model = plan.files[0].header, plan.model
    header.copy_keys(model.header)
    header.set_u32("general.quantization_version", GGML_QUANT_VERSION)
    file_type = copied_file_type(model) if plan.mode.copies else int(plan.mode.stated_type)
    header.set_u32("general.file_type", file_type)
    for key in (*LAYOUT_KEYS, *_outdated(plan)):
        header.remove(key)
    set_metadata(header, importance_metadata(plan))
    set_metadata(header, metadata(plan, sha256=plan.sha256 or "0" * 64))
    for number, file in enumerate(plan.files):
        if plan.sharding:
            keys = plan.sharding.keys(number, len(plan.files), len(model.tensors))
            file.header.copy_keys(split_keys(keys))
        for tensor in file.tensors:
            file.header.add_tensor(tensor.name, int(plan.types[tensor.name]), tensor.shape)
