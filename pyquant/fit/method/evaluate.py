"""A file beside the one that llama-quantize makes of the same type, with an imatrix of the same texts."""

from __future__ import annotations

from pathlib import Path

from pyquant.calibration.calibrate import DEFAULT_CTX
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
    n_ctx: int | None = None,
    n_chunks: int | None = None,
    threads: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Comparison:
    """Compare a file with the model that it is of; one of gptq or best beside llama-quantize's.

    Parameters
    ----------
    source
        The model.
    done, type
        What was made of it.
    text
        What to evaluate on.
    n_ctx, n_chunks
        Tokens of a chunk (None: 512), and how many chunks are used (None: all).

    Raises
    ------
    PyquantError
        What `quantize_model` and `compare_models` raise.
    """
    with temporary_folder() as folder:
        files = [Path(done.result["output"])]
        if done.statistics:
            stock = folder / f"llama-quantize-{type}.gguf"
            mode = make_mode({"mode": f"ggml:{type}", "imatrix": done.statistics})
            quantize_model(source, stock, mode, threads=threads)
            files.insert(0, stock)
        return compare_models(
            source, files, text, n_ctx=n_ctx or DEFAULT_CTX, n_chunks=n_chunks, threads=threads,
            progress=lambda done, total: progress("evaluation", done, total),
        )  # fmt: skip
