"""Keys of a study's quantizer that its mode does not have, and how those of types and sizes name modes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pyquant.errors import ConfigError
from pyquant.fit.method.stages import MethodName
from pyquant.fit.method.types_for_size import check_type
from pyquant.fit.mixtures import WantedSize

MIXED = "mixed:"  # before the size that a recipe is found for
SIZES = tuple(field.name for field in fields(WantedSize) if field.default is None)  # ways to give one


class OfStudies(BaseModel):
    """Keys of a quantizer that its mode does not have. The last four are keys of `pyquant.fit.target`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str | None = Field(None, description="a stock type, for mode ggml:TYPE")
    method: MethodName | None = Field(None, description="how a type or a size is made; rtn, if left out")
    calibration: str | None = Field(None, description="what methods calibrate on; default texts, if left out")
    pqz: bool = Field(description="written as an entropy-coded file, as `pyquant pack` does")
    target_bpw: float | None = Field(None, description="bits per weight of the whole file")
    target_size: int | str | None = Field(None, description="bytes of the whole file")
    like: str | None = Field(None, description="a stock type: as near to the model; by a method, as large")
    code_bits: float | None = Field(None, description="bits per weight of the quantized tensors")


def as_mode(settings: dict[str, Any], keys: OfStudies) -> tuple[dict[str, Any], OfStudies]:
    """Name the mode of a type, and of a size that a method mixes types for.

    settings: of the mode. Returns: these, and the keys that are left. Raises ConfigError.
    """
    if keys.type is not None:
        if "mode" in settings:
            raise ConfigError("type: means mode ggml:TYPE; give either type or mode")
        check_type(keys.type)
        settings = {"mode": f"ggml:{keys.type}", **settings}
    if keys.method is None and keys.calibration is not None:
        raise ConfigError("calibration: is of methods; modes have hessian and imatrix")
    if keys.method in (None, "rtn"):
        return settings, keys
    of_sizes = {key: value for key in SIZES if (value := getattr(keys, key)) is not None}
    if of_sizes:
        if keys.method == "imatrix" or "mode" in settings or len(of_sizes) > 1:
            raise ConfigError(f"{list(of_sizes)[-1]}: gptq and best mix types for it; give no type beside it")
        recipe = f"{MIXED}{next(iter(of_sizes.values()))}"
        settings = {"mode": "recipe", "recipe": recipe, **settings}
    elif not str(settings.get("mode")).startswith("ggml:"):
        raise ConfigError(f"method: {keys.method} makes a type or a size; give type, {', '.join(SIZES)}")
    if keys.pqz:
        raise ConfigError("pqz: a method makes a GGUF; `pyquant pack` then stores it as .pqz")
    others = settings.keys() - ({"mode", "recipe", "pure"} if of_sizes else {"mode", "pure"})
    if others:
        raise ConfigError(f"{min(others)}: is of modes; method {keys.method} calibrates on `calibration`")
    return settings, keys.model_copy(update=dict.fromkeys(of_sizes))
