"""Define a mode: what makes a scheme for a model, and how a whole file is made with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType
from pyquant.schemes.base import Scheme
from pyquant.schemes.dampening import ON_ITS_OWN, PROPAGATED

# Counts the Q8_0 codes of the model at hand: (256,) uint64, indexed by the code modulo 256.
CountCodes = Callable[[], NDArray[np.uint64]]


class Mode(BaseModel):
    """A way to quantize a model, with its parameters: one table of a TOML file, one command line.

    Subclasses name themselves in `name`, add their parameters as fields and build their scheme. They are
    found in this package, in packages with an entry point of the group `pyquant.schemes`, and in files
    that `load_modes` loads (docs/schemes.md).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]
    file_type: ClassVar[int]
    copies: ClassVar[bool] = False  # every tensor keeps its type

    mode: str
    pure: bool = Field(False, description="every tensor in the same type, no mixture")
    tensors: str | None = Field(None, description="only tensors whose name this expression finds")
    requantize: bool = Field(False, description="round tensors again that are quantized already")
    imatrix: Path | None = Field(None, description="importance matrix, GGUF or legacy")
    hessian: Path | None = Field(None, description="statistics of `pyquant calibrate`, to round by (GPTQ)")
    dampening: Annotated[float, limits.DAMPENING.interval] = Field(
        ON_ITS_OWN,
        description=f"of Hessians, in units of their mean diagonal; with error propagation {PROPAGATED:g}",
    )
    error_propagation: Annotated[int, limits.SEQUENCES.interval] | None = Field(
        None, description="chunks of the calibration's tokens, to propagate errors over"
    )
    equalize: bool = Field(False, description="scale channels first, as `pyquant equalize` does")
    output_side: bool = Field(True, description="use output-side Hessians, where the statistics have them")

    registry: ClassVar[dict[str, type[Mode]]] = {}
    dampening_propagated: ClassVar[float] = PROPAGATED
    source: ClassVar[Path | None] = None  # the file outside of any package that defines it

    @model_validator(mode="before")
    @classmethod
    def _gptq(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if settings.get("hessian") is None:
            for key in ("dampening", "error_propagation", "equalize"):
                if settings.get(key) is not None and settings[key] is not False:
                    raise ValueError(f"{key}: is of Hessian statistics, and none are given (--hessian FILE)")
        return (
            {"dampening": cls.dampening_propagated, **settings}
            if settings.get("error_propagation")
            else settings
        )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not hasattr(cls, "name"):  # a common base of modes is none
            return
        if isinstance(getattr(cls, "file_type", None), str | None):
            raise ConfigError(f"mode {cls.name!r}: needs `file_type`, such as LlamaFileType.MOSTLY_Q4_0")
        other = Mode.registry.get(cls.name)
        if other is not None and other.__module__ != cls.__module__:
            where = other.source or other.__module__
            raise ConfigError(f"mode {cls.name!r} is taken: {where} defines it; choose another name")
        Mode.registry[cls.name] = cls

    def files(self) -> list[Path]:
        """List the files that it reads: parameters that are paths, or name a file."""
        values = (value for _, value in self if isinstance(value, (str, Path)))
        return [Path(value) for value in values if isinstance(value, Path) or value.endswith(".toml")]

    @property
    def q4_t(self) -> bool:
        """Say whether codes are stored in 4 bits, with their table, instead of their values."""
        return False

    @property
    def stated_type(self) -> int:
        """The file type that the header states: that of the mixture that llama-quantize is asked for."""
        return self.file_type

    def types(self, model: ModelFile) -> dict[str, TensorType]:
        """Give the types of tensors, by name, that it chooses itself. Raises ConfigError, ModelFileError."""
        return {}

    def scheme(self, q8_0_codes: CountCodes) -> Scheme | None:
        """Make the scheme.

        Parameters
        ----------
        q8_0_codes
            Counts the model's Q8_0 codes when called: (256,) uint64, indexed by the code modulo 256.

        Returns
        -------
        None where GGML's own quantizer does the work; a mode in a file also gives `types` then.
        """
        raise NotImplementedError

    def parameters(self, scheme: Scheme | None) -> dict[str, str | int]:
        """List what goes into the file's metadata, under `pyquant.`, besides the mode."""
        return {}


class TableMode(Mode):
    """A mode whose scheme has 16 codes, so that they can be stored instead of their values."""

    store: Literal["stock", "q4_t"] = Field(
        "stock", description="q4_t: 4-bit codes and a table, for pyquant's llama.cpp alone"
    )

    @property
    def q4_t(self) -> bool:
        return self.store == "q4_t"
