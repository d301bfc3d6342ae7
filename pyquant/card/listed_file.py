"""The files of a card: found, measured, hashed, and what they say of their making."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.sha256 import files_sha256
from pyquant.formulas import bits_per_weight
from pyquant.models.info import model_info
from pyquant.models.model_file import ModelFile

# (bytes hashed, all of them, name of the file)
Progress = Callable[[int, int, str], None]
RECIPE = ("mode", "method", "version", "texts.sha256", "source.sha256")  # under "pyquant."
IMATRIX = ("quantize.imatrix.file", "quantize.imatrix.dataset", "quantize.imatrix.chunks_count")


@dataclass(frozen=True, eq=False)
class ListedFile:
    """A model of a card.

    Attributes
    ----------
    parts : list of (str, int, str)
        Name, bytes and SHA-256 of the file, or of each shard.
    n_bytes : int
    bits : float or None
        Of the whole file, per weight.
    type : str
        Its type by llama.cpp's name, if it has one.
    recipe : dict of str to str
        What the file says of its making.
    metadata : dict
        All that it says in short values.
    """

    parts: list[tuple[str, int, str]]
    n_bytes: int
    bits: float | None
    type: str
    recipe: dict[str, str]
    metadata: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the file, or of its first shard."""
        return self.parts[0][0]


def find_models(named: Sequence[str], beside: Sequence[Path]) -> dict[str, ModelFile]:
    """Find the models of results.

    Parameters
    ----------
    named
        Paths that results have. Several may be of one file.
    beside
        Folders where it is looked for by its name too.

    Returns
    -------
    models : dict of str to ModelFile
        By these paths.

    Raises
    ------
    ConfigError
        A model is not there.
    ModelFileError
        It is no model.
    """
    return {name: _find(name, beside) for name in named}


def list_files(models: dict[str, ModelFile], progress: Progress | None = None) -> dict[str, ListedFile]:
    """Hash models, and say of each what a card does, by the same names.

    Raises
    ------
    ConfigError
        Two files have the same name, which a hub's folder cannot hold.
    OSError
    """
    unique = {model.path.resolve(): model for model in models.values()}
    names = [path.name for model in unique.values() for path in model.paths]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"card: two models have the name {name!r}")
    total, done, listed = sum(_size(model) for model in unique.values()), 0, {}
    for place, model in unique.items():
        parts = []
        for path in model.paths:
            if progress:
                progress(done, total, path.name)
            size = path.stat().st_size
            parts.append((path.name, size, files_sha256([path])))
            done += size
        listed[place] = _listed(model, parts)
    return {name: listed[model.path.resolve()] for name, model in models.items()}


def _find(named: str, beside: Sequence[Path]) -> ModelFile:
    with contextlib.suppress(OSError, ValueError):  # too long a name, or a zero byte in it
        for path in (Path(named), *(folder / Path(named).name for folder in beside)):
            if path.is_file():
                return ModelFile(path)
    raise ConfigError(f"card: {named[:200]!r}, of the results, is not there; put the file beside them")


def _size(model: ModelFile) -> int:
    return sum(path.stat().st_size for path in model.paths)


def _listed(model: ModelFile, parts: list[tuple[str, int, str]]) -> ListedFile:
    info = model_info(model)
    recipe = {key: str(info.provenance[key]) for key in RECIPE if key in info.provenance}
    recipe |= {key: str(info.metadata[key]) for key in IMATRIX if key in info.metadata}
    n_bytes = sum(size for _, size, _ in parts)
    bits = bits_per_weight(n_bytes, model.n_weights)
    return ListedFile(parts, n_bytes, bits, info.file_type or "", recipe, info.metadata)
