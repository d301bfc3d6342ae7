"""Size: the quantized model is made, and its bytes, bits and error of weights are noted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import DEFAULT_CTX
from pyquant.study.costs import MIXING, PASSES, QUANTIZING, TRIED
from pyquant.study.metric import Asked, Metric, Work
from pyquant.study.quantizer import Quantizer
from pyquant.study.results.columns import Column, Flat, get
from pyquant.study.results.read import RowResults
from pyquant.study.size import find_step, make, make_by_method, size_of
from pyquant.study.study_text import StudyText
from pyquant.study.task import Measured, Progress, Task, about_n_tokens, of_bytes


class Size(Metric):
    """Makes the quantized model, and says how large it is and how far its weights are off."""

    name = "size"
    version = 2
    unit = "row"
    makes_model = True
    columns = (
        Column("bytes", "size (MB)", "of the whole file", "bytes"),
        Column("bits", "bits", "per weight, of the whole file"),
        Column("code_bits", "code bits", "per weight, of the tensors that were quantized, as stored",
               lesser=True),
        Column("tensor_bits", "bits, all tensors", "per weight, of all tensors, as stored", lesser=True),
        Column("snr_db", "signal to noise (dB)", "weights to the error of the weights", lesser=True),
        Column("seconds", "made in (s)",
               "time to quantize the model, to find its step, to write and hash its file; by a method, to "
               "calibrate it too, less what the cache has already", lesser=True),
        Column("peak_memory", "memory (MB)", "the most that took, Python's own about 150 MB included",
               "bytes", lesser=True),
        Column("seconds_before", "prepared in (s)", "time for its statistics, tables and sensitivities",
               lesser=True),
        Column("peak_memory_before", "memory to prepare (MB)", "the most that took", "bytes", lesser=True),
    )  # fmt: skip

    def work(self, asked: Asked, quantizer: Quantizer | None, text: StudyText | None) -> Work:
        if quantizer and quantizer.method:
            n_tokens = quantizer.method.n_chunks * DEFAULT_CTX
            cost = PASSES[quantizer.method.name] * n_tokens + (MIXING if quantizer.mixed else 0)
            return Work(cost, {"wanted": quantizer.wanted, **quantizer.method.options})
        if quantizer is None or quantizer.target is None:
            return Work(QUANTIZING)
        options: dict[str, Any] = {"target": quantizer.target}
        if not quantizer.needs_evaluation:
            return Work(TRIED * QUANTIZING, options)
        first = asked.texts[0]
        tokens = TRIED * (QUANTIZING + about_n_tokens(first.n_bytes, asked.n_ctx, asked.n_chunks))
        options |= {"n_ctx": asked.n_ctx, "n_chunks": asked.n_chunks}
        return Work(tokens, options, first.path.absolute())

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        (mode,), (file,) = task.modes, task.files
        if mode is None:
            return [Measured(size_of(file))]
        folder = file.parents[1]
        inside = {
            key: path.relative_to(folder)
            for key in ("hessian", "imatrix")
            if (path := getattr(mode, key)) and path.is_relative_to(folder)
        }
        with _working_in(folder):
            mode = mode.model_copy(update=inside)
            options = dict(task.options)
            if "method" in options:
                made = make_by_method(task.model, file, threads, progress, pure=bool(mode.pure), **options)
                return [Measured(made)]
            if options:
                mode = find_step(task.model, mode, task.text, progress, threads=threads, **options)
            return [Measured(make(task.model, mode, file, threads, of_bytes(progress)))]

    def cells(self, row: RowResults, text: int) -> Flat:
        names = ("bytes", "bits", "code_bits", "tensor_bits", "rmse", "snr_db")
        result = row.result("size")
        return {**{name: get(result, name) for name in names}, "zero_weights": get(result, "zero_share"),
                **_costs(row)}  # fmt: skip


def _costs(row: RowResults) -> Flat:
    """Costs of making the model, and before that of what it is made with."""
    made: dict[str, Any] = {}
    before: list[dict[str, Any]] = []
    for name, measured in row.measurements.items():
        if row.mode is None or name not in Metric.registry or not (known := list(filter(None, measured))):
            continue
        if name == Size.name:
            made = known[0].provenance
        elif Metric.registry[name].unit == "prerequisite":
            before += [prerequisite.provenance for prerequisite in known]
    return {
        "seconds": made.get("seconds"),
        "peak_memory": made.get("peak_memory"),
        "seconds_before": sum(provenance["seconds"] for provenance in before) if before else None,
        "peak_memory_before": max((provenance["peak_memory"] for provenance in before), default=None),
    }


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    # A model says which statistics it was made with: where the folder is must not decide about its bytes.
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
