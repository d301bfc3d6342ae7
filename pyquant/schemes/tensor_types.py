"""Types of single tensors as llama-quantize reads them: --tensor-type-file, words of PATTERN=TYPE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyquant import _core
from pyquant.errors import ConfigError
from pyquant.files.text import read_text
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import ask_llama, quantizable
from pyquant.schemes.ggml_type import file_type_of
from pyquant.schemes.recipe_file import Choice, Recipe, read_type

LONGEST_PATTERN = 4096  # characters: C++'s compiler of expressions calls itself for each bracket


def read_tensor_types(
    path: str | os.PathLike[str], model: ModelFile, base: str, *, has_importance: bool = True
) -> Recipe:
    """Make a recipe of what llama-quantize would do with a --tensor-type-file.

    Its library is asked, so that the first pattern that finds a tensor counts, the mixture goes on as it
    does beside patterns, and a type whose blocks do not divide a tensor's rows becomes the one that
    llama-quantize takes instead.

    Parameters
    ----------
    model
        The model, which is asked for its tensors.
    base
        The mixture for tensors that no pattern finds, such as "Q4_K_M".
    has_importance
        Whether llama-quantize would be given an importance matrix, which mixtures depend on.

    Returns
    -------
    Recipe
        The types of all tensors that are quantized.

    Raises
    ------
    ConfigError
        A word or the mixture is wrong, or a pattern finds no tensor. The message names the file.
    """
    path = Path(path)
    patterns = []
    for word in map(bytes.decode, read_text(path).data.split()):  # at ASCII's blanks, as llama-quantize does
        pattern, equals, type_name = word.partition("=")
        if not (pattern and equals and type_name):
            raise ConfigError(f"{path}: expected PATTERN=TYPE, got {word!r}")
        pattern = pattern.lower()  # as llama-quantize does
        if not _found(pattern, model, path):
            raise ConfigError(f"{path}: {pattern!r} finds no tensor of {model.path}")
        patterns.append((pattern, int(read_type(type_name, f"{path}: {pattern}"))))
    try:
        file_type = file_type_of(base)
    except ValueError as error:
        raise ConfigError(f"base: {base!r} {error}") from None
    asked = ask_llama(
        model, model.tensors, file_type, pure=False, has_importance=has_importance, by_pattern=patterns
    )
    names = quantizable(model)
    chosen = {tensor.name: Type(type_) for tensor, type_ in zip(model.tensors, asked)}
    return Recipe(base, {name: Choice(type_) for name, type_ in chosen.items() if name in names})


def _found(pattern: str, model: ModelFile, path: Path) -> list[str]:
    """Give the tensors whose names an expression of C++ finds. Raises ConfigError: it is none."""
    if len(pattern) > LONGEST_PATTERN:
        raise ConfigError(f"{path}: a pattern of {len(pattern):,} characters; at most {LONGEST_PATTERN:,}")
    try:
        return _core.find_names(pattern, [tensor.name for tensor in model.tensors])
    except RuntimeError as error:
        raise ConfigError(f"{path}: {pattern!r} is not a regular expression of C++: {error}") from None


def to_tensor_types(types: Mapping[str, Type]) -> str:
    """Write types by tensor as a --tensor-type-file, a line each."""
    return "".join(f"^{name.replace('.', '[.]')}$={type_.name.lower()}\n" for name, type_ in types.items())
