"""What a mode is: what makes a scheme for a model, and how a whole file is made with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from gguf import LlamaFileType
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pyquant.calibration.sample import MOST_CHUNKS
from pyquant.schemes.base import Scheme

DAMPING_IN_ORDER = 0.3  # docs/compensation.md


class Mode(BaseModel):
    """A way to quantize a model, with its parameters: one table of a TOML file, one command line.

    Subclasses name themselves in `name`, add their parameters as fields and build their scheme; they
    are found by being in this package.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]
    file_type: ClassVar[LlamaFileType]

    mode: str
    pure: bool = Field(False, description="every tensor in the same type, no mixture")
    tensors: str | None = Field(None, description="only tensors whose name this expression finds")
    imatrix: Path | None = Field(None, description="importance matrix, GGUF or legacy")
    calibration: Path | None = Field(None, description="statistics of `pyquant calibrate`, to compensate by")
    damping: float = Field(
        0.03, gt=0, le=10, description="of second moments, in units of their mean diagonal; in order 0.3"
    )
    sequential: int | None = Field(
        None, ge=1, le=MOST_CHUNKS, description="chunks of the calibration's tokens, to correct by in order"
    )

    registry: ClassVar[dict[str, type[Mode]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _more_damping_in_order(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return {"damping": DAMPING_IN_ORDER, **settings} if settings.get("sequential") else settings

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if hasattr(cls, "name"):  # a common base of modes is none
            Mode.registry[cls.name] = cls

    @property
    def q4_t(self) -> bool:
        """Whether codes are stored in 4 bits, with their table, instead of their values."""
        return False

    def scheme(self, q8_0_codes: Callable[[], NDArray[np.uint64]]) -> Scheme | None:
        """The scheme, or None where GGML's own quantizer does the work.

        q8_0_codes: counts the model's Q8_0 codes when called; (256,) uint64, indexed modulo 256.
        """
        raise NotImplementedError

    def parameters(self, scheme: Scheme | None) -> dict[str, str | int]:
        """What goes into the file's metadata, under `pyquant.`, besides the mode."""
        return {}


class TableMode(Mode):
    """A mode whose scheme has 16 codes, so that they can be stored instead of their values."""

    store: Literal["stock", "q4_t"] = Field(
        "stock", description="q4_t: 4-bit codes and a table, for pyquant's llama.cpp alone"
    )

    @property
    def q4_t(self) -> bool:
        return self.store == "q4_t"
