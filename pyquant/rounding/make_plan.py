"""Decide a quantization before any work is done: types, scheme, what is known of inputs, the new header."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.imatrix import ImportanceMatrix
from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_reader import TensorReader
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.metadata import fill_header
from pyquant.rounding.needed_importance import check_importance
from pyquant.rounding.plan import Plan, PlannedFile, bytes_as
from pyquant.rounding.shards import Sharding
from pyquant.rounding.types import choose_types, whole_blocks
from pyquant.schemes import Mode, Scheme
from pyquant.schemes.asked import scheme_of
from pyquant.schemes.q8_0 import q8_0


def make_plan(
    model: ModelFile,
    mode: Mode,
    *,
    threads: int | None = None,
    sharding: Sharding | None = None,
    calibrates: bool = False,
    collects: bool = True,
) -> Plan:
    """Decide everything about a quantization.

    sharding: how tensors are divided into files; None: all are in one.
    calibrates: whether importances will be known that are not yet.
    collects: whether Hessians that the statistics lack are collected while the model runs.

    The model's weights are read only where its table is made from them, or its hash is needed.

    Raises ModelFileError: the model cannot be quantized, or the calibration is of another model. ConfigError:
    the mode does not fit the model or the calibration.
    """
    model = sharding.ordered(model) if sharding else model
    calibration = Calibration.read(mode.hessian) if mode.hessian else None
    if mode.error_propagation and not (calibration and calibration.origin):
        raise ConfigError("error_propagation: needs --hessian with a file that `pyquant calibrate` wrote")
    importance = _importance(mode, calibration)
    types, wanted = choose_types(model, mode, has_importance=calibrates or importance is not None)
    sha256 = None
    if calibration:
        sha256 = model.sha256()
        calibration.check_model(model, sha256)
    folded = [t for t in model.tensors if types[t.name] == Type.Q8_0 and types[t.name] != t.type]
    scheme = scheme_of(mode, lambda: q8_0_codes(model, folded, threads=threads))
    if scheme is not None and mode.q4_t:
        scheme = replace(scheme, q4_t=True)
    if scheme is not None:
        types = {t.name: _scheme_type(scheme, t, types[t.name], calibration) for t in model.tensors}
        wanted = {
            t.name: _scheme_type(scheme, whole_blocks(t), wanted[t.name], calibration) for t in model.tensors
        }
        _check_scheme(model, mode, scheme, types)
    if not calibrates:
        check_importance(model, mode, types, importance)
    stored = [model.tensors]
    if sharding:
        stored = sharding.divide(model.tensors, lambda tensor: bytes_as(types[tensor.name], tensor))
    files = [PlannedFile(_core.Gguf(), tensors) for tensors in stored]
    plan = Plan(
        model, mode, scheme, calibration, importance, types, wanted, files, sharding, sha256, threads,
        collects,
    )  # fmt: skip
    if mode.error_propagation and plan.requantized_from:
        raise ConfigError(
            f"error_propagation: {model.path} is quantized, and a running copy of it holds no other weights; "
            f"`pyquant dequantize` makes a model for it"
        )
    fill_header(plan)
    return plan


def only(plan: Plan, tensors: list[Tensor]) -> Plan:
    """Restrict a plan to some of the model's tensors: a file of these alone, without error propagation."""
    model = copy(plan.model)
    model.tensors = tensors
    mode = plan.mode.model_copy(update={"error_propagation": None})
    part = replace(plan, model=model, mode=mode, files=[PlannedFile(_core.Gguf(), tensors)], sharding=None)
    fill_header(part)
    return part


def _scheme_type(scheme: Scheme, tensor: Tensor, chosen: Type, calibration: Calibration | None) -> Type:
    """Give the type that the scheme makes of a tensor for which llama.cpp's policy chose another."""
    if chosen != scheme.stock or chosen == tensor.type:
        return chosen
    its_own = scheme.type_of(tensor, calibration)
    return scheme.storage if its_own == scheme.stock else its_own


def _check_scheme(model: ModelFile, mode: Mode, scheme: Scheme, types: dict[str, Type]) -> None:
    """Refuse a scheme that makes no tensor: the file would say that it did. Raises ConfigError.

    A vocabulary without tensors is copied, as llama-quantize does, and so is what the stock type is already.
    """
    if scheme.tables:
        scheme.tables.check(model)
    kept = [tensor for tensor in model.tensors if types[tensor.name] == scheme.stock == tensor.type]
    made = any(types[tensor.name] == scheme.storage != tensor.type for tensor in model.tensors)
    if made or not model.tensors or (kept and scheme.is_stock):
        return
    stock = scheme.stock.name
    why = f"no tensor becomes {stock}, whose blocks hold its codes"
    if kept:
        why = f"its tensors are {stock} already, and stay; `pyquant dequantize` makes a model for it"
    raise ConfigError(f"{mode.mode}: makes nothing of {model.path}: {why}")


def _importance(mode: Mode, calibration: Calibration | None) -> ImportanceMatrix | None:
    if calibration and mode.imatrix:
        raise ConfigError("imatrix: Hessian statistics hold one; give either --imatrix or --hessian")
    known = calibration or (Calibration.read(mode.imatrix) if mode.imatrix else None)
    return known.importance() if known else None


def q8_0_codes(model: ModelFile, tensors: list[Tensor], *, threads: int | None = None) -> NDArray[np.uint64]:
    """Count the codes of tensors that are made Q8_0.

    Returns
    -------
    (256,) uint64
        How often each code occurs, indexed by the code modulo 256.
    """
    counts = np.zeros(256, np.uint64)
    target = _core.scheme_encoder(q8_0().kernel())
    with TensorReader(model, tensors, threads, None) as reader:
        for tensor in tensors:
            counts += reader.run(tensor, target=target, count=True).codes
    return counts
