"""Open model files: what is in them, whole or split, GGUF or pqz."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.files.sha256 import files_sha256
from pyquant.models.pqz.pqz_file import PqzFile
from pyquant.models.shard import Shard, read_shard
from pyquant.models.shard_name import SHARD_NAME, named_shards
from pyquant.models.tensor import Tensor


class ModelFile:
    """A model, opened for reading: its headers, and all of its shards if it is split.

    Attributes
    ----------
    header
        The metadata; of a split model the first shard's.
    paths
        The file, or all shards in order.
    pqz_files
        Those of `paths` that are pqz files, opened.
    tensors
        By layer and name, the order in which llama-quantize writes them.
    """

    _hashed: tuple[list[tuple[int, ...]], str] | None = None  # which files, and their hash

    header: _core.Gguf
    paths: list[Path]
    pqz_files: list[PqzFile]
    tensors: list[Tensor]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the headers.

        Parameters
        ----------
        path
            A GGUF or pqz file; of a split model the first shard.

        Raises
        ------
        ModelFileError
            A file cannot be read. The message names it and says what is wrong.
        """
        first = Path(path)
        shards = [read_shard(first)]
        self.header = shards[0].header
        self.paths = [first, *self._other_shards(first)]
        shards += [read_shard(shard, self.header) for shard in self.paths[1:]]
        self.pqz_files = [shard.pqz for shard in shards if shard.pqz is not None]
        if len(shards) > 1:
            for index, shard in enumerate(shards):
                self._check_place(shard, index)
        tensors = [tensor for shard in shards for tensor in shard.tensors]
        first_in: dict[str, Path] = {}
        for tensor in tensors:
            if (other := first_in.setdefault(tensor.name, tensor.path)) != tensor.path:
                raise ModelFileError(
                    f"{tensor.path}: tensor {tensor.name!r} is in {other.name} too: is one of them another "
                    f"model's?"
                )
        if len(self.paths) > 1 and self.get("split.tensors.count", len(tensors)) != len(tensors):
            raise ModelFileError(
                f"{first}: {self.get('split.tensors.count')} tensors announced, {len(tensors)} in the shards"
            )
        self.tensors = sorted(tensors, key=lambda tensor: (tensor.layer, tensor.name.encode()))

    @property
    def path(self) -> Path:
        """The file, or the first shard."""
        return self.paths[0]

    @cached_property
    def keys(self) -> frozenset[str]:
        """The metadata keys."""
        return frozenset(self.header.keys())

    def get(self, key: str, default: Any = None) -> Any:
        """Give a metadata value; an array is a numpy array, or a list of str."""
        return self.header.value(key) if key in self.keys else default

    @property
    def architecture(self) -> str:
        """`general.architecture`, such as "llama".

        Raises
        ------
        ModelFileError
            The file does not say it.
        """
        architecture = self.get("general.architecture")
        if not isinstance(architecture, str) or not architecture.isprintable():
            raise ModelFileError(f"{self.path}: no 'general.architecture' in its metadata: not a model")
        return architecture

    def hyperparameter(self, name: str, default: int = 0) -> int:
        """Give an integer of the metadata under the architecture's prefix; the first where layers differ.

        Parameters
        ----------
        name
            The key without the prefix: "embedding_length".
        default
            What to give where there is no such key.

        Raises
        ------
        ModelFileError
            The value is not an integer below 2^32.
        """
        value = self.get(f"{self.architecture}.{name}", default)
        if isinstance(value, np.ndarray) and value.size:
            value = value[0]
        if not isinstance(value, int | float | np.number) or not 0 <= value < 2**32:
            raise ModelFileError(
                f"{self.path}: {self.architecture}.{name} is {reprlib.repr(value)}, "
                f"expected an integer below 2^32"
            )
        return int(value)

    @property
    def n_bytes(self) -> int:
        """The size of all its files, in bytes."""
        return sum(path.stat().st_size for path in self.paths)

    @property
    def n_weights(self) -> int:
        """Weights of all tensors."""
        return sum(tensor.n_weights for tensor in self.tensors)

    def sha256(self, cancelled: Callable[[], bool] = lambda: False) -> str:
        """Hash the file as sha256sum does; of a split model all shards, one after the other.

        It is computed once, as long as no file is replaced or written.

        Parameters
        ----------
        cancelled
            Asked now and then; once it says True the hash is given up, and what is returned is none.
        """
        states = [path.stat() for path in self.paths]
        version: list[tuple[int, ...]] = [
            (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns) for state in states
        ]
        if self._hashed is not None and self._hashed[0] == version:
            return self._hashed[1]
        digest = files_sha256(self.paths, cancelled)
        if not cancelled():
            self._hashed = version, digest
        return digest

    def _check_place(self, shard: Shard, index: int) -> None:
        """Refuse a shard that says to be another one's, or of another model. index: its place, from 0."""
        keys = shard.header.keys()
        wanted: dict[str, Any] = {"split.no": index}
        for key in ("split.count", "split.tensors.count"):
            if key in self.keys:
                wanted[key] = self.get(key)
        for key, value in wanted.items():
            if key not in keys:
                raise ModelFileError(f"{shard.path}: no {key!r} in its metadata: it is no shard of a model")
            if (said := shard.header.value(key)) != value:
                raise ModelFileError(
                    f"{shard.path}: shard {index + 1} of {len(self.paths)} by its name, and its {key} is "
                    f"{reprlib.repr(said)}, expected {value}: is it another shard, or another model's?"
                )

    def _other_shards(self, first: Path) -> list[Path]:
        n_shards = self.get("split.count", 0)
        if not isinstance(n_shards, int) or n_shards < 2:
            return []
        match = SHARD_NAME.fullmatch(first.name)
        if not match or int(match[3]) != n_shards:
            raise ModelFileError(
                f"{first}: one of {n_shards} shards, so its name must end in "
                f"-00001-of-{n_shards:05}.gguf for the others to be found"
            )
        if int(match[2]) != 1:
            raise ModelFileError(
                f"{first}: shard {int(match[2])} of {n_shards}; give the first one, "
                f"{match[1]}-00001-of-{n_shards:05}{match[4]}"
            )
        return named_shards(first)[1:]


# Types that functions of the library take as a model.
AnyModel: TypeAlias = ModelFile | str | os.PathLike[str]


def open_model(model: AnyModel) -> ModelFile:
    """Open a model by its path, or hand an opened one on. Raises ModelFileError: the file cannot be read."""
    return model if isinstance(model, ModelFile) else ModelFile(model)
