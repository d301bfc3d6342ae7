"""Types of tensors for a file of a size: the largest stock mixture that fits, or the best mix of types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pyquant.calibration.sample import spread
from pyquant.data import training_text
from pyquant.errors import ConfigError, nearest
from pyquant.files.output_file import output_errors
from pyquant.files.text import Text, make_text
from pyquant.fit.method.split_text import SplitText
from pyquant.fit.mix import Progress
from pyquant.fit.mix_model import mix_model
from pyquant.fit.mix_result import Mix
from pyquant.fit.mixtures import STOCK, WantedSize
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.rounding.make_plan import make_plan
from pyquant.schemes.ggml_type import KNOWN
from pyquant.schemes.settings import make_mode

MIX = "mix of types"  # what progress calls the search for one: a part of several steps
MEASURED = 8  # chunks that a mix is chosen by


def check_type(type: str) -> None:
    """Refuse what llama-quantize takes for no type. Raises ConfigError, which names the nearest."""
    if type.upper() not in KNOWN:
        close = nearest(type.upper(), KNOWN)
        hint = f", did you mean {close}?" if close else ";"
        raise ConfigError(f"type: {type!r} is none of llama-quantize's{hint} types: {', '.join(KNOWN)}")


def stock_for(model: ModelFile, wanted: WantedSize, more: dict[str, Any]) -> str:
    """Return the name of llama-quantize's largest mixture that fits.

    Parameters
    ----------
    model, wanted
        The model, and the size.
    more
        Settings of the mode beside the type.

    Raises
    ------
    ConfigError
        None fits. The message names the smallest.
    """
    sizes = {name: bytes_of(model, name, more) for name in STOCK}
    if wanted.like is not None:
        check_type(wanted.like)
    most = wanted.n_bytes(model, lambda like: bytes_of(model, like, more))
    if not (fitting := {name: n_bytes for name, n_bytes in sizes.items() if n_bytes <= most}):
        least = min(sizes, key=lambda name: sizes[name])
        raise ConfigError(
            f"target: {most:,} bytes are less than any type takes: {least} takes {sizes[least]:,}"
        )
    return max(fitting, key=lambda name: (fitting[name], -STOCK.index(name)))


def bytes_of(model: ModelFile, type: str, more: dict[str, Any]) -> int:
    """Return the size of the file of a type. Raises ConfigError."""
    return make_plan(model, make_mode({**more, "mode": f"ggml:{type}"}, "like")).output_bytes


def mixed_for(
    model: ModelFile,
    statistics: Path,
    split: SplitText,
    wanted: WantedSize,
    recipe: Path,
    *,
    output_side: bool,
    threads: int | None,
    checkpoint: Path,
    progress: Progress,
) -> Mix:
    """Find the mix of types of the least KLD at a size, and write its recipe.

    Parameters
    ----------
    model, statistics
        The model and its Hessian statistics.
    split
        KLD is measured on some of the chunks that are calibrated on.
    wanted
        The size.
    recipe
        The file to write.
    output_side
        Whether output-side Hessians will be used.
    checkpoint
        A file that lists measured sensitivities, as for `mix_model`.

    Raises
    ------
    PyquantError
        What `mix_model` raises.
    """
    text, n_ctx, n_chunks = _text_of(model, split)
    found = mix_model(
        model, statistics, text, wanted, output_side=output_side, n_ctx=n_ctx, n_chunks=n_chunks,
        threads=threads, checkpoint=checkpoint,
        progress=lambda step, done, total: progress(f"{MIX}: {step}", done, total),
    )  # fmt: skip
    with output_errors(recipe):
        recipe.write_text(found.recipe.to_toml())
    return found


def _text_of(model: ModelFile, split: SplitText) -> tuple[Text, int, int]:
    """Write some of a calibration's chunks as a text, with the tokens of a chunk and how many there are.

    Cut into tokens again, a text may have fewer of them: a chunk less is asked for.
    """
    n_ctx = split.held_out.n_ctx
    if not split.calibration:
        return make_text(Path("Python's library"), training_text().encode()), n_ctx, MEASURED
    tokens = spread(np.concatenate([chunks.tokens for chunks in split.calibration]), MEASURED + 1)
    with Model(model) as running:
        pieces = running.vocabulary.pieces()
        written = b"".join(pieces[token] for token in tokens.ravel().tolist())
        text = make_text(Path("calibration text"), written.decode(errors="ignore").encode())
        return text, n_ctx, min(MEASURED, cut(running, text, n_ctx=n_ctx).n_chunks)
