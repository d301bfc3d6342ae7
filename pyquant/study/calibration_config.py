"""A [[calibration]] of a study: texts, and how they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pyquant import limits
from pyquant.calibration.random_tokens import RANDOM_SHARE
from pyquant.errors import ConfigError


class CalibrationConfig(BaseModel):
    """Texts that models are run over to see what enters their matrices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="what quantizers call it")
    texts: list[Path] = Field([], description="UTF-8 texts")
    weights: list[Annotated[float, limits.WEIGHT.interval]] | None = Field(
        None, description="how much each text's tokens count"
    )
    ctx: Annotated[int, limits.CALIBRATION_CTX.interval] | None = Field(
        None, description="tokens in a chunk; 512, or what the model was trained with, if left out"
    )
    chunks: Annotated[int, limits.CHUNKS.interval] | None = Field(
        None, description="chunks of each text; all, if left out"
    )
    random: Annotated[float, limits.SHARE.interval] = Field(
        RANDOM_SHARE, description="share of random tokens in Hessians"
    )
    process_output: bool = Field(False, description="whether the output matrix's input is collected too")
    output_side: Annotated[int, limits.SEQUENCES.interval] | None = Field(
        None, description="chunks of the output-side Hessian"
    )

    def check_texts(self) -> None:
        """Refuse none, and weights that are not one for each. Raises ConfigError."""
        where, n_texts = f"calibration {self.name}", len(self.texts)
        if not n_texts:
            raise ConfigError(f"{where}: texts: none are given; --calibration-text {self.name}=FILE adds one")
        if self.weights is not None and len(self.weights) != n_texts:
            raise ConfigError(f"{where}: weights: {len(self.weights)} for {n_texts} texts; give one for each")
