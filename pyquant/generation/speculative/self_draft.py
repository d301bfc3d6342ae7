"""A draft model made of its target: all matrices in 4 bits by GPTQ, in type Q4_T, kept in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import DEFAULT_CTX
from pyquant.errors import ConfigError, Tell
from pyquant.files.json import read_json, write_json
from pyquant.files.output_file import output_errors
from pyquant.files.sha256 import files_sha256
from pyquant.files.temporary import temporary_folder
from pyquant.fit.method.hessian import HessianMaker
from pyquant.fit.method.split_text import N_CHUNKS, split_text
from pyquant.llama.model import Model
from pyquant.machine.caches import cache_folder
from pyquant.machine.environment import build_and_cpu
from pyquant.models.codebook import IQ4_NL_VALUES
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.tensor import UNQUANTIZED
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.schemes.table_set import TableSet

# docs/results/smollm2-135m-generation.md compares them. Equalized, it could not take its target's keys and
# values.
SETTINGS = {"mode": "table", "store": "q4_t", "pure": True}

# (what is done, steps done, all steps)
Progress = Callable[[str, int, int], None]


def self_draft(
    target: AnyModel,
    *,
    threads: int | None = None,
    progress: Progress = lambda what, done, total: None,
    tell: Tell = lambda line: None,
) -> Path:
    """Return the draft model of a target; it is made if the cache does not have it whole.

    Parameters
    ----------
    target
        A model in F32, F16 or BF16.
    threads
        None: all cores.
    progress
        Called while it is made.
    tell
        Told how large it is before it is made, and remarks.

    Raises
    ------
    PyquantError, OSError
        It cannot be made of this model, or not be kept.
    """
    model, cache = open_model(target), cache_folder()
    if cache is None:
        raise ConfigError("PYQUANT_CACHE is empty, so that nothing is kept")
    if any(tensor.has_weights and tensor.type not in UNQUANTIZED for tensor in model.tensors):
        raise ConfigError(f"{model.path}: is quantized already")
    path = cache / "drafts" / f"{_key(model)}.gguf"
    if _is_whole(path):
        return path
    with temporary_folder() as folder:
        table = folder / "table.toml"
        table.write_text(TableSet("iq4_nl", IQ4_NL_VALUES).to_toml())
        settings: dict[str, Any] = {**SETTINGS, "table": str(table)}
        n_bytes = make_plan(model, make_mode(settings), threads=threads).output_bytes
        tell(f"draft model: {n_bytes / 1e6:,.0f} MB, made once by calibration and GPTQ, and kept as {path}")
        with output_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        hessian = _hessian(model, folder, threads, progress, tell)
        quantize_model(
            model, path, make_mode({**settings, "hessian": hessian}), threads=threads, force=True,
            progress=lambda done, total, _name: progress("draft model", done, total), tell=tell,
        )  # fmt: skip
    write_json(_sum_of(path), files_sha256([path]), sources=[], force=True)
    return path


def _key(model: ModelFile) -> str:
    made_of = [model.sha256(), SETTINGS, N_CHUNKS, build_and_cpu()]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:24]


def _sum_of(path: Path) -> Path:
    return path.with_suffix(".sha256.json")


def _is_whole(path: Path) -> bool:
    """Say whether the file has the hash that was written when it was complete."""
    with suppress(OSError, ValueError):
        return bool(read_json(_sum_of(path)) == files_sha256([path]))
    return False


def _hessian(model: ModelFile, folder: Path, threads: int | None, progress: Progress, tell: Tell) -> Path:
    with Model(model) as running:
        texts = split_text(running, None, min(DEFAULT_CTX, running.n_ctx_train), N_CHUNKS)
    maker = HessianMaker(
        model, texts, texts.held_out.n_ctx, folder, threads=threads, tell=tell, progress=progress
    )
    return maker.in_cache(output_side=False, whole=True).path
