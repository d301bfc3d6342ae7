"""Mode ecsq: one step for a whole matrix, and integer codes, which entropy coding stores well."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from gguf import LlamaFileType
from numpy.typing import NDArray
from pydantic import Field

from pyquant import _core, limits
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.base import Scheme
from pyquant.schemes.dampening import ECSQ_PROPAGATED
from pyquant.schemes.mode import CountCodes, Mode
from pyquant.schemes.q8_0 import q8_0

# Type of tensors whose input was not collected, such as embeddings: the output's in llama.cpp's mixtures.
REST = Type.Q6_K


@dataclass(frozen=True)
class EcsqScheme(Scheme):
    """Integer codes in Q8_0 blocks of equal scales; the scale is doubled where int8 has no room for a block.

    Attributes
    ----------
    step
        The root of 12 times the mean squared error of outputs that a weight adds, where tensors are equally
        sensitive. The step of a row is step / sqrt(s * r * mean D), s its matrix's sensitivity, r how much
        the row counts in it, D of csrc/gptq/factor.h. Every weight then adds about the same KLD
        (reverse water-filling).
    sensitivity
        How much KLD errors in each kind of tensor cause.
    """

    step: float = 0
    sensitivity: Sensitivity = field(default_factory=Sensitivity)

    def type_of(self, tensor: Tensor, calibration: Calibration | None) -> Type:
        if self.searches(tensor.name, calibration) or tensor.n_per_row % 256:
            return Type.Q8_0
        return REST

    def searches(self, tensor: str, calibration: Calibration | None) -> bool:
        return _knows(calibration, tensor) or tensor in self.sensitivity.by_tensor

    @property
    def weighs_rows(self) -> bool:
        return True

    @property
    def weighs_tensors(self) -> bool:
        return not self.sensitivity.by_kind and not self.sensitivity.by_tensor

    def searched(
        self, tensor: str, factor: _core.Factor, rows: NDArray[np.float64] | None = None
    ) -> _core.Encoder:
        step = self.step / np.sqrt(self.sensitivity.of(tensor) * max(factor.mean_diagonal, 1e-30))
        steps = np.array([step]) if rows is None else step / np.sqrt(rows)
        return _core.ecsq_encoder(np.clip(steps, 6e-8, 6e4).tolist(), factor)


def _knows(calibration: Calibration | None, tensor: str) -> bool:
    return calibration is not None and tensor in calibration.matrices


def ecsq(step: float, sensitivity: Sensitivity) -> EcsqScheme:
    """Make the scheme: Q8_0's values without its rule for scales."""
    stock = q8_0()
    return EcsqScheme("ecsq", "q8_0", stock.values, stock.fold, step=step, sensitivity=sensitivity)


class Ecsq(Mode):
    """Integer codes at one step for the whole model, by GPTQ; small once they are packed."""

    name: ClassVar[str] = "ecsq"
    file_type: ClassVar[LlamaFileType] = LlamaFileType.MOSTLY_Q8_0
    dampening_propagated: ClassVar[float] = ECSQ_PROPAGATED

    hessian: Path = Field(description="Hessian statistics, as steps are measured in outputs")
    step: Annotated[float, limits.STEP.interval] = Field(
        description="root of 12 times the squared error of outputs per weight, such as 0.01"
    )
    sensitivity: Path | None = Field(None, description="what `pyquant sensitivity` measured")

    def scheme(self, q8_0_codes: CountCodes) -> EcsqScheme:
        return ecsq(self.step, Sensitivity.read(self.sensitivity) if self.sensitivity else Sensitivity())

    def parameters(self, scheme: Scheme | None) -> dict[str, str | int]:
        return {"step": f"{self.step:.6g}"}
