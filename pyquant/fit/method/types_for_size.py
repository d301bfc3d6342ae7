"""Types of tensors for a file of a size: the largest stock mixture that fits, or the best mix of types."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyquant.data import evaluation_text
from pyquant.errors import ConfigError
from pyquant.files.output_file import output_errors
from pyquant.files.text import Text, make_text
from pyquant.fit.mix import Progress
from pyquant.fit.mix_model import mix_model
from pyquant.fit.mixtures import STOCK, WantedSize
from pyquant.models.model_file import ModelFile
from pyquant.rounding.make_plan import make_plan
from pyquant.schemes.ggml_type import ALIASES, CHOICES, file_type_of
from pyquant.schemes.settings import make_mode


def check_type(type: str) -> None:
    """Refuse what llama-quantize takes for no type. Raises ConfigError, which names the nearest."""
    try:
        file_type_of(type)
    except ValueError:
        known = sorted([*ALIASES, *CHOICES])
        nearest = difflib.get_close_matches(type.upper(), known, n=1)
        hint = f", did you mean {nearest[0]}?" if nearest else ""
        raise ConfigError(
            f"type: {type!r} is none of llama-quantize's{hint} Types: {', '.join(known)}"
        ) from None


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
    most = bytes_wanted(model, wanted, more)
    if not (fitting := {name: n_bytes for name, n_bytes in sizes.items() if n_bytes <= most}):
        least = min(sizes, key=lambda name: sizes[name])
        raise ConfigError(
            f"target: {most:,} bytes are less than any mixture takes: {least} has {sizes[least]:,}"
        )
    return max(fitting, key=lambda name: (fitting[name], -STOCK.index(name)))


def bytes_wanted(model: ModelFile, wanted: WantedSize, more: dict[str, Any]) -> int:
    """Return the most bytes that a file may have. Raises ConfigError where `like` is no type."""
    if wanted.like is not None:
        return bytes_of(model, wanted.like, more)
    if wanted.size is not None:
        return wanted.size
    assert wanted.bits is not None
    return int(wanted.bits * model.n_weights / 8)


def bytes_of(model: ModelFile, type: str, more: dict[str, Any]) -> int:
    """Return the size of the file of a type. Raises ConfigError."""
    return make_plan(model, make_mode({**more, "mode": f"ggml:{type}"}, "like")).output_bytes


def mixed_for(
    model: ModelFile,
    statistics: Path,
    texts: Sequence[Text] | None,
    wanted: WantedSize,
    recipe: Path,
    *,
    threads: int | None,
    progress: Progress,
) -> None:
    """Find the mix of types of the least KLD at a size, and write its recipe.

    Parameters
    ----------
    model, statistics
        The model and its Hessian statistics.
    texts
        What KLD is measured on; None: documents of Python's library that no default calibration has.
    wanted
        The size.
    recipe
        The file to write.

    Raises
    ------
    PyquantError
        What `mix_model` raises.
    """
    measured_on = texts or [make_text(Path("documents of Python's library"), evaluation_text().encode())]
    found = mix_model(model, statistics, measured_on, wanted, threads=threads, progress=progress)
    with output_errors(recipe):
        recipe.write_text(found.recipe.to_toml())
