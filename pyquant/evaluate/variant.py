"""A model as it is run: with a cache of certain types."""

from __future__ import annotations

from dataclasses import dataclass

from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.model import Model


@dataclass(frozen=True)
class Variant:
    """A model, and the types of its cache."""

    model: Model
    cache: CacheTypes = F16_CACHE

    @property
    def name(self) -> str:
        """The model's path, with the types if they are not F16's."""
        return str(self.model.path) if self.cache == F16_CACHE else f"{self.model.path} ({self.cache})"
