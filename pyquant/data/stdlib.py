"""The text that every CPython carries, as documents: some to train on, some to evaluate on.

Documents are the standard library's own sources, the docstrings of its modules written in C, and
the topics of `help()`. A hash of its name alone says whether a document is held out, so the two
sides stay disjoint whatever the Python version, and nobody has to ship a list.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HELD_OUT = 20  # one document in so many

# Folders that are not the language's text: installed packages, tests (many distributions leave them out),
# tables of code points, and what only describes one build.
SKIPPED_FOLDERS = {
    "__pycache__",
    "dist-packages",
    "encodings",
    "idle_test",
    "lib-dynload",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
}
SKIPPED_PREFIXES = ("config-", "_sysconfigdata")


@dataclass(frozen=True)
class Document:
    """name: its path below the standard library's folder, "/" between parts."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        return is_held_out(self.name)


def is_held_out(name: str) -> bool:
    """Say whether the document of this name is for evaluation, not for training.

    Underscores before the module's name do not count: heapq.py and the docstrings of _heapq, which
    say the same in the same words, stay on one side.
    """
    folder, _, file = name.rpartition("/")
    return _hash(f"{folder}/{file.lstrip('_')}") % HELD_OUT == 0


def documents(*, held_out: bool) -> list[Document]:
    """All documents of one side, in the order of their names' hashes: any prefix is a fair sample."""
    return sorted((Document(*named) for named in _all(held_out)), key=lambda document: _hash(document.name))


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _all(held_out: bool) -> Iterator[tuple[str, str]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).parts
        name = "/".join(parts)
        skipped = any(part in SKIPPED_FOLDERS or part.startswith(SKIPPED_PREFIXES) for part in parts)
        if not skipped and is_held_out(name) == held_out and (text := _source(path)):
            yield name, text
    for module in sorted({*sys.builtin_module_names, *_extension_modules()}):
        name = f"{module}.py"
        if is_held_out(name) == held_out and (text := _docstrings(module)):
            yield name, text
    name = "pydoc_data/topics.py"
    if is_held_out(name) == held_out:
        from pydoc_data.topics import topics

        yield name, "\n\n".join(topics[topic].strip() for topic in sorted(topics)) + "\n"


def _source(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):  # a few old files are in other encodings
        return None


def _extension_modules() -> set[str]:
    folder = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    modules = {path.name.partition(".")[0] for path in folder.glob("*.so")}
    return {module for module in modules if not module.startswith(("_test", "_xx", "xx"))}


def _docstrings(module: str) -> str | None:
    """Give what help() says of a module without a source, as stubs: signatures and docstrings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a module is deprecated
            here = importlib.import_module(module)
    except ImportError:  # one that this machine has no library for
        return None
    lines = [here.__doc__ or ""]
    for name, value in sorted(vars(here).items()):
        if inspect.isclass(value) and value.__module__ == here.__name__:
            lines.append(f"class {name}:\n{_indented(value.__doc__)}")
            members = sorted(vars(value).items())
            lines += [f"    def {key}:\n{_indented(m.__doc__, 8)}" for key, m in members if _is_told(m)]
        elif inspect.isbuiltin(value) and _is_told(value):
            lines.append(f"def {name}:\n{_indented(value.__doc__)}")
    text = "\n\n".join(line.rstrip() for line in lines if line.strip())
    return text + "\n" if text else None


def _is_told(value: object) -> bool:
    return inspect.isroutine(value) and isinstance(value.__doc__, str)


def _indented(text: object, by: int = 4) -> str:
    lines = text.splitlines() if isinstance(text, str) else []  # a member may be called __doc__
    return "\n".join(" " * by + line if line else "" for line in lines)
