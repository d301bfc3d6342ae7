"""Shards of a new file: which tensors each of them has, and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor, padded

MOST_SHARDS = 65535  # what split.count holds

# The most bytes that tensors of a shard take, or the shards of the source.
Split: TypeAlias = int | Literal["keep"]


class ShardTooSmall(ConfigError):
    """A tensor does not fit into a shard."""


@dataclass(frozen=True)
class Sharding:
    """A rule for tensors: by size as llama-gguf-split does, or as llama-quantize --keep-split does.

    most: bytes of a shard's tensors; None: each is in the shard that it is in now.
    places: by tensor, its shard in the source and its offset there.
    """

    most: int | None
    places: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, source: ModelFile, split: Split) -> Sharding:
        """Make the rule for a model that is read from `source`."""
        places = {tensor.name: (source.paths.index(tensor.path), tensor.offset) for tensor in source.tensors}
        return cls(None if split == "keep" else split, places)

    def ordered(self, model: ModelFile) -> ModelFile:
        """Give the model with its tensors in the order in which llama-quantize takes them."""
        if self.most is not None:
            return model
        model = copy(model)
        model.tensors = sorted(model.tensors, key=lambda tensor: self.places[tensor.name])
        return model

    def divide(self, tensors: Sequence[Tensor], n_bytes: Callable[[Tensor], int]) -> list[list[Tensor]]:
        """Divide tensors into shards.

        n_bytes: gives what a tensor becomes.
        Raises ShardTooSmall. ConfigError: there are too many shards.
        """
        shards = list(self._by_place(tensors) if self.most is None else self._by_size(tensors, n_bytes))
        if len(shards) > MOST_SHARDS:
            raise ConfigError(f"split-max-size: makes {len(shards):,} shards, at most {MOST_SHARDS:,} can be")
        return shards

    def keys(self, number: int, n_shards: int, n_tensors: int) -> dict[str, int]:
        """List what a shard says of itself, in the order in which llama.cpp's tools write it.

        number: the shard's, from 0. n_tensors: in all shards.
        """
        keys = {"split.no": number, "split.count": n_shards, "split.tensors.count": n_tensors}
        if self.most is None:
            return keys if n_shards > 1 else {}
        return {key: keys[key] for key in ("split.no", "split.tensors.count", "split.count")}

    def _by_place(self, tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        for number in range(1 + max((shard for shard, _ in self.places.values()), default=0)):
            yield [tensor for tensor in tensors if self.places[tensor.name][0] == number]

    def _by_size(self, tensors: Sequence[Tensor], n_bytes: Callable[[Tensor], int]) -> Iterator[list[Tensor]]:
        assert self.most is not None
        shard: list[Tensor] = []
        size = 0
        for tensor in tensors:
            more = padded(n_bytes(tensor))
            if more > self.most:
                raise ShardTooSmall(
                    f"split-max-size: tensor {tensor.name!r} takes {more:,} bytes, and a shard has at most "
                    f"{self.most:,}; give a larger size"
                )
            if shard and size + more > self.most:
                yield shard
                shard, size = [], 0
            shard.append(tensor)
            size += more
        yield shard


def shard_paths(output: Path, n_shards: int) -> list[Path]:
    """Name shards as llama-quantize does: OUT-00001-of-00003.gguf and so on for OUT.gguf."""
    stem = output.name.removesuffix(".gguf")
    return [output.with_name(f"{stem}-{i:05}-of-{n_shards:05}.gguf") for i in range(1, n_shards + 1)]
