"""Types of a cache: how a context keeps keys and values of the tokens before."""

from __future__ import annotations

from dataclasses import dataclass

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from pyquant.errors import ConfigError
from pyquant.limits import CACHE_TYPES


@dataclass(frozen=True)
class CacheTypes:
    """Types of keys and values; llama.cpp computes attention with flash attention where values are quantized.

    Raises ConfigError: a name is none of CACHE_TYPES.
    """

    keys: str = "f16"
    values: str = "f16"

    def __post_init__(self) -> None:
        for letter, name in (("k", self.keys), ("v", self.values)):
            if name not in CACHE_TYPES:
                raise ConfigError(
                    f"cache-type-{letter}: expected one of {', '.join(CACHE_TYPES)}, got {name!r}"
                )

    @classmethod
    def read(cls, pair: str) -> CacheTypes:
        """Read "q8_0/q4_0", keys and values, or one name for both. Raises ConfigError."""
        keys, _, values = pair.partition("/")
        return cls(keys, values or keys)

    def __str__(self) -> str:
        return f"KV {self.keys}/{self.values}"

    @property
    def numbers(self) -> tuple[int, int]:
        """GGML's numbers of both types."""
        return _type(self.keys).value, _type(self.values).value

    @property
    def quantized_together(self) -> tuple[int, int]:
        """How many numbers of keys, and of values, make a block: heads are a multiple of it long."""
        return GGML_QUANT_SIZES[_type(self.keys)][0], GGML_QUANT_SIZES[_type(self.values)][0]

    @property
    def bytes_per_value(self) -> tuple[float, float]:
        """Bytes that a number takes in keys, and in values."""
        (n_keys, key_bytes), (n_values, value_bytes) = (
            GGML_QUANT_SIZES[_type(name)] for name in (self.keys, self.values)
        )
        return key_bytes / n_keys, value_bytes / n_values


def _type(name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType[name.upper()]


F16_CACHE = CacheTypes()
