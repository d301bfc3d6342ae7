"""What a scheme is, and what a mode adds to one to make a file of a whole model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from gguf import LlamaFileType
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pyquant import _core
from pyquant.calibration.sample import MOST_CHUNKS
from pyquant.calibration.stats_file import Calibration
from pyquant.code_table import CodeTable
from pyquant.model_file import Tensor
from pyquant.tensor_type import TensorType as Type

DAMPING_IN_ORDER = 0.3  # docs/compensation.md

GRID_TYPES = {"q4_0": Type.Q4_0, "q8_0": Type.Q8_0}


@dataclass(frozen=True)
class Scheme:
    """Weights to codes and back: a grid, a fold of its codes, and a table of values.

    grid: "q4_0" (scale: signed extreme / -8, grid codes -8..7) or "q8_0" (largest magnitude / 127,
        grid codes -127..127).
    values: (n_codes,) int8, what each code stands for in multiples of the block's scale; 16 codes,
        or 256 for Q8_0 itself.
    fold: (256,) uint8, the code that each grid code becomes, indexed by the grid code modulo 256; None
        where a search finds the scale and every weight becomes its nearest value.
    tables: (16,) int8 by tensor, where tensors have values of their own.
    packed: whether blocks hold the codes, of which there are 16, and the file a table of the values.
    """

    name: str
    grid: str
    values: NDArray[np.int8]
    fold: NDArray[np.uint8] | None
    packed: bool = False
    tables: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)

    @property
    def stock(self) -> Type:
        """The stock type whose blocks hold the values."""
        return GRID_TYPES[self.grid]

    def type_of(self, tensor: Tensor, calibration: Calibration | None) -> Type:
        """What such a tensor becomes that the policy gives the stock type."""
        return self.stock

    @property
    def container(self) -> Type:
        """The type of the blocks."""
        return Type.Q4_T if self.packed else self.stock

    def values_of(self, tensor: str) -> NDArray[np.int8]:
        """(n_codes,) int8: what the codes of this tensor stand for."""
        return self.tables.get(tensor, self.values)

    def table_of(self, tensor: str) -> CodeTable:
        """What goes into the file where codes are packed."""
        return CodeTable(tuple(self.values_of(tensor).tolist()), self.stock)

    @property
    def folded(self) -> NDArray[np.int8]:
        """(256,) int8: the value that each grid code ends as, indexed by the grid code modulo 256."""
        return self.values[self.fold]

    def searches(self, tensor: str, calibration: Calibration | None) -> bool:
        """Whether csrc/compensate rounds this tensor, instead of the grid."""
        return self.fold is None or (calibration is not None and len(self.values) <= 16)

    def searched(self, tensor: str, factor: _core.Factor) -> _core.Codec:
        """Rounds to the values at the best scale, whatever the grid. factor: of the tensor's input."""
        values = self.values_of(tensor)
        used = np.unique(values if self.fold is None else self.folded)
        by_value = np.argsort(values)
        codes = {
            Type.Q4_0: used + 8,
            Type.Q8_0: used.view(np.uint8),
            Type.Q4_T: by_value[np.searchsorted(values, used, sorter=by_value)],
        }[self.container]
        container = getattr(_core.Container, self.container.name)
        return _core.compensated_table_codec(container, used, codes.astype(np.uint8), values, factor)

    def kernel(self) -> _core.Scheme:
        """The same for the C++ kernels."""
        grid, container = (
            getattr(_core.Grid, self.grid.upper()),
            getattr(_core.Container, self.container.name),
        )
        if self.packed:
            return _core.Scheme(grid, container, self.fold.astype(np.int8), self.values)
        return _core.Scheme(grid, container, self.folded)


def grid_codes() -> NDArray[np.int8]:
    """(256,) int8: the grid code at each index of a fold."""
    return np.arange(256).astype(np.uint8).view(np.int8)


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
    threads: int | None = Field(None, ge=1, le=512, description="default: all processors")

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
    def packed(self) -> bool:
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

    store: Literal["stock", "packed"] = Field(
        "stock", description="packed: 4-bit codes and a table, for pyquant's llama.cpp alone"
    )

    @property
    def packed(self) -> bool:
        return self.store == "packed"
