"""A file beside the one that llama-quantize makes of the same type, with an imatrix of the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyquant.evaluate.compare import Comparison, compare_models
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import Text
from pyquant.fit.method.quantize import Quantized
from pyquant.fit.method.stages import Progress
from pyquant.models.model_file import AnyModel
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode


def beside_stock(
    source: AnyModel,
    done: Quantized,
    type: str,
    text: Text,
    *,
    threads: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Comparison:
    """Compare a file, and llama-quantize's, with the model that they are of.

    Parameters
    ----------
    source
        The model.
    done, type
        What was made of it.
    text
        What to evaluate on.

    Raises
    ------
    PyquantError
        What `quantize_model` and `compare_models` raise.
    """
    with temporary_folder() as folder:
        stock = folder / f"llama-quantize-{type}.gguf"
        settings: dict[str, Any] = {"mode": f"ggml:{type}"}
        if done.statistics:
            settings["imatrix"] = done.statistics
        quantize_model(source, stock, make_mode(settings), threads=threads)
        return compare_models(
            source, [stock, Path(done.result["output"])], text, threads=threads,
            progress=lambda done, total: progress("evaluation", done, total),
        )  # fmt: skip
