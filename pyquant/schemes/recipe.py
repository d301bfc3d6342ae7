"""Mode recipe: the types that a recipe gives a model's tensors, rounded as GGML's types are."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType
from pyquant.schemes.ggml_type import file_type_of
from pyquant.schemes.mode import CountCodes, Mode
from pyquant.schemes.recipe_file import Recipe, read_recipe


class RecipeMode(Mode):
    """A type for each tensor, from a file."""

    name: ClassVar[str] = "recipe"

    recipe: Path = Field(description="a type for each tensor, as `pyquant mix` writes it")

    @cached_property
    def contents(self) -> Recipe:
        """Content of the file. Raises ConfigError."""
        return read_recipe(self.recipe)

    @property
    def file_type(self) -> int:  # type: ignore[override]
        """The mixture that the recipe changes."""
        try:
            return file_type_of(self.contents.base)
        except ValueError as error:
            raise ConfigError(f"{self.recipe}: base: {self.contents.base!r} {error}") from None

    def types(self, model: ModelFile) -> dict[str, TensorType]:
        return self.contents.types_for(model, self.recipe)

    def scheme(self, q8_0_codes: CountCodes) -> None:
        return None
