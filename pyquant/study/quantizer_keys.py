"""Keys of a study's quantizer that its mode does not have, and how those of types and sizes name modes."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.fit.method.stages import BY_GPTQ, Effort, MethodName
from pyquant.fit.method.types_for_size import check_type
from pyquant.fit.mixtures import WantedSize
from pyquant.limits import parse_size

MIXED = "mixed:"  # before the size that a recipe is found for
SIZES = tuple(field.name for field in fields(WantedSize) if field.default is None)  # ways to give one


class OfStudies(BaseModel):
    """Keys of a quantizer that its mode does not have. The last four are keys of `pyquant.fit.target`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str | None = Field(None, description="a stock type, for mode ggml:TYPE")
    method: MethodName | None = Field(None, description="how a type or a size is made; rtn, if left out")
    effort: Effort | None = Field(None, description="of gptq and best: high trains scales too")
    calibration: str | None = Field(None, description="what methods calibrate on; default texts, if left out")
    pqz: bool = Field(description="written as an entropy-coded file, as `pyquant pack` does")
    target_bpw: float | None = Field(None, description="bits per weight of the whole file")
    target_size: int | str | None = Field(None, description="bytes of the whole file")
    like: Annotated[str, AfterValidator(str.upper)] | None = Field(
        None, description="a stock type: as near to the model; by a method, as large"
    )
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
    of_sizes = {key: value for key in SIZES if (value := getattr(keys, key)) is not None}
    if keys.method in (None, "rtn"):
        if keys.calibration is not None and keys.method is None:
            raise ConfigError("calibration: is of methods; modes have hessian and imatrix")
        if keys.effort is not None:
            raise ConfigError("effort: is of methods gptq and best; name one")
        if of_sizes and "mode" not in settings:
            raise ConfigError(f"{min(of_sizes)}: is for methods gptq and best, or mode ecsq; name one")
        return settings, keys
    if of_sizes:
        name, *second = of_sizes
        if keys.method not in BY_GPTQ:
            raise ConfigError(f"{name}: gptq and best mix types for a size, {keys.method} does not")
        if second:
            raise ConfigError(f"{name}: is a size, and {second[0]} another; give one")
        if "mode" in settings:
            raise ConfigError(f"{name}: types are mixed for a size; give no type or mode beside it")
        settings = {"mode": "recipe", "recipe": f"{MIXED}{_size(name, of_sizes[name])}", **settings}
    elif not str(settings.get("mode")).startswith("ggml:"):
        raise ConfigError(f"method: {keys.method} makes a type or a size; give type, {', '.join(SIZES)}")
    if keys.pqz:
        raise ConfigError("pqz: a method makes a GGUF; `pyquant pack` then stores it as .pqz")
    others = settings.keys() - ({"mode", "recipe", "pure"} if of_sizes else {"mode", "pure"})
    if others:
        raise ConfigError(f"{min(others)}: is of modes; method {keys.method} calibrates on `calibration`")
    return settings, keys.model_copy(update=dict.fromkeys(of_sizes))


def _size(key: str, value: Any) -> str:
    """Write a size so that it is read as what its key says. Raises ConfigError."""
    if key == "like":
        check_type(value)
        return str(value)
    if key == "target_bpw":
        limits.BITS.check(key, value)
        return f"{value:.15g}"
    n_bytes = parse_size(key, value)
    return str(value) if str(value)[-1:].isalpha() else f"{n_bytes}B"
