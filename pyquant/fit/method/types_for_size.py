"""Types of tensors for a file of a size: the largest stock mixture that fits, or the best mix of types."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pyquant.calibration.gradients.llama_graph import why_unknown
from pyquant.calibration.sample import spread
from pyquant.data import training_text
from pyquant.errors import ConfigError, Tell, nearest
from pyquant.files.output_file import output_errors
from pyquant.files.temporary import temporary_folder
from pyquant.files.text import Text, make_text
from pyquant.fit.method.split_text import SplitText
from pyquant.fit.method.stages import BY_GPTQ
from pyquant.fit.mix import Progress
from pyquant.fit.mix_model import mix_model
from pyquant.fit.mix_result import Mix
from pyquant.fit.mixtures import FLOORED, STOCK, Files, WantedSize, base_of, check_reachable, usable_at
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.metadata import most_equalization_bytes, most_importance_bytes, most_trained_bytes
from pyquant.rounding.shards import Sharding, ShardTooSmall, Split
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


def with_spare(wanted: WantedSize, method: str, *, trains_scales: bool = False) -> WantedSize:
    """Leave room for what a method adds to headers when types are chosen; a file to be like has it too.

    trains_scales: whether scales are trained at last, which is said too.
    """
    if wanted.like is not None:
        return wanted
    most = {"imatrix": most_importance_bytes, "best": most_equalization_bytes}.get(method)
    spare = (most() if most else 0) + (most_trained_bytes() if trains_scales else 0)
    return replace(wanted, spare=spare)


def stock_for(
    model: ModelFile, wanted: WantedSize, more: dict[str, Any], method: str, split: Split | None = None
) -> str:
    """Return the name of llama-quantize's largest mixture that fits: of STOCK, or the one to be like.

    Parameters
    ----------
    model, wanted, split
        The model, the size, and how the file is divided.
    more
        Settings of the mode beside the type.
    method
        As `quantize` takes it. Where it mixes types, which have smaller files as well, the smallest mixture
        does if none fits.

    Raises
    ------
    ConfigError
        None fits: the message names the smallest. Or no mix of types has that size.
    """
    if wanted.like is not None:
        check_type(wanted.like)
    if method in BY_GPTQ:
        _check_mixed(model, wanted, split, output_side=method == "best" and why_unknown(model) is None)
    sharding = None if split is None else Sharding.of(model, split)

    def bytes_of(type: str) -> int:
        mode = make_mode({**more, "mode": f"ggml:{type}"}, "like")
        return make_plan(model, mode, calibrates=method != "rtn", sharding=sharding).output_bytes

    names = [*STOCK, wanted.like.upper()] if wanted.like else list(STOCK)
    sizes = {}
    for name in names:
        with suppress(ShardTooSmall):
            sizes[name] = bytes_of(name) + wanted.spare
    most = wanted.n_bytes(model, bytes_of)
    fitting = {name: n_bytes for name, n_bytes in sizes.items() if n_bytes <= most}
    if not sizes:
        bytes_of(names[0])  # says which tensor no shard holds
    least = min(sizes, key=lambda name: sizes[name])
    if not fitting and method not in BY_GPTQ:
        raise ConfigError(
            f"target: {most:,} bytes are less than a size takes: {least} takes up "
            f"to {sizes[least]:,}; smaller ones, such as IQ2_XS, can be given as a type"
        )
    return max(fitting, key=lambda name: (fitting[name], -names.index(name)), default=least)


def _check_mixed(model: ModelFile, wanted: WantedSize, split: Split | None, *, output_side: bool) -> None:
    """Refuse before statistics are made what `mix_model` would refuse with them."""
    with temporary_folder() as folder:
        files = Files(model, None, folder, split=split, spare=wanted.spare)
        n_bytes = wanted.n_bytes(model, lambda like: files.mixture(like).n_bytes)
        floored = FLOORED - ({EMBEDDINGS} if output_side else set())
        stock, options = usable_at(files, n_bytes, None, floored)
        check_reachable(files, n_bytes, options, base_of(stock))


def mixed_for(
    model: ModelFile,
    statistics: Path,
    texts: SplitText,
    wanted: WantedSize,
    recipe: Path,
    *,
    output_side: bool,
    split: Split | None,
    threads: int | None,
    checkpoint: Path,
    progress: Progress,
    tell: Tell,
) -> Mix:
    """Find the mix of types of the least KLD at a size, and write its recipe.

    Parameters
    ----------
    model, statistics
        The model and its Hessian statistics.
    texts
        KLD is measured on some of the chunks that are calibrated on.
    wanted, split
        The size, and how the file is divided.
    recipe
        The file to write.
    output_side
        Whether output-side Hessians will be used.
    checkpoint
        A file that lists measured sensitivities, as for `mix_model`.
    tell
        Told of a `checkpoint` that is not used.

    Raises
    ------
    PyquantError
        What `mix_model` raises.
    """
    text, n_ctx, n_chunks = _text_of(model, texts)
    found = mix_model(
        model, statistics, text, wanted, output_side=output_side, split=split, n_ctx=n_ctx,
        n_chunks=n_chunks, threads=threads, checkpoint=checkpoint,
        progress=lambda step, done, total: progress(f"{MIX}: {step}", done, total), tell=tell,
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
