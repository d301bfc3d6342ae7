"""Make modes from TOML or a command line, with checked parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from pyquant.errors import ConfigError, did_you_mean
from pyquant.files.toml import read_toml
from pyquant.schemes.mode import Mode
from pyquant.schemes.outside import load_installed


def make_mode(settings: Mapping[str, Any], where: str = "configuration") -> Mode:
    """Make a mode.

    Parameters
    ----------
    settings
        `mode`, its parameters, and the keys that all modes have (`pyquant.schemes.Mode`).
    where
        Where the settings come from, for errors: a file or an option.

    Raises
    ------
    ConfigError
        A setting is unknown or wrong. The message names the key and the choices.
    """
    name = settings.get("mode")
    if not isinstance(name, str):
        load_installed()
        raise ConfigError(f"{where}: the key 'mode' is missing; choices: {', '.join(Mode.registry)}")
    if not name.startswith("ggml:") and name not in Mode.registry:
        load_installed()
    mode = Mode.registry.get("ggml:TYPE" if name.startswith("ggml:") else name)
    if mode is None or name == "ggml:TYPE":
        raise ConfigError(
            f"{where}: mode: {name!r} is not known; choices: {', '.join(Mode.registry)}"
            + did_you_mean(name, Mode.registry)
        )
    try:
        return mode.model_validate(dict(settings))
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, mode, f'mode {mode.name}')}") from None


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the settings in a TOML file. Paths in them are relative to the file.

    Raises
    ------
    ConfigError
        The file is missing, or not TOML.
    """
    path = Path(path)
    settings = read_toml(path, "configuration")
    for key in ("table", "imatrix", "hessian", "sensitivity", "recipe"):
        value = settings.get(key)
        if isinstance(value, str) and os.path.isfile(path.parent / value):
            settings[key] = str(path.parent / value)
    return settings


def explain(error: ValidationError, model: type[BaseModel], what: str) -> str:
    """Say in one sentence what is wrong first with settings for `model`, which people call `what`."""
    # A misspelled key first: it may be why another is missing.
    first = min(error.errors(), key=lambda error: error["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = list(_holder(model, first["loc"]).model_fields)
        hint = did_you_mean(str(first["loc"][-1]), known)
        return f"{what} has no key {key!r}; known: {', '.join(known)}{hint}"
    if first["type"] == "missing":
        field = _holder(model, first["loc"]).model_fields[str(first["loc"][-1])]
        return f"{what} needs {key!r}: {field.description}"
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:  # said of the settings as a whole
        return message
    return f"{key}: {message[0].lower()}{message[1:]}, got {first['input']!r}"


def _holder(model: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel]:
    # The model of the table that a key is in: tables within tables are fields that are models, or
    # lists of them, in which a number is the place.
    for part in place[:-1]:
        if isinstance(part, str):
            annotation: Any = model.model_fields[part].annotation
            model = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    return model
