"""Types of single tensors as llama-quantize reads them: --tensor-type-file, words of PATTERN=TYPE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.files.text import read_text
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import ask_llama, quantizable
from pyquant.schemes.ggml_type import file_type_of
from pyquant.schemes.recipe_file import Choice, Recipe, read_type
from pyquant.schemes.regex import compile_regex


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
    for word in read_text(path).data.decode().split():
        pattern, equals, type_name = word.partition("=")
        if not (pattern and equals and type_name):
            raise ConfigError(f"{path}: expected PATTERN=TYPE, got {word!r}")
        pattern = pattern.lower()  # as llama-quantize does
        patterns.append((pattern, int(read_type(type_name, f"{path}: {pattern}"))))
    names = quantizable(model)
    for pattern, _ in patterns:
        finds = compile_regex(pattern, str(path)).search
        if not any(map(finds, names)):
            raise ConfigError(f"{path}: {pattern!r} finds no tensor of {model.path} that is quantized")
    try:
        file_type = file_type_of(base)
    except ValueError as error:
        raise ConfigError(f"base: {base!r} {error}") from None
    asked = ask_llama(
        model, model.tensors, file_type, pure=False, has_importance=has_importance, by_pattern=patterns
    )
    chosen = {tensor.name: Type(type_) for tensor, type_ in zip(model.tensors, asked)}
    return Recipe(base, {name: Choice(type_) for name, type_ in chosen.items() if name in names})


def to_tensor_types(types: Mapping[str, Type]) -> str:
    """Write types by tensor as a --tensor-type-file, a line each."""
    return "".join(f"^{name.replace('.', '[.]')}$={type_.name.lower()}\n" for name, type_ in types.items())
