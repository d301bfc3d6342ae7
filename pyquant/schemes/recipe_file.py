"""Recipes: files that give a model's tensors their types, one by one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyquant import _core
from pyquant.errors import ConfigError, did_you_mean
from pyquant.files.toml import read_toml, toml_string
from pyquant.models.header import EQUALIZED_FROM
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import quantizable

VERSION = 1
HEAD = ("version", "base", "model_sha256", "n_bytes", "kld", "kld_error")
NUMBERS = ("bits", "share", "sensitivity")  # of a tensor, beside its type


@dataclass(frozen=True)
class Choice:
    """Choice of a recipe for one tensor.

    Attributes
    ----------
    type
        What the tensor becomes.
    bits
        Bits per weight of that type; None where nobody wrote them.
    share
        The predicted share of the file's KLD that the tensor causes, from 0 to 1; None if unknown.
    sensitivity
        KLD in nats per squared error of outputs that this was predicted with; None if unknown.
    """

    type: Type
    bits: float | None = None
    share: float | None = None
    sensitivity: float | None = None

    def to_toml(self) -> str:
        """Write the value that stands behind the tensor's name."""
        numbers = {"bits": self.bits, "share": self.share, "sensitivity": self.sensitivity}
        known = [f"{key} = {value:.4g}" for key, value in numbers.items() if value is not None]
        return f"{{ {', '.join([f'type = {json.dumps(self.type.name)}', *known])} }}"


@dataclass(frozen=True)
class Recipe:
    """Types of a model's tensors.

    Attributes
    ----------
    base
        A mixture of llama-quantize, such as "Q4_K_M": tensors that `tensors` lacks get the type that it
        gives them.
    tensors
        What is said of tensors, by name.
    model_sha256
        The hash of the model that it is for; None: any that has the tensors.
    n_bytes
        Bytes of the file that comes of it; None if unknown.
    KLD, kld_error
        Of that file from the model, in nats per token, as it was measured; None if it was not.
    """

    base: str
    tensors: Mapping[str, Choice] = field(default_factory=dict)
    model_sha256: str | None = None
    n_bytes: int | None = None
    kld: float | None = None
    kld_error: float | None = None

    def to_toml(self) -> str:
        """Write the text that `read_recipe` reads."""
        head: dict[str, Any] = {"version": VERSION, **{key: getattr(self, key) for key in HEAD[1:]}}
        lines = [f"{key} = {_value(value)}" for key, value in head.items() if value is not None]
        lines += ["", "[tensors]"]
        lines += [f"{toml_string(name)} = {choice.to_toml()}" for name, choice in self.tensors.items()]
        return "\n".join(lines) + "\n"

    def types_for(self, model: ModelFile, where: str | os.PathLike[str]) -> dict[str, Type]:
        """Give the types of the tensors that it names, checked against a model.

        Parameters
        ----------
        model
            The model.
        where
            The recipe's file, to be named in errors.

        Raises
        ------
        ConfigError
            The recipe is for another model, names a tensor that the model lacks or llama.cpp does not
            quantize, or gives it a type whose blocks do not divide its rows.
        """
        wanted = self.model_sha256
        if wanted is not None and wanted not in (model.sha256(), model.get(EQUALIZED_FROM)):
            raise ConfigError(
                f"{where}: is for another model than {model.path}: its SHA-256 begins with "
                f"{wanted[:12]}, this one's with {model.sha256()[:12]}; without the key "
                f"model_sha256 it fits every model that has its tensors"
            )
        tensors = {tensor.name: tensor for tensor in model.tensors}
        changed = quantizable(model)
        for name, choice in self.tensors.items():
            if name not in tensors:
                hint = did_you_mean(name, tensors)
                raise ConfigError(f"{where}: {name!r} is no tensor of {model.path}{hint}")
            if choice.type != tensors[name].type and name not in changed:
                raise ConfigError(
                    f"{where}: {name!r} cannot become {choice.type.name}: llama.cpp keeps its type "
                    f"{tensors[name].type.name}; leave it out"
                )
            if not divides(choice.type, tensors[name]):
                raise ConfigError(
                    f"{where}: {name!r} cannot become {choice.type.name}: its blocks do not divide rows of "
                    f"{tensors[name].n_per_row:,} weights; for these there are "
                    f"{', '.join(type_.name for type_ in MADE if divides(type_, tensors[name]))}"
                )
        return {name: choice.type for name, choice in self.tensors.items()}


def _is_made(type_: Type) -> bool:
    """Say whether GGML makes blocks of a type of floats."""
    try:
        _core.ggml_encoder(int(type_))
    except ValueError:
        return False
    return True


# The types that a tensor may become.
MADE = tuple(type_ for type_ in Type if _is_made(type_) and type_ is not Type.Q4_T)


def divides(type_: Type, tensor: Tensor) -> bool:
    """Say whether blocks of a type divide the rows of a tensor."""
    return tensor.n_per_row % _core.block_length(int(type_)) == 0


def read_type(name: object, where: str) -> Type:
    """Read a type's name, in upper or lower case. Raises ConfigError, which begins with `where`."""
    known = {type_.name: type_ for type_ in MADE}
    if not isinstance(name, str) or name.upper() not in known:
        raise ConfigError(f"{where}: {name!r} is no type of GGML; known: {', '.join(known)}")
    return known[name.upper()]


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe.

    Raises ConfigError: the file is missing, or a key in it is wrong. The message names file and key.
    """
    path = Path(path)
    content = read_toml(path, "recipe")
    tensors = content.pop("tensors", {})
    if unknown := [key for key in content if key not in HEAD]:
        raise ConfigError(f"{path}: no key {unknown[0]!r}; known: {', '.join([*HEAD, 'tensors'])}")
    if content.pop("version", None) != VERSION:
        raise ConfigError(f"{path}: expected version = {VERSION}, as this pyquant reads it")
    for key, type_ in (("base", str), ("model_sha256", str), ("n_bytes", int)):
        if key in content and (not isinstance(content[key], type_) or isinstance(content[key], bool)):
            raise ConfigError(f"{path}: {key}: expected {_said(type_)}, got {content[key]!r}")
    if not re.fullmatch("[0-9a-f]{64}", content.get("model_sha256", "0" * 64)):
        raise ConfigError(
            f"{path}: model_sha256: expected all 64 hexadecimal digits, got {content['model_sha256']!r}"
        )
    if "base" not in content:
        raise ConfigError(f"{path}: the key 'base' is missing: a mixture of llama-quantize, such as Q4_K_M")
    for key in HEAD[4:]:
        if key in content:
            content[key] = _number(path, key, content[key])
    if not isinstance(tensors, dict):
        raise ConfigError(f"{path}: tensors: expected a table of types by tensor, got {tensors!r}")
    return Recipe(tensors={name: _choice(path, name, value) for name, value in tensors.items()}, **content)


def _choice(path: Path, name: str, value: Any) -> Choice:
    if isinstance(value, str):
        return Choice(read_type(value, f"{path}: {name}"))
    if not isinstance(value, dict) or "type" not in value or not set(value) <= {"type", *NUMBERS}:
        raise ConfigError(
            f"{path}: {name}: expected a type, or a table of type and {', '.join(NUMBERS)}, got {value!r}"
        )
    numbers = {key: _number(path, f"{name}: {key}", value[key]) for key in NUMBERS if key in value}
    return Choice(read_type(value["type"], f"{path}: {name}"), **numbers)


def _number(path: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(f"{path}: {key}: expected a number from 0, got {value!r}")
    return float(value)


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)


def _said(type_: type) -> str:
    return "a whole number" if type_ is int else "a text"
