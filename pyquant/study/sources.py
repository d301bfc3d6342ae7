"""The models of a study: their names, and their hashes."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyquant.errors import ConfigError
from pyquant.files.json import read_json
from pyquant.files.output_file import write_bytes
from pyquant.models.model_file import ModelFile
from pyquant.models.shard_name import named_shards

TEMPLATE = "tokenizer.chat_template"

# Told the name of each model whose hash is made.
Hashing = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """A model to quantize."""

    path: Path  # its file, or the first of its shards
    name: str  # name of its file, and as much of the folder as tells it from the others
    sha256: str  # of its files
    n_weights: int
    has_chat_template: bool


class Given:
    """Files that people gave, as they were before they were read: results are named by what was in them."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._seen = {path: _version(path) for file in files for path in named_shards(file.absolute())}

    def changed(self, files: Iterable[Path]) -> list[Path]:
        """List those of some files that changed since, a model with all its shards; others do not count."""
        paths = [path for file in files for path in named_shards(file.absolute())]
        return [path for path in paths if path in self._seen and _version(path) != self._seen[path]]


def _version(path: Path) -> list[int] | None:
    """Tell what a file holds from what it held before; None: it is not there."""
    try:
        stat = path.stat()
    except (OSError, ValueError):  # whatever reads it says why
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


class _Hashed(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def sha256(self) -> str: ...


def read_sources(paths: Sequence[Path], hashes: Path, hashing: Hashing | None) -> list[Source]:
    """Read and hash models.

    hashes: file of hashes that are known, and are not made again as long as the model does not change.
    hashing: told the name of each model that is read for its hash.
    Raises ConfigError: a model is there twice. ModelFileError: a file is no model.
    """
    models = [ModelFile(path) for path in paths]
    known = _Hashes(hashes, hashing)
    names = short_names([model.path.absolute() for model in models])
    sources = [
        Source(model.path.absolute(), name, known.of(model), model.n_weights, model.get(TEMPLATE) is not None)
        for model, name in zip(models, names)
    ]
    refuse_repeated(sources, "model")
    return sources


def short_names(paths: list[Path]) -> list[str]:
    """Return the names of files, with as much of the folders as tells them apart.

    Bytes that are not UTF-8 are escaped.
    """
    paths = [Path(str(path).encode(errors="backslashreplace").decode()) for path in paths]
    for n_parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = ["/".join(path.parts[-n_parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def refuse_repeated(files: Sequence[_Hashed], what: str) -> None:
    """Raise ConfigError if two files have the same content. `what` they are goes into the message."""
    seen: dict[str, _Hashed] = {}
    for file in files:
        first = seen.setdefault(file.sha256, file)
        if first is not file:
            raise ConfigError(f"{file.path}: the same {what} as {first.path}")


class _Hashes:
    """Hashes of models that have not changed since they were last read."""

    def __init__(self, path: Path, hashing: Hashing | None) -> None:
        self._path, self._hashing = path, hashing
        self._known: dict[str, dict[str, Any]] = {}
        # A damaged file is as good as a missing one: hashes are made again.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._known = {name: entry for name, entry in read_json(path).items() if _is_entry(entry)}

    def of(self, model: ModelFile) -> str:
        seen = [_version(path) for path in model.paths]
        name = str(model.path.absolute())
        if self._known.get(name, {}).get("seen") != seen:
            if self._hashing:
                self._hashing(model.path.name)
            self._known[name] = {"seen": seen, "sha256": model.sha256()}
            write_bytes(self._path, json.dumps(self._known).encode(), sources=[], force=True)
        return self._known[name]["sha256"]


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"seen", "sha256"}:
        return False
    return isinstance(entry["sha256"], str) and re.fullmatch("[0-9a-f]{64}", entry["sha256"]) is not None
