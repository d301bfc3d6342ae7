"""From a model to a quantized model, tensor by tensor, in bounded memory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.files.output_file import OutputFile, check_output
from pyquant.files.sha256 import SourceHash
from pyquant.formulas import rmse, snr_db
from pyquant.models.header import set_metadata
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_reader import Progress, TensorReader
from pyquant.quantize.plan import Plan, make_plan
from pyquant.schemes import Mode


@dataclass(frozen=True)
class TensorResult:
    """What became of a tensor; the sums are None where its weights were only copied.

    squared_error, squared_weight: sums over its weights. zeros: weights that decode to 0.
    """

    name: str
    source_type: str
    type: str
    n_weights: int
    n_bytes: int
    squared_error: float | None = None
    squared_weight: float | None = None
    zeros: int | None = None

    @property
    def quantized(self) -> bool:
        return self.type != self.source_type

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "source_type": self.source_type,
            "type": self.type,
            "n_weights": self.n_weights,
            "n_bytes": self.n_bytes,
            **errors_of([self]),
        }


def errors_of(reports: list[TensorResult]) -> dict[str, float | None]:
    """Error of these tensors together: rmse (in units of weights), snr_db, zero_share."""
    measured = [report for report in reports if report.squared_error is not None]
    if not measured:
        return {"rmse": None, "snr_db": None, "zero_share": None}
    error = sum(report.squared_error for report in measured)
    n_weights = sum(report.n_weights for report in measured)
    return {
        "rmse": rmse(error, n_weights),
        "snr_db": snr_db(sum(report.squared_weight for report in measured), error),
        "zero_share": sum(report.zeros for report in measured) / n_weights,
    }


@dataclass(frozen=True)
class QuantizeResult:
    """What a quantization did, or, of a dry run, would do. Sizes are whole files, in bytes."""

    source: str
    output: str
    mode: str
    parameters: dict[str, str | int]
    source_bytes: int
    output_bytes: int
    n_weights: int
    seconds: float
    tensors: list[TensorResult]

    @property
    def bits_per_weight(self) -> float:
        """Of the tensors' data, as llama-quantize prints it."""
        return 8 * sum(tensor.n_bytes for tensor in self.tensors) / self.n_weights

    def to_json(self) -> dict[str, Any]:
        """The report as `pyquant quantize --json` prints it."""
        return {
            "schema": "pyquant.quantize/1",
            "source": self.source,
            "output": self.output,
            "mode": self.mode,
            "parameters": self.parameters,
            "source_bytes": self.source_bytes,
            "output_bytes": self.output_bytes,
            "bits_per_weight": self.bits_per_weight,
            "n_weights": self.n_weights,
            "n_quantized": sum(t.n_weights for t in self.tensors if t.quantized),
            **errors_of(self.tensors),
            "seconds": self.seconds,
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def quantize_model(
    source: AnyModel,
    output: str | os.PathLike[str],
    mode: Mode,
    *,
    threads: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> QuantizeResult:
    """Writes `source`, quantized by `mode`, to `output`, and says what that did.

    `output` appears complete or not at all, and is replaced only with `force`. dry_run: only sizes,
    nothing is written. Raises ModelFileError, ConfigError and OutputError.
    """
    begin = time.perf_counter()
    model = open_model(source)
    if not dry_run:
        check_output(Path(output), sources=model.paths, force=force)
    plan = make_plan(model, mode, threads=threads)
    reports = (
        [_report(plan, tensor) for tensor in model.tensors]
        if dry_run
        else _write(plan, Path(output), threads, force, progress)
    )
    return QuantizeResult(
        source=str(model.path),
        output=str(output),
        mode=mode.mode,
        parameters=mode.parameters(plan.scheme),
        source_bytes=model.n_bytes,
        output_bytes=plan.output_bytes,
        n_weights=model.n_weights,
        seconds=time.perf_counter() - begin,
        tensors=reports,
    )


def _write(
    plan: Plan, output: Path, threads: int | None, force: bool, progress: Progress | None
) -> list[TensorResult]:
    model, mode = plan.model, plan.mode
    reports: dict[str, TensorResult] = {}
    with (
        SourceHash(model.paths if plan.scheme is not None and plan.sha256 is None else []) as source_hash,
        OutputFile(output, plan.output_bytes, sources=model.paths, force=force) as file,
        TensorReader(model, model.tensors, threads, progress) as reader,
        plan.factors() as factors,
    ):

        def write(tensor: Tensor, weights: NDArray[np.float32] | None = None) -> None:
            results, offset = [], plan.offset(tensor)
            run = reader.run if weights is None else partial(reader.run_weights, weights=weights)
            for part in plan.parts(tensor, factors):
                work = {"check": True} if part.target is None else {"measure": True}
                results.append(
                    run(
                        part.tensor, out_file=file.fileno(), out_offset=offset, target=part.target,
                        importance=part.importance, **work,
                    )
                )  # fmt: skip
                offset += part.n_bytes
            reports[tensor.name] = _report(plan, tensor, results)

        def write_and_read(tensor: Tensor, weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
            write(tensor, weights)
            return plan.made(tensor, file.partial).weights()

        if mode.sequential:
            from pyquant.quantize.in_order import write_in_order

            write_in_order(
                model, plan.calibration, plan.in_order, mode.sequential, write_and_read, threads=threads
            )
        for tensor in model.tensors:
            if tensor.name not in reports:
                write(tensor)
        if plan.scheme is not None and plan.sha256 is None:
            set_metadata(plan.header, {"pyquant.source.sha256": source_hash.result()})
        file.write(plan.header.header(), 0)
        file.commit()
    return [reports[tensor.name] for tensor in model.tensors]


def _report(plan: Plan, tensor: Tensor, results: Sequence[_core.PassResult] = ()) -> TensorResult:
    report = TensorResult(
        name=tensor.name,
        source_type=tensor.type.name,
        type=plan.types[tensor.name].name,
        n_weights=tensor.n_weights,
        n_bytes=plan.n_bytes(tensor),
    )
    if not results or not plan.changes(tensor):
        return report
    return replace(
        report,
        squared_error=sum(result.squared_error for result in results),
        squared_weight=sum(result.squared_weight for result in results),
        zeros=sum(result.zeros for result in results),
    )
