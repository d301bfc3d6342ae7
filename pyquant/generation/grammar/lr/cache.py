"""Keep what is prepared for a grammar and a vocabulary on disk, so that the next run has it at once.

A file is named by the hash of all that it depends on: the grammar, the vocabulary, the versions of pyquant
and lark. Grammars that are imported are noted with their hashes, and looked at again. What is damaged is
prepared anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lark
import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import OutputError
from pyquant.files.output_file import OutputFile
from pyquant.generation.grammar.grammar import Grammar
from pyquant.machine.caches import cache_folder

logger = logging.getLogger("pyquant.generation.grammar")

BEGIN = b"pyquant grammar 3\n"  # then 8 bytes of checksum, a line of JSON that names arrays, and those
ALIGNMENT = 16  # of arrays in a file, so that they can be used where they are
IMPORTS = "imports"
SUFFIX = ".grammar"
MOST_FILES = 32  # beyond them, those that were not used for the longest time are removed

Arrays = dict[str, NDArray[Any]]


def hash_vocabulary(pieces: list[bytes], end_tokens: Sequence[int]) -> str:
    """Hash what a prepared grammar depends on of a vocabulary: each token's bytes, and which end a text."""
    digest = hashlib.sha256(_core.join_pieces(pieces))
    digest.update(repr(list(end_tokens)).encode())
    return digest.hexdigest()


class CachedGrammar:
    """Place where a grammar that is prepared for a vocabulary, of which this is the hash, is kept."""

    def __init__(self, grammar: Grammar, vocabulary: str) -> None:
        self._name = grammar.name
        folder = cache_folder()
        versions = [BEGIN.decode(), _core.build_info()["pyquant"], _hash_of_this_room(), lark.__version__]
        imports_from = str(Path(grammar.name).parent.absolute())
        key = json.dumps([*versions, grammar.text, imports_from, vocabulary])
        self._path = folder and folder / (hashlib.sha256(key.encode()).hexdigest() + SUFFIX)

    def read(self) -> Arrays | None:
        """Return what `write` was called with; None where there is nothing that can be used."""
        if self._path is None:
            return None
        try:
            data = self._path.read_bytes()
            arrays = _arrays(data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s: prepared anew, as what was kept cannot be used: %s", self._name, error)
            return None
        imports: dict[str, str] = json.loads(arrays.pop(IMPORTS).tobytes())
        if not all(_hash_file(path) == digest for path, digest in imports.items()):
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path)
        return arrays

    def write(self, arrays: Arrays, imports: dict[str, str]) -> None:
        """Keep arrays, whole or not at all; where that is not possible, a remark says why.

        imports: paths of the files that the grammar imports, and the SHA-256 of each.
        """
        if self._path is None:
            return
        noted = np.frombuffer(json.dumps(imports).encode(), np.uint8)
        body = _body({IMPORTS: noted, **arrays})
        data = BEGIN + _core.checksum(body).to_bytes(8, "little") + body
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with OutputFile(self._path, len(data), sources=[], force=True) as output:
                output.write(data, 0)
                output.commit()
            _remove_oldest(self._path.parent)
        except (OSError, OutputError) as error:
            logger.warning("%s: what was prepared is not kept: %s", self._name, error)


@cache
def _hash_of_this_room() -> str:
    """Hash the modules that prepare grammars: between two versions of pyquant they change as well."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _arrays(data: bytes) -> Arrays:
    body = memoryview(data)[len(BEGIN) + 8 :]
    if not data.startswith(BEGIN):
        raise ValueError("its format is another one")
    if _core.checksum(body).to_bytes(8, "little") != data[len(BEGIN) : len(BEGIN) + 8]:
        raise ValueError("it is damaged")
    end = data.index(b"\n", len(BEGIN) + 8)
    arrays, begin = {}, end + 1
    for name, dtype, shape in json.loads(data[len(BEGIN) + 8 : end]):
        begin += -begin % ALIGNMENT
        arrays[name] = np.frombuffer(data, dtype, math.prod(shape), begin).reshape(shape)
        begin += arrays[name].nbytes
    return arrays


def _body(arrays: Arrays) -> bytes:
    """Return arrays as a file has them: a view of each is all that reading takes."""
    line = json.dumps([(name, array.dtype.str, array.shape) for name, array in arrays.items()])
    body = bytearray(line.encode() + b"\n")
    for array in arrays.values():
        body += bytes(-(len(BEGIN) + 8 + len(body)) % ALIGNMENT)
        body += array.tobytes()
    return bytes(body)


def _hash_file(path: str) -> str | None:
    try:
        text = Path(path).read_text(encoding="utf-8")  # as lark reads it
    except (OSError, UnicodeDecodeError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _remove_oldest(folder: Path) -> None:
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
    for path in files[:-MOST_FILES]:
        path.unlink(missing_ok=True)
