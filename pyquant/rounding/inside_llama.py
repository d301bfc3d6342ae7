"""Quantize inside llama.cpp: its own llama_model_quantize, with pyquant's scheme in the hook.

GGML then quantizes every tensor of the scheme's block type by this scheme. The file equals that of
`pyquant.quantize_model` byte for byte, so a scheme works where llama.cpp would have it, and in other programs
that call the patched library.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError, OutputError
from pyquant.files.output_file import OutputFile, check_output
from pyquant.llama.interrupt import Interrupt
from pyquant.llama.library import bindings
from pyquant.llama.log import collect_errors, reason
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.pqz.as_gguf import as_gguf
from pyquant.models.tensor import UNQUANTIZED
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.metadata import importance_metadata, metadata
from pyquant.rounding.plan import Plan
from pyquant.schemes import Mode

_hook = threading.Lock()  # the process has one


def quantize_patched(
    source: AnyModel,
    output: str | os.PathLike[str],
    mode: Mode,
    *,
    threads: int | None = None,
    force: bool = False,
) -> None:
    """Quantize a model inside llama.cpp. Ctrl-C is heard only at the end.

    Parameters
    ----------
    source
        A path, or an opened model.
    output
        The GGUF to write. It appears complete or not at all.
    mode
        How; its calibration and tables of single tensors have to be left out.
    threads
        None: one for each core.
    force
        Replace an existing `output`.

    Raises
    ------
    ModelFileError
        llama.cpp cannot quantize the model.
    ConfigError
        llama.cpp's quantizer cannot do what the mode wants.
    OutputError
        `output` cannot be written.
    RuntimeLibraryError
        llama_cpp is missing, or uses another library.
    """
    llama = bindings()
    model = open_model(source)
    check_output(Path(output), sources=model.paths, force=force)
    plan = make_plan(model, mode, threads=threads)
    entries = importance_metadata(plan)
    if any(plan.changes_quantized(tensor) for tensor in model.tensors):
        raise ConfigError(
            f"{model.path}: is quantized; llama.cpp's quantizer is given unquantized models here"
        )
    if plan.calibration or any(plan.searched(tensor) for tensor in model.tensors):
        raise ConfigError(f"{mode.mode}: llama.cpp's quantizer sees no Hessians and no tables of tensors")
    if plan.scheme is not None:
        entries |= metadata(plan, model.sha256())
    overrides = _metadata_overrides(llama, entries)
    importance = _importance(llama, plan)
    types = _type_overrides(llama, plan)
    parameters = llama.llama_model_quantize_default_params()
    parameters.nthread = n_threads(threads)
    parameters.ftype = int(mode.file_type)
    parameters.pure = mode.pure
    parameters.kv_overrides = overrides
    parameters.imatrix = importance
    parameters.tt_overrides = types
    with (
        as_gguf(model) as stock,
        OutputFile(output, plan.output_bytes, sources=model.paths, force=force) as file,
        _scheme_in_hook(plan),
        collect_errors() as errors,
    ):
        names = os.fsencode(stock), os.fsencode(file.partial)
        doing = f"{model.path}: llama.cpp cannot quantize it"
        with Interrupt().held(), _core.AbortGuard(os.fsencode(doing)):
            status = llama.llama_model_quantize(*names, ctypes.byref(parameters))
        if status != 0:
            why = reason(errors, f"status {status}").removeprefix("failed to quantize: ")
            if "iostream error" in why:  # all that C++ says of a write that failed
                raise OutputError(f"{output}: llama.cpp cannot write it: no space left?")
            raise ModelFileError(f"{doing}: {why}")
        file.commit()


@contextmanager
def _scheme_in_hook(plan: Plan) -> Iterator[None]:
    with _hook:
        if plan.scheme is not None:
            _core.set_hook(plan.scheme.kernel())
        try:
            yield
        finally:
            _core.clear_hook()


def _metadata_overrides(llama: Any, entries: Mapping[str, str | int]) -> Any:
    overrides = (llama.llama_model_kv_override * (len(entries) + 1))()  # the last stays empty
    for override, (key, value) in zip(overrides, entries.items()):
        override.key = key.encode()
        if isinstance(value, int):
            override.tag = llama.LLAMA_KV_OVERRIDE_TYPE_INT
            override.value.val_i64 = value
            continue
        text = value.encode(errors="surrogateescape")
        if len(text) > 127:
            raise ConfigError(f"{key}: {len(text)} bytes of text; llama.cpp's quantizer takes 127")
        override.tag = llama.LLAMA_KV_OVERRIDE_TYPE_STR
        override.value.val_str = text
    return overrides


def _importance(llama: Any, plan: Plan) -> Any:
    if plan.importance is None:
        return None
    weights = plan.importance.weights
    entries = (llama.llama_model_imatrix_data * (len(weights) + 1))()
    for entry, (name, values) in zip(entries, weights.items()):
        entry.name = name.encode()
        entry.data = (ctypes.c_float * values.size).from_buffer_copy(
            np.ascontiguousarray(values, np.float32).data
        )
        entry.size = values.size
    return entries


def _type_overrides(llama: Any, plan: Plan) -> Any:
    """Name the planned type of each tensor, where llama.cpp would choose others."""
    if plan.mode.tensors is None and not plan.mode.q4_t and not plan.mode.types(plan.model):
        return None
    if Type(_core.default_type(int(plan.mode.file_type))) in UNQUANTIZED:
        raise ConfigError(f"tensors: llama.cpp's quantizer takes no choice of tensors for {plan.mode.mode}")
    overrides = (llama.llama_model_tensor_override * (len(plan.types) + 1))()
    for override, (name, type_) in zip(overrides, plan.types.items()):
        # A regular expression of C++, where only these characters may be escaped.
        override.pattern = ("^" + re.sub(r"[.^$*+?()\[\]{}|\\]", r"\\\g<0>", name) + "$").encode()
        override.type = int(type_)
    return overrides
